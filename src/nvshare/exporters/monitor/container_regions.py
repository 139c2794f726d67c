"""The directories in which HAMi's library keeps the regions of this node's containers.

1. Each is named after a pod's UID and a container. A name is split at its first underscore. Directories of
   pods that the API server does not have here are left alone; nothing is ever written or deleted.
2. Of several files the first in the order of names is read, as HAMi does; HAMi itself refuses more than one,
   and with them a pod with several GPU containers.
3. A file stays open until it is replaced, or its size changes, or its directory goes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from nvshare.hami.region import SLOTS_EXPECTED, Refused, Region, read_region
from nvshare.pods.region_files import RegionFile

CONTAINERS: Final = "containers"
DIRECTORIES_MAX: Final = 4096
_FILE_ENDS: Final = ".cache"


class ContainerRegion(NamedTuple):
    """A container's directory, and what its region says, or why it says nothing."""

    pod_uid: str
    container: str
    region: Region | None
    refused: str  # the reason; empty if there is no file yet
    detail: str


class _Open:
    def __init__(self, file: RegionFile, path: str) -> None:
        self.file = file
        self.path = path
        self.expected = SLOTS_EXPECTED


class ContainerRegions:
    """Used by one thread at a time."""

    def __init__(self, hook_path: Path) -> None:
        self._directory = str(hook_path / CONTAINERS)  # texts: paths of pathlib are slow to join
        self._open: dict[str, _Open] = {}  # by name of the directory
        self._names: dict[str, tuple[int, str]] = {}  # the directory's time of change, and the file in it

    def read_all(self) -> Iterator[ContainerRegion]:
        """Every directory that is named as HAMi's are."""
        seen: set[str] = set()
        for name in self._directories():
            uid, _, container = name.partition("_")
            if uid and container:
                seen.add(name)
                yield self._read(name, uid, container)
        for name in [name for name in self._open if name not in seen]:
            self._close(name)
        for name in [name for name in self._names if name not in seen]:
            del self._names[name]

    def _directories(self) -> list[str]:
        try:
            return sorted(os.listdir(self._directory))[:DIRECTORIES_MAX]
        except OSError:
            return []  # HAMi makes it with its first container

    def _read(self, name: str, uid: str, container: str) -> ContainerRegion:
        try:
            file_name = self._file_in(name)
            if not file_name:
                self._close(name)
                return ContainerRegion(uid, container, None, "", "")
            opened = self._opened(name, f"{self._directory}/{name}/{file_name}")
            region = read_region(opened.file.read, opened.file.size_bytes, opened.expected)
            opened.expected = max(SLOTS_EXPECTED, len(region.slots) + region.unstable)
        except Refused as refused:
            self._close(name)
            return ContainerRegion(uid, container, None, refused.reason, str(refused))
        except OSError as error:
            self._close(name)
            return ContainerRegion(uid, container, None, "unreadable", str(error))
        return ContainerRegion(uid, container, region, "", "")

    def _file_in(self, name: str) -> str:
        directory = f"{self._directory}/{name}"
        changed_ns = os.stat(directory).st_mtime_ns
        known = self._names.get(name)
        if known is None or known[0] != changed_ns:
            files = sorted(one for one in os.listdir(directory) if one.endswith(_FILE_ENDS))
            known = self._names[name] = (changed_ns, files[0] if files else "")
        return known[1]

    def _opened(self, name: str, path: str) -> _Open:
        opened = self._open.get(name)
        if opened is not None and (opened.path != path or not opened.file.is_at(path)):
            self._close(name)
            opened = None
        if opened is None:
            opened = self._open[name] = _Open(RegionFile(path), path)
        return opened

    def _close(self, name: str) -> None:
        opened = self._open.pop(name, None)
        if opened is not None:
            opened.file.close()

    def close(self) -> None:
        for name in list(self._open):
            self._close(name)
