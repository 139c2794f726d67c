"""What the daemon costs beside the least a lock server can do."""
