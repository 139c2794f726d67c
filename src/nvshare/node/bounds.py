"""Every bound of the daemon in one place. Tests make them smaller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    clients: int = 4096
    clients_per_pod: int = 256
    clients_per_uid: int = 512  # of processes in no pod
    unregistered: int = 2048  # connections that have not said what they are
    unregistered_per_owner: int = 512  # of a pod, a container, or a user outside of them
    handshake_ns: int = 5_000_000_000
    last_words_ns: int = 1_000_000_000  # to read what a process said before it ended
    output_bytes: int = 65_536  # beyond what the kernel buffers: about a hundred messages
    backlog: int = 4096
    accepts_per_callback: int = 4
    exhausted_pause_ns: int = 100_000_000
    exhausted_calm_ns: int = 60_000_000_000  # without running out again, until it is worth a line once more
    control_connections: int = 64
    metrics_connections: int = 512
    checkpoint_every_ns: int = 1_000_000_000
