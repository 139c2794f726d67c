"""What GPUs there are and what they report."""
