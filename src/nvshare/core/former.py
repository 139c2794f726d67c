"""What one daemon leaves to the next, and what the next makes of it.

Rules:
1. What was due while no daemon was there is due still; who had the GPU meanwhile tells so and owes it.
2. Who comes back only after the next restart is owed, and owes, what time has left of it: a debt is repaid by
   time until it is claimed, a credit does not grow.
3. Nothing exclusive is granted on a GPU until those who were on it are back, dead, or late.
4. The books are written down one tenant at a time, so that others may go between. What a tenant owes and what
   its clients were billed is of one moment, counted back to the moment of the beginning. Who is there is of
   the last moment: who came meanwhile is written down then, with its tenant. What else changed meanwhile is
   in the next checkpoint, as if it had happened after this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from nvshare.core.gpu import SECOND, Gpu
from nvshare.core.snapshot import Checkpoint, ClientRecord
from nvshare.core.tenant import Client, Tenant

if TYPE_CHECKING:
    from nvshare.core.scheduler import Scheduler

RESUME_WAIT_NS: Final = 5 * SECOND
Lag = tuple[str, str, int]  # pod, GPU, nanoseconds
Limit = tuple[str, str, int | None, int | None, bool | None]  # pod, source, and its word


class FormerLife:
    """What is left of the last daemon's books, until it is claimed."""

    __slots__ = ("_lags", "_restored_ns")

    def __init__(self) -> None:
        self._lags: dict[tuple[str, str], int] = {}
        self._restored_ns = 0

    def remember(self, scheduler: Scheduler, checkpoint: Checkpoint, now_ns: int) -> None:
        self._restored_ns = now_ns
        away_ns = max(0, now_ns - checkpoint.taken_ns)
        for pod, gpu_key, lag_ns in checkpoint.lags:
            if gpu_key in scheduler.gpus:
                due_ns = away_ns * scheduler.limits_of(pod).core_percent // 100
                self._lags[pod, gpu_key] = lag_ns + due_ns
        for record in checkpoint.clients:
            gpu = scheduler.gpus.get(record.gpu)
            if gpu is not None:
                gpu.resuming[record.client] = record.billed_busy_ns
                gpu.resume_deadline_ns = now_ns + RESUME_WAIT_NS

    def claim(self, pod: str, gpu_key: str, percent: int, now_ns: int) -> int:
        lag_ns = self._left_ns(pod, gpu_key, percent, now_ns)
        self._lags.pop((pod, gpu_key), None)
        return lag_ns

    def unclaimed(self) -> list[tuple[str, str]]:
        """Whose lag it has, by pod and GPU."""
        return list(self._lags)

    def unclaimed_ns(self, pod: str, gpu: Gpu, percent: int, now_ns: int) -> int | None:
        """What the next daemon must know of a pod that has not come back."""
        lag_ns = self._left_ns(pod, gpu.key, percent, now_ns)
        return lag_ns if lag_ns < 0 or gpu.resuming else None

    def _left_ns(self, pod: str, gpu_key: str, percent: int, now_ns: int) -> int:
        lag_ns = self._lags.get((pod, gpu_key), 0)
        if lag_ns >= 0:
            return lag_ns
        return min(0, lag_ns + (now_ns - self._restored_ns) * percent // 100)


class Gathering:
    """One checkpoint in the making (rule 4): go through all ``steps``, ``finish``, take the ``result``."""

    __slots__ = (
        "_began_ns",
        "_books",
        "_clients",
        "_lags",
        "_limits",
        "_look",
        "_on",
        "_present",
        "_seen",
        "_still_unclaimed",
        "_unclaimed",
    )

    def __init__(self, books: Scheduler, look: Callable[[Gpu], int], now_ns: int) -> None:
        """``look`` brings a GPU's clock to the present moment, which it returns."""
        self._books = books
        self._look = look
        self._began_ns = now_ns
        self._seen: set[int] = set()
        self._clients: dict[int, ClientRecord] = {}
        self._lags: dict[tuple[str, str], int] = {}
        self._limits: list[Limit] = []
        self._unclaimed: list[Lag] = []
        self._present: dict[str, frozenset[str]] = {}  # pods, by GPU
        self._still_unclaimed: frozenset[tuple[str, str]] = frozenset()
        self._on = True

    def steps(self) -> Iterator[None]:
        books, former = self._books, self._books.former
        for gpu in list(books.gpus.values()):
            for tenant in list(gpu.tenants.values()):
                self._write_down(gpu, tenant)
                yield
        for pod, gpu_key in former.unclaimed():
            percent = books.limits_of(pod).core_percent
            lag_ns = former.unclaimed_ns(pod, books.gpus[gpu_key], percent, self._began_ns)
            if lag_ns is not None:
                self._unclaimed.append((pod, gpu_key, lag_ns))
            yield
        for pod in books.limited_pods():
            self._limits += [(pod, source, *word) for source, word in books.words_on(pod).items()]
            yield

    def finish(self) -> None:
        """Who is there now. Nothing else: what can be computed later is ``result``'s."""
        books = self._books
        for key in books.clients.keys() - self._seen:
            client = books.clients[key]
            self._write_down(client.gpu, client.tenant)
        self._present = {key: frozenset(gpu.tenants) for key, gpu in books.gpus.items()}
        self._still_unclaimed = frozenset(books.former.unclaimed())
        self._on = books.on

    def result(self) -> Checkpoint:
        """After ``finish``, whenever and in whichever thread: it looks at the books no more."""
        present, unclaimed = self._present, self._still_unclaimed
        lags = [(pod, gpu, lag_ns) for (pod, gpu), lag_ns in self._lags.items() if pod in present[gpu]]
        lags += [lag for lag in self._unclaimed if lag[:2] in unclaimed]
        return Checkpoint(
            clients=tuple(self._clients.values()),
            limits=tuple(self._limits),
            lags=tuple(lags),
            scheduling_on=self._on,
            taken_ns=self._began_ns,
        )

    def _write_down(self, gpu: Gpu, tenant: Tenant) -> None:
        now_ns = self._look(gpu)
        for client in tenant.clients.values():
            self._seen.add(client.key)
            if client.connected:
                self._clients[client.key] = ClientRecord(
                    client.key, tenant.pod, gpu.key, _billed_busy_ns(client)
                )
        if tenant.limited:
            since_ns = (now_ns - self._began_ns) * tenant.percent // 100
            self._lags[tenant.pod, gpu.key] = _settled_lag_ns(gpu, tenant, now_ns) - since_ns


def _settled_lag_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """Without the present hold where its client will tell its busy time when it resumes."""
    lag_ns = tenant.account.lag_ns(gpu.clock, now_ns)
    client = tenant.hold_client
    if client is not None and client.reports_busy and not tenant.hold_shared:
        lag_ns += tenant.account.expected_ns(now_ns)
    return lag_ns


def _billed_busy_ns(client: Client) -> int:
    tenant = client.tenant
    return tenant.busy_mark_ns if tenant.hold_client is client else client.busy_ns
