"""Methods against each other."""
