"""Where processes are, and whether they are the ones that somebody names: for many pids, again and again.

1. Every question reads the process's stat, which says whether it is alive and when it started. The rest is
   read when a process is new, because a process of a pod does not leave its cgroup.
2. A zombie, or a process that is being removed, is dead.
3. What was not asked about for two rounds is forgotten, and there is a bound.
"""

from __future__ import annotations

import os
import threading
from typing import Final, NamedTuple

from nvshare.pods.cgroups import Place, place_of

PROCESSES_MAX: Final = 16_384
_BYTES: Final = 4096
_STATE_FIELD: Final = 0  # after the command's closing bracket
_START_FIELD: Final = 19
_DEAD: Final = frozenset({b"Z", b"X", b"x"})


class PlacedProcess(NamedTuple):
    start_ticks: int
    inner_pid: int  # in its innermost pid namespace; 0: the kernel does not say
    place: Place


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _BYTES)
    finally:
        os.close(descriptor)


class ProcessPlaces:
    def __init__(self) -> None:
        self._known: dict[int, PlacedProcess] = {}
        self._asked: dict[int, PlacedProcess] = {}  # since the last round
        self._lock = threading.Lock()

    def at(self, pid: int) -> PlacedProcess | None:
        """The process that has this pid now; None if there is none, or it is dead. Raises OSError if it is
        hidden from us.
        """
        try:
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split(None, _START_FIELD + 1)
            if fields[_STATE_FIELD] in _DEAD:
                return None
            start_ticks = int(fields[_START_FIELD])
            known = self._asked.get(pid) or self._known.get(pid)
            if known is None or known.start_ticks != start_ticks:
                known = PlacedProcess(start_ticks, *_facts(pid))
        except (FileNotFoundError, ProcessLookupError, IndexError):
            return None
        with self._lock:
            if pid in self._asked or len(self._asked) < PROCESSES_MAX:
                self._asked[pid] = known
        return known

    def end_round(self) -> None:
        with self._lock:
            self._known, self._asked = self._asked, {}


def _facts(pid: int) -> tuple[int, Place]:
    inner_pid = 0
    for line in _read(f"/proc/{pid}/status").split(b"\n"):
        if line.startswith(b"NSpid:"):
            inner_pid = int(line.split()[-1])
            break
    cgroups = _read(f"/proc/{pid}/cgroup").decode(errors="surrogateescape")
    return inner_pid, place_of(cgroups)
