"""Whose process is it: from the kernel, never from what a process says about itself."""
