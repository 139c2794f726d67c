"""Which of the processes in a region are alive: the kernel is asked, not the region.

1. Where the library found the host's pid: a process has it, is no zombie, and has the slot's pid inside.
2. Where it did not, or found another container's, because both started together: some process of the slot's
   pod has the slot's pid inside. For that all processes are looked at, once in a scrape and only if it is
   needed.
3. Where other pods' processes cannot be seen, as without hostPID, nobody knows, and the process counts as
   live.
"""

from __future__ import annotations

import os
from collections import defaultdict
from enum import Enum

from nvshare.hami.region import Slot
from nvshare.pods.process_places import ProcessPlaces


class Life(Enum):
    LIVE = "live"
    DEAD = "dead"
    UNKNOWN = "unknown"


class Liveness:
    """Of one scrape."""

    def __init__(self, places: ProcessPlaces) -> None:
        self._places = places
        self._inside: dict[str, set[int]] | None = None
        self._sees_others = False

    def of(self, slot: Slot, pod_uids: tuple[str, ...]) -> Life:
        """``pod_uids``: those that the pod's cgroups may have."""
        if slot.host_pid > 0:
            try:
                process = self._places.at(slot.host_pid)
            except OSError:
                return Life.UNKNOWN
            if process is not None and process.inner_pid == slot.pid and process.place.pod_uid in pod_uids:
                return Life.LIVE
        inside = self._all_inside()
        if any(slot.pid in inside.get(uid, ()) for uid in pod_uids):
            return Life.LIVE
        return Life.DEAD if self._sees_others else Life.UNKNOWN

    def _all_inside(self) -> dict[str, set[int]]:
        """The pids inside the containers of each pod (rule 2)."""
        if self._inside is None:
            found: defaultdict[str, set[int]] = defaultdict(set)
            own = self._places.at(os.getpid())
            self._sees_others = own is None or not own.place.contained
            for name in os.listdir("/proc"):
                if not name.isdigit():
                    continue
                try:
                    process = self._places.at(int(name))
                except OSError:
                    continue
                if process is not None and process.place.pod_uid:
                    found[process.place.pod_uid].add(process.inner_pid)
                    self._sees_others |= own is not None and process.place.pod_uid != own.place.pod_uid
            self._inside = dict(found)
        return self._inside
