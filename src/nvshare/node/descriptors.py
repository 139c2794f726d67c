"""How many clients and connections the daemon admits with the descriptors it has.

A client takes three descriptors at most: its socket, its pidfd, and an epoll set if it is the first of its
owner or pod. So does a silent connection. An expected client counts in full, though its process only takes a
pidfd. A run takes one, and so does a process while it is being ended. With too few descriptors for all that
the bounds permit, less is permitted: clients never touch the descriptors kept for control, metrics and the
daemon itself, and no user or pod takes more than half of the clients'.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nvshare.node.bounds import Bounds
from nvshare.runtime import logs

OWN: Final = 64
"""For the daemon itself: files, timers, threads, NVML."""
RUNS_LEAST: Final = 512
"""Permitted where there are enough descriptors for all clients; more where some are left."""
_PER_CLIENT: Final = 3
_FEWEST_SERVED: Final = 4  # connections to control and to metrics, and of users; runs; processes ending
_FEWEST_CLIENTS: Final = 32
"""With fewer the daemon would be of no use. Below that, accepting pauses when descriptors run out."""


def needed(bounds: Bounds) -> int:
    """The descriptors for all that the bounds permit, but for runs beyond RUNS_LEAST."""
    served = bounds.control_connections + bounds.metrics_connections + bounds.user_connections
    watched = min(bounds.runs, RUNS_LEAST) + bounds.processes_ending
    return OWN + served + watched + _PER_CLIENT * (bounds.unregistered + bounds.clients)


def within(bounds: Bounds, limit: int) -> Bounds:
    """The bounds that can be kept with that many descriptors."""
    spare = limit - needed(bounds)
    if spare >= 0:
        return replace(bounds, runs=min(bounds.runs, RUNS_LEAST + spare))
    free = max(0, limit - OWN)
    control = min(bounds.control_connections, max(_FEWEST_SERVED, free // 16))
    metrics = min(bounds.metrics_connections, max(_FEWEST_SERVED, free // 8))
    users = min(bounds.user_connections, max(_FEWEST_SERVED, free // 32))
    unregistered = min(bounds.unregistered, max(_FEWEST_CLIENTS, free // 16))
    runs = min(bounds.runs, max(_FEWEST_SERVED, free // 32))
    ending = min(bounds.processes_ending, max(_FEWEST_SERVED, free // 32))
    left = (free - control - metrics - users - runs - ending) // _PER_CLIENT - unregistered
    clients = min(bounds.clients, max(_FEWEST_CLIENTS, left))
    fewer = replace(
        bounds,
        control_connections=control,
        metrics_connections=metrics,
        user_connections=users,
        unregistered=unregistered,
        runs=runs,
        runs_per_uid=min(bounds.runs_per_uid, max(1, runs // 2)),
        processes_ending=ending,
        unregistered_per_owner=min(bounds.unregistered_per_owner, max(_FEWEST_CLIENTS, unregistered // 4)),
        clients=clients,
        clients_per_pod=min(bounds.clients_per_pod, clients // 2),
        clients_per_uid=min(bounds.clients_per_uid, clients // 2),
    )
    logs.warning(
        "too few file descriptors for all clients: fewer are admitted",
        limit=limit,
        needed=needed(bounds),
        clients=fewer.clients,
        instead_of=bounds.clients,
        help="raise the hard limit: ulimit -Hn, or LimitNOFILE= of systemd",
    )
    return fewer
