"""Trained models on disk."""
