"""How many descriptors the daemon has, and what they are kept for.

1. The soft limit is raised as far as the hard one lets us, and no further than could ever be of use.
2. A client takes three at most: its socket, its pidfd, and the set in which it is read if it is its owner's
   or its pod's first. So does a silent connection. Who is expected back counts as a client; its process takes
   one, the pidfd. Where the limit is too small for all that the bounds permit, fewer are permitted: what
   clients may take never touches what is kept for control, metrics and the daemon itself, and the clients of
   no user or pod take more than half of theirs.
"""

from __future__ import annotations

import resource
from dataclasses import replace
from typing import Final

from nvshare.node import logs
from nvshare.node.bounds import Bounds

MOST: Final = 65_536
OWN: Final = 64
"""For the daemon itself: files, timers, threads, NVML."""
_EACH: Final = 3
_FEWEST_SERVED: Final = 4  # connections to control and to metrics, and of users
_FEWEST_CLIENTS: Final = 32
"""With fewer it would serve nobody. Below that, accepting pauses when descriptors run out."""


def raise_limit() -> int:
    """As many descriptors as we may have; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MOST if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        logs.warning("the limit on file descriptors cannot be raised", limit=soft, wanted=wanted, why=error)
        return soft
    return wanted


def needed(bounds: Bounds) -> int:
    """For all that the bounds permit."""
    served = bounds.control_connections + bounds.metrics_connections + bounds.user_connections
    return OWN + served + _EACH * (bounds.unregistered + bounds.clients)


def within(bounds: Bounds, limit: int) -> Bounds:
    """What can be permitted with that many descriptors (rule 2)."""
    if limit >= needed(bounds):
        return bounds
    free = max(0, limit - OWN)
    control = min(bounds.control_connections, max(_FEWEST_SERVED, free // 16))
    metrics = min(bounds.metrics_connections, max(_FEWEST_SERVED, free // 8))
    users = min(bounds.user_connections, max(_FEWEST_SERVED, free // 32))
    unregistered = min(bounds.unregistered, max(_FEWEST_CLIENTS, free // 16))
    left = (free - control - metrics - users) // _EACH - unregistered
    clients = min(bounds.clients, max(_FEWEST_CLIENTS, left))
    fewer = replace(
        bounds,
        control_connections=control,
        metrics_connections=metrics,
        user_connections=users,
        unregistered=unregistered,
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
