"""Bricks that two methods share."""
