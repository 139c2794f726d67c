"""Share one GPU among processes and pods, with memory and compute quotas that hold."""

__version__ = "0.1.0"
