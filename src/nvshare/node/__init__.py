"""The daemon: sockets, timers, control, checkpoint. It performs what the core decides."""
