"""A node without Kubernetes: ``nvshare up`` starts it, ``nvshare run`` puts programs on it."""
