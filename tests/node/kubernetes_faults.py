"""Every fault of the API server at every point of list and watch: limits stay, nobody is disconnected, and
all is right again soon after the fault has ended.

python -m tests.node.kubernetes_faults            # the whole table; exits with 1 if a row fails
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from nvshare.sim.kube_api import Fault, Point, combinations, pod
from tests.node.harness import PATIENCE_SEC
from tests.node.kubernetes import NODE, Cluster, PodRaw, cluster, wait_until

RIGHT_AGAIN_SEC: Final = 5.0
PODS: Final = 45
"""Three pages."""
BOUNDS: Final = {"kubernetes_answer_ns": 1_000_000_000, "kubernetes_idle_ns": 1_500_000_000}
BOOKMARK_SEC: Final = 0.4
SHORT_SEC: Final = 1.0
LONG_SEC: Final = 12.0
"""Until the pauses between attempts are as long as they get."""
LONG: Final = {
    ("list", Point.ACCEPT, Fault.REFUSE),
    ("watch", Point.HANDSHAKE, Fault.EXPIRED_CERTIFICATE),
    ("list", Point.BEFORE_HEADERS, Fault.FORBIDDEN),
    ("watch", Point.BEFORE_HEADERS, Fault.UNAUTHORIZED),
    ("list", Point.BETWEEN_PAGES, Fault.GONE),
    ("list", Point.BEFORE_HEADERS, Fault.TOO_MANY_REQUESTS),
    ("watch", Point.AFTER_HEADERS, Fault.INTERNAL_ERROR),
    ("watch", Point.BEFORE_HEADERS, Fault.HANG),
    ("watch", Point.MID_OBJECT, Fault.GARBAGE),
    ("watch", Point.BETWEEN_EVENTS, Fault.HANG),
}
OF_CONNECTION: Final = (Point.ACCEPT, Point.HANDSHAKE)
"""Before it is known what is asked."""
Case = tuple[str, Point, Fault]


class Row(NamedTuple):
    case: Case
    struck: int  # how often
    right_again_sec: float
    lists: int

    @property
    def good(self) -> bool:
        return self.struck > 0 and self.right_again_sec <= RIGHT_AGAIN_SEC


class FaultyCluster:
    """One daemon and one client in a pod, through all cases."""

    def __init__(self, kube: Cluster) -> None:
        self.kube = kube
        for number in range(PODS):
            kube.api.create("pods", pod(f"filler-{number}", node=NODE, size_bytes=2000))
        self.client: PodRaw = kube.pod("p0", gpu_core_limit="30", gpu_memory_limit="1Gi").client()
        kube.wait_limits("default/p0", core_percent=30)
        self._percent = 30

    def run(self, case: Case) -> Row:
        """Raises AssertionError if a limit is not kept, or the client is disconnected."""
        operation, point, fault = case
        api, name = self.kube.api, f"{point}/{fault}"
        before, lists = self._struck(name), self._lists()
        of_request = {} if point in OF_CONNECTION else {"operation": operation, "resource": "pods"}
        api.fault(point, fault, **of_request, seconds=1.0)
        self._provoke(operation)
        wait_until(lambda: self._struck(name) > before, f"{case} strikes")
        until = time.monotonic() + (LONG_SEC if case in LONG else SHORT_SEC)
        wait_until(lambda: time.monotonic() > until, "it has lasted")
        old, self._percent = self._percent, self._percent % 90 + 1
        api.annotate("default/p0", gpu_core_limit=str(self._percent))
        self.client.round_trip()  # it is still connected, and the daemon answers
        limits = self.kube.limits("default/p0")
        assert limits["core_percent"] in (old, self._percent), f"{case}: {limits}"
        assert limits["memory_bytes"] == 1 << 30, f"{case}: {limits}"
        struck = self._struck(name) - before
        api.clear_faults()
        cleared = time.monotonic()
        while self.client.told_percent != self._percent:
            assert time.monotonic() < cleared + PATIENCE_SEC, f"{case} is never right again"
            self.client.round_trip()  # takes in what was sent before
            time.sleep(0.002)
        right_again_sec = time.monotonic() - cleared
        wait_until(lambda: not self.kube.daemon.status()["problems"], f"all is well after {case}")
        return Row(case, struck, right_again_sec, self._lists() - lists)

    def assert_undisturbed(self) -> None:
        """All this time nobody was disconnected, and no callback of the daemon raised."""
        status = self.kube.daemon.status()
        assert sum(status["counters"]["disconnects"].values()) == 0
        assert not status["counters"]["events"].get("callback_raised")

    def _provoke(self, operation: str) -> None:
        """End the present watch: another one follows, or a list if its version has expired."""
        api, end = self.kube.api, Fault.GONE if operation == "list" else Fault.CUT
        api.fault(Point.BETWEEN_EVENTS, end, operation="watch", resource="pods", times=1)
        api.patch("pods", "filler-0", {"metadata": {"labels": {"touched": str(time.monotonic_ns())}}})

    def _struck(self, name: str) -> int:
        """As the double counts; while nobody listens, it sees nothing of it."""
        if name.endswith(f"/{Fault.REFUSE}"):
            return len(self.kube.daemon.status()["problems"])
        return int(self.kube.api.stats()["faults"].get(name, 0))

    def _lists(self) -> int:
        return sum(request["operation"] == "list" for request in self.kube.api.requests())


@contextmanager
def faulty_cluster(directory: Path) -> Iterator[FaultyCluster]:
    with cluster(directory, bounds=BOUNDS, api={"bookmark_sec": BOOKMARK_SEC}) as kube:
        yield FaultyCluster(kube)


def table(cases: Iterable[Case]) -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="nvshare-test-") as directory,
        faulty_cluster(Path(directory)) as faulty,
    ):
        for case in cases:
            yield faulty.run(case)
        faulty.assert_undisturbed()


def main() -> int:
    rows = []
    print(f"{'operation':10}{'point':16}{'fault':22}{'struck':>7}{'right again':>13}")
    for row in table(combinations()):
        operation, point, fault = row.case
        mark = "" if row.good else "  BAD"
        print(
            f"{operation:10}{point:16}{fault:22}{row.struck:7}{row.right_again_sec:11.2f} s{mark}", flush=True
        )
        rows.append(row)
    bad = sum(not row.good for row in rows)
    slowest = max(row.right_again_sec for row in rows)
    permitted = f"({RIGHT_AGAIN_SEC:g} s permitted)"
    print(f"{len(rows)} cases, {bad} bad; right again after {slowest:.2f} s at most {permitted}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
