"""Whose user namespace a process is in, as the kernel knows it.

In a rootless container processes run under further uids of the user (``/etc/subuid``), which show nothing of
whose they are. But the user made the namespace that they are in, and nobody else can put a process there.
"""

from __future__ import annotations

import array
import fcntl
import os
from typing import Final

_PARENT: Final = 0xB702  # requests of ioctl, as <linux/nsfs.h> defines them
_OWNER: Final = 0xB704
_NESTED_MAX: Final = 33  # as deep as the kernel lets them be
_HIDDEN: Final = (FileNotFoundError, ProcessLookupError, PermissionError)


def in_namespace_of(pid: int, uid: int) -> bool:
    """The user made the process's user namespace, or one around it that is not ours.

    False also if the namespace is hidden from us (no ``CAP_SYS_PTRACE``).
    """
    try:
        ours = os.stat("/proc/self/ns/user")
        namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except _HIDDEN:
        return False
    try:
        for _ in range(_NESTED_MAX):
            if os.path.samestat(os.fstat(namespace), ours):
                return False
            if _owner(namespace) == uid:
                return True
            around = fcntl.ioctl(namespace, _PARENT)
            os.close(namespace)
            namespace = around
    except _HIDDEN:  # the next one around is not visible to us
        return False
    finally:
        os.close(namespace)
    return False


def _owner(namespace: int) -> int:
    uid = array.array("I", [0])
    fcntl.ioctl(namespace, _OWNER, uid)
    return uid[0]
