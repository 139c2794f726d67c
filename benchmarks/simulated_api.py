"""Whether the double of the API server keeps up: 250 pods of 8 kB, 1000 changes a second, watched by several.

What it cannot send in time would be taken for a weakness of whoever is measured against it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from nvshare.sim.kube_api import KubeApiProcess, pod
from tests.sim.kube_api.asking import Asker, asker_of

PODS: Final = 250
POD_BYTES: Final = 8000
CHANGES_PER_SECOND: Final = 1000
WATCHES: Final = 3
LATE_MOST_SEC: Final = 0.5
GROWTH_MOST_MIB: Final = 200.0


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / (1 << 20)


def cpu_sec(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


class Watcher(threading.Thread):
    """Counts lines, which is all it does, so that it is never what is slow."""

    def __init__(self, asker: Asker, version: str, expected: int) -> None:
        super().__init__(daemon=True)
        self._asker, self._version, self._expected = asker, version, expected
        self.lines = 0
        self.ended = 0.0

    def run(self) -> None:
        query = {"watch": "true", "resourceVersion": self._version}
        with self._asker.open("GET", "/api/v1/pods", None, **query) as response:
            while self.lines < self._expected and (piece := response.read1(1 << 20)):
                self.lines += piece.count(b"\n")
        self.ended = time.monotonic()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=int, default=10, choices=range(1, 51), metavar="1..50", help="default: 10"
    )
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as directory, KubeApiProcess(Path(directory)) as api:
        for number in range(PODS):
            api.create("pods", pod(f"p{number}", node="n1", size_bytes=POD_BYTES))
        asker, pid = asker_of(api), api.process.pid
        begun = time.monotonic()
        listed = asker.ask("GET", "/api/v1/pods").body
        list_ms = (time.monotonic() - begun) * 1000
        watchers = [
            Watcher(asker_of(api), listed["metadata"]["resourceVersion"], seconds * CHANGES_PER_SECOND)
            for _ in range(WATCHES)
        ]
        for watcher in watchers:
            watcher.start()
        before_mib, before_sec, begun = resident_mib(pid), cpu_sec(pid), time.monotonic()
        api.churn("pods", seconds * CHANGES_PER_SECOND, per_second=CHANGES_PER_SECOND)
        for watcher in watchers:
            watcher.join(60)
        late = max(watcher.ended for watcher in watchers) - begun - seconds
        busy, grown = (cpu_sec(pid) - before_sec) / seconds, resident_mib(pid) - before_mib
    lines = min(watcher.lines for watcher in watchers)
    print(f"{PODS} pods of {POD_BYTES} bytes listed and read in {list_ms:.0f} ms")
    print(
        f"{lines} changes in {seconds} s to each of {WATCHES} watches, {late:.2f} s late, "
        f"{busy:.0%} of a core, {grown:.0f} MiB more"
    )
    well = lines == seconds * CHANGES_PER_SECOND and late < LATE_MOST_SEC and grown < GROWTH_MOST_MIB
    print("it keeps up" if well else "IT DOES NOT KEEP UP")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
