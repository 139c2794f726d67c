"""The kubelet's device plugin: offers parts of GPUs as nvshare.com/gpu.

``devices`` and ``allocate`` decide, without I/O; ``health``, ``library``, ``server`` and ``kubelet`` deal
with the driver, the disk and the kubelet; ``daemon`` connects them.
"""
