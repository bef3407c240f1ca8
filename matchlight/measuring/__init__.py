"""From scores to numbers."""
