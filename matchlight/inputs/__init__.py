"""From pairs to tensors."""
