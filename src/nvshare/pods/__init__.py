"""Which tenant a process belongs to: from the kernel, never from what a process says about itself."""
