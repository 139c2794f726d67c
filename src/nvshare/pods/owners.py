"""Which user of the machine a pod belongs to, where one node serves several.

1. A user's pods are in a namespace of his own, ``user-UID``: so two users can use one name, and neither can
   name, join or take the other's pod. The number is the kernel's, since names can change and be alike.
2. A process in no pod belongs to the user it runs as, and a container below ``user.slice`` to that user.
3. All other pods are the operator's.
"""

from __future__ import annotations

import re
from typing import Final

PROCESS: Final = "process:"
_OWNED: Final = re.compile(r"(?:container:)?user-(?P<uid>0|[1-9][0-9]{0,9})/.+", re.ASCII)


def namespace_of(uid: int) -> str:
    return f"user-{uid}"


def owner_of(pod: str) -> int | None:
    """The user whose name a pod carries; None: it carries none."""
    match = _OWNED.fullmatch(pod)
    return int(match["uid"]) if match else None


def pod_of_user(uid: int, pod: str) -> str | None:
    """What a user means by ``namespace/name``; None if the namespace is none of his."""
    namespace, _, name = pod.partition("/")
    own = namespace_of(uid)
    return f"{own}/{name}" if namespace in ("default", own) else None
