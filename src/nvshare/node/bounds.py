"""Every bound of the daemon in one place. Tests make them smaller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nvshare.runtime.listener import AcceptBounds

FIGURE_MAX: Final = 1 << 62
"""Of a time in nanoseconds or an amount in bytes: 146 years, 4 EiB. Larger figures count as this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds(AcceptBounds):
    clients: int = 4096
    clients_per_pod: int = 256
    clients_per_uid: int = 512  # of processes in no pod
    unregistered: int = 2048  # connections that have not registered
    unregistered_per_owner: int = 512  # of a pod, a container, or a user outside of them
    handshake_ns: int = 5_000_000_000
    resume_every_ns: int = 1_000_000_000  # a process that resumes again sooner has to wait
    last_words_ns: int = 1_000_000_000  # to read the last messages of a process that has ended
    round_ns: int = 400_000  # of each round of the loop, for owners with unread messages
    round_least_ns: int = 20_000  # for each owner, however many there are
    read_bytes: int = 8 * 659  # from a connection at once: about eight messages
    output_bytes: int = 65_536  # beyond what the kernel buffers: about a hundred messages
    backlog: int = 4096
    control_connections: int = 64
    metrics_connections: int = 512
    user_connections: int = 128  # for requests of the machine's users
    user_connections_per_uid: int = 4
    user_requests_per_sec: int = 20  # of each user
    user_requests_at_once: int = 60  # after a pause
    user_request_ns: int = 10_000_000_000  # to send a request
    runs: int = 4096  # `nvshare run`; a quarter is kept for root
    runs_per_uid: int = 256
    processes_ending: int = 256  # by `nvshare ctl kill`, at a time
    kills_per_uid: int = 4  # requests under way of each user
    checkpoint_every_ns: int = 1_000_000_000
    unknown_pod_ns: int = 2_000_000_000  # for which a client of an unknown Kubernetes pod waits at most
    gone_pod_ns: int = 600_000_000_000  # for which limits of a deleted pod without processes are kept
    kubernetes_answer_ns: int = 10_000_000_000  # to connect to the API server and be answered
    kubernetes_idle_ns: int = 75_000_000_000  # of a watch; bookmarks come about once a minute
