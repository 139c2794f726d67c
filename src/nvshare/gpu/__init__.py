"""The GPUs of a node, and what they report."""
