"""Scores of many pairs, fast and exact."""
