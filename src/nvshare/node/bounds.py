"""Every bound of the daemon in one place. Tests make them smaller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIGURE_MAX: Final = 1 << 62
"""Of a time in nanoseconds or an amount in bytes: 146 years, 4 EiB. Who says more is taken to say that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    clients: int = 4096
    clients_per_pod: int = 256
    clients_per_uid: int = 512  # of processes in no pod
    unregistered: int = 2048  # connections that have not said what they are
    unregistered_per_owner: int = 512  # of a pod, a container, or a user outside of them
    handshake_ns: int = 5_000_000_000
    resume_every_ns: int = 1_000_000_000  # a process that resumes again sooner waits: it works meanwhile
    last_words_ns: int = 1_000_000_000  # to read what a process said before it ended
    round_ns: int = 400_000  # of each round of the loop, for owners who have more to say than is read of them
    round_least_ns: int = 20_000  # for each of them, however many there are
    read_bytes: int = 8 * 659  # of a connection at once: about eight messages
    output_bytes: int = 65_536  # beyond what the kernel buffers: about a hundred messages
    backlog: int = 4096
    accepts_per_callback: int = 64
    accepts_ns: int = 400_000  # and no more when so long has passed
    exhausted_pause_ns: int = 100_000_000
    exhausted_calm_ns: int = 60_000_000_000  # without running out again, until it is worth a line once more
    control_connections: int = 64
    metrics_connections: int = 512
    user_connections: int = 128  # with requests of the machine's users
    user_connections_per_uid: int = 4
    user_requests_per_sec: int = 20  # of each user
    user_requests_at_once: int = 60  # after a pause
    user_request_ns: int = 10_000_000_000  # to say what is asked for
    runs_per_uid: int = 256
    checkpoint_every_ns: int = 1_000_000_000
