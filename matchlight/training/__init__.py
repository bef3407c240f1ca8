"""How a method is described and trained."""
