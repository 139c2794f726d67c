"""How many file descriptors this process may have."""

from __future__ import annotations

import resource
from typing import Final

from nvshare.runtime import logs

MOST: Final = 65_536
"""More would be of no use."""


def raise_limit() -> int:
    """Raise the soft limit as far as the hard limit and ``MOST`` allow; the limit in force."""
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
