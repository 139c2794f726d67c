"""What one daemon leaves to the next.

Rules:
1. What a tenant owes is written down without the present hold where its client will tell its busy time
   when it resumes: that is billed then.
2. An idle tenant is owed what it would be if it woke now, so idle time is no credit.
3. The books are written down one tenant at a time, so that others may go between. What a tenant owes and
   what its clients were billed is of one moment, counted back to the moment of the beginning. Who is there
   is of the last moment: who came meanwhile is written down then, with its tenant. So are the limits: the
   journal ends there, and what is in it is forgotten. What else changed meanwhile is in the next checkpoint,
   as if it had happened after this one.
4. Totals of pods that are gone are written down, of the last ones to leave. Those of tenants are, with what
   has not ended yet, except what their clients will tell when they resume. So what a client has told of its
   work is written down as far as it is in the totals of its pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from nvshare.core.account import NEVER
from nvshare.core.books.pod_figures import PodFigures
from nvshare.core.client import Client
from nvshare.core.gpu import Gpu
from nvshare.core.limits import LimitsBook
from nvshare.core.policy import lag
from nvshare.core.standing import RESUMING
from nvshare.core.tenant import Tenant
from nvshare.core.view.report import unbilled_ns, untold_part_ns
from nvshare.core.view.snapshot import Checkpoint, ClientRecord, DepartedRecord, PodRecord

if TYPE_CHECKING:
    from nvshare.core.scheduler import Scheduler

DEPARTED_SAVED: Final = 256
LAST_MOST: Final = 8
"""Tenants with newcomers that may be left to the last moment, which has no pause in it."""
PASSES_MOST: Final = 16
"""Over those who came meanwhile. However fast others come, the last moment comes, too."""


class Gathering:
    """One checkpoint in the making (rule 3): go through all ``steps``, ``finish``, take the ``result``."""

    __slots__ = (
        "_began_ns",
        "_books",
        "_clients",
        "_departed",
        "_lags",
        "_limits",
        "_look",
        "_on",
        "_present",
        "_seen",
        "_totals",
    )

    def __init__(self, books: Scheduler, look: Callable[[Gpu], int], now_ns: int) -> None:
        """``look`` brings a GPU's clock to the present moment, which it returns."""
        self._books = books
        self._look = look
        self._began_ns = now_ns
        self._seen: set[int] = set()
        self._clients: dict[int, ClientRecord] = {}
        self._lags: dict[tuple[str, str], int] = {}
        self._totals: dict[tuple[str, str], PodRecord] = {}
        self._limits: Mapping[str, LimitsBook] = {}  # by pod; none of them changes
        self._present: dict[str, frozenset[str]] = {}  # pods, by GPU
        self._departed: list[tuple[str, Mapping[str, PodFigures]]] = []  # by GPU; none of it changes
        self._on = True

    def steps(self) -> Iterator[None]:
        books = self._books
        for gpu in list(books.gpus.values()):
            for tenant in list(gpu.tenants.values()):
                self._write_down(gpu, tenant)
                yield
        for _ in range(PASSES_MOST):
            newcomers = self._newcomers()
            if len(newcomers) <= LAST_MOST:
                break
            for tenant, gpu in newcomers.items():
                self._write_down(gpu, tenant)
                yield

    def _newcomers(self) -> dict[Tenant, Gpu]:
        """Tenants that have got clients which are not written down."""
        clients = self._books.clients
        missing = [clients[key] for key in clients.keys() - self._seen]
        return {client.tenant: client.gpu for client in missing}

    def finish(self) -> None:
        """Who is there now, and all limits. Nothing else: what can be computed later is ``result``'s."""
        books = self._books
        for tenant, gpu in self._newcomers().items():
            self._write_down(gpu, tenant)
        self._present = {key: frozenset(gpu.tenants) for key, gpu in books.gpus.items()}
        for gpu in books.gpus.values():
            self._departed.append((gpu.key, gpu.figures.departed.figures()))
        self._limits = books.limits.books()
        self._on = books.on

    def result(self) -> Checkpoint:
        """After ``finish``, whenever and in whichever thread: it looks at the books no more."""
        present = self._present
        lags = [(pod, gpu, lag_ns) for (pod, gpu), lag_ns in self._lags.items() if pod in present[gpu]]
        return Checkpoint(
            clients=tuple(self._clients.values()),
            limits=tuple(
                (pod, source, *word)
                for pod, book in self._limits.items()
                for source, word in book.words().items()
            ),
            lags=tuple(lags),
            scheduling_on=self._on,
            taken_ns=self._began_ns,
            departed=tuple(self._last_to_leave()),
            present=tuple(record for record in self._totals.values() if record.pod in present[record.gpu]),
        )

    def _last_to_leave(self) -> list[DepartedRecord]:
        """Rule 4."""
        everybody = [
            (figures.left_ns, pod, gpu, figures)
            for gpu, departed in self._departed
            for pod, figures in departed.items()
        ]
        everybody.sort(key=lambda row: row[:3])
        last = everybody[-DEPARTED_SAVED:]
        return [DepartedRecord(pod, gpu, figures.totals()) for _, pod, gpu, figures in last]

    def _write_down(self, gpu: Gpu, tenant: Tenant) -> None:
        now_ns = self._look(gpu)
        possible_bytes = tenant.memory.possible_bytes()
        for client in tenant.clients.values():
            self._seen.add(client.key)
            billed_ns = _billed_busy_ns(client) if self._books.on else NEVER  # off, nothing is billed
            uncounted_ns = client.work.untallied_ns + gpu.returning.uncounted_ns(client.key)
            self._clients[client.key] = ClientRecord(
                client.key,
                tenant.pod,
                gpu.key,
                billed_ns,
                client.work.told_ns - uncounted_ns,
                client.work.heard_ns - uncounted_ns,  # it told no less time ago
                client.work.excess_ns,
                client.work.part_permille,
                tenant.memory.may_have_bytes(client.key),
                possible_bytes.get(client.key, 0),
            )
        self._totals[tenant.pod, gpu.key] = _pod_record(gpu, tenant, now_ns)
        lag_ns = _settled_lag_ns(gpu, tenant, now_ns)
        if tenant.limited and (lag_ns < 0 or tenant.standing != RESUMING or gpu.returning.waits):
            since_ns = (now_ns - self._began_ns) * tenant.percent // 100
            self._lags[tenant.pod, gpu.key] = lag_ns - since_ns


def _settled_lag_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """Rules 1 and 2."""
    lag_ns = lag.shown_lag_ns(gpu, tenant, now_ns)
    if _will_tell(tenant):
        lag_ns += tenant.account.expected_ns(now_ns)
    return lag_ns


def _will_tell(tenant: Tenant) -> bool:
    """Its clients tell what they did with the present hold when they resume."""
    holders = [client for client in tenant.clients.values() if client.holds]
    return bool(holders) and all(client.reports_busy for client in holders)


def _pod_record(gpu: Gpu, tenant: Tenant, now_ns: int) -> PodRecord:
    """Rule 4; the GPU's clock is at this moment."""
    figures, account, pace = tenant.figures, tenant.account, gpu.pace
    entitled_ns, due_weight = figures.entitled_ns, 0
    if tenant.tempo.active:
        entitled_ns = figures.entitled_until(pace.due_ns(tenant, now_ns), account.weight)
        due_weight = pace.effective(account.weight) if tenant.limited else account.weight
    throttled_ns = figures.throttled_ns
    if figures.ready_since_ns >= 0:
        due_for_ns = pace.clock.real_since(account.virtual_ns)
        throttled_ns += max(0, now_ns - figures.ready_since_ns - due_for_ns)
    totals = figures.totals()._replace(
        gpu_time_ns=figures.gpu_time_ns + _uncounted_work_ns(gpu, tenant, now_ns),
        billed_ns=figures.billed_ns + (0 if _will_tell(tenant) else unbilled_ns(gpu, tenant, now_ns)),
        entitled_ns=entitled_ns,
        throttled_ns=throttled_ns,
        swap_ns=figures.swap_until(now_ns),
    )
    return PodRecord(tenant.pod, gpu.key, totals, due_weight)


def _uncounted_work_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """What will be counted of the present hold of what was told of it, or held by who cannot tell."""
    told_ns = tenant.hold.worked_ns
    if tenant.hold.shared:
        told_ns = min(told_ns, tenant.account.held_since_settled(now_ns))
    return told_ns + untold_part_ns(gpu, tenant, now_ns)


def _billed_busy_ns(client: Client) -> int:
    """What its counter showed when it was last billed: since then, or since it was let through the gate."""
    hold = client.tenant.hold
    if hold.client is client:
        return hold.busy_mark_ns
    return client.hold_mark_ns if client.holds else client.busy_ns
