"""The checkpoint: what one daemon leaves to the next.

Rules:
1. If a tenant's client will report its busy time when it resumes, its debt is recorded without the current
   hold, which is billed then.
2. An idle tenant is owed what it would be if it woke now, so idle time gives no credit.
3. The books are recorded one tenant at a time, so that other work can run in between. The debt of a tenant
   and the bills of its clients are of one moment, counted back to the start of the checkpoint. The list of
   clients is of the last moment: a client that came meanwhile is recorded then, with its tenant. So are the
   limits: the journal ends there, and its entries are dropped. Other changes in the meantime are in the next
   checkpoint, as if they had happened after this one.
4. Totals are recorded for the last pods to leave, and for tenants, including what has not ended yet, except
   what their clients will report when they resume. So a client's reported work is recorded as far as it is in
   the totals of its pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from nvshare.core.account import NEVER
from nvshare.core.books.pod_figures import PodFigures
from nvshare.core.client import Client
from nvshare.core.gpu import Gpu
from nvshare.core.limit_sources import PodLimitSources
from nvshare.core.policy import lag
from nvshare.core.tenant import Tenant
from nvshare.core.tenant_state import RESUMING
from nvshare.core.view.report import unreported_part_ns
from nvshare.core.view.snapshot import Checkpoint, ClientRecord, DepartedRecord, PodRecord

if TYPE_CHECKING:
    from nvshare.core.scheduler import Scheduler

DEPARTED_SAVED: Final = 256
LAST_MOST: Final = 8
"""Tenants with new clients that may be left to the last step, which cannot be interrupted."""
PASSES_MOST: Final = 16
"""Passes over new clients. The last step comes, however fast others arrive."""


class Gathering:
    """One checkpoint in the making (rule 3): go through all ``steps``, ``finish``, take the ``result``."""

    __slots__ = (
        "_advance_clock",
        "_began_ns",
        "_billed_away",
        "_books",
        "_clients",
        "_departed",
        "_lags",
        "_limits",
        "_on",
        "_present",
        "_seen",
        "_totals",
    )

    def __init__(self, books: Scheduler, advance_clock: Callable[[Gpu], int], now_ns: int) -> None:
        """``advance_clock`` brings a GPU's clock to the current moment and returns it."""
        self._books = books
        self._advance_clock = advance_clock
        self._began_ns = now_ns
        self._seen: set[int] = set()
        self._clients: dict[int, ClientRecord] = {}
        self._lags: dict[tuple[str, str], int] = {}
        self._totals: dict[tuple[str, str], PodRecord] = {}
        self._billed_away: dict[tuple[str, str], int] = {}
        self._limits: Mapping[str, PodLimitSources] = {}  # by pod; none of them changes
        self._present: dict[str, frozenset[str]] = {}  # pods, by GPU
        self._departed: list[tuple[str, Mapping[str, PodFigures]]] = []  # by GPU; none of it changes
        self._on = True

    def steps(self) -> Iterator[None]:
        books = self._books
        for gpu in list(books.gpus.values()):
            for tenant in list(gpu.tenants.values()):
                self._record(gpu, tenant)
                yield
        for _ in range(PASSES_MOST):
            newcomers = self._newcomers()
            if len(newcomers) <= LAST_MOST:
                break
            for tenant, gpu in newcomers.items():
                self._record(gpu, tenant)
                yield

    def _newcomers(self) -> dict[Tenant, Gpu]:
        """Tenants with clients that are not recorded yet."""
        clients = self._books.clients
        missing = [clients[key] for key in clients.keys() - self._seen]
        return {client.tenant: client.gpu for client in missing}

    def finish(self) -> None:
        """Record the current clients and limits. What can be computed later is left to ``result``."""
        books = self._books
        for tenant, gpu in self._newcomers().items():
            self._record(gpu, tenant)
        self._present = {key: frozenset(gpu.tenants) for key, gpu in books.gpus.items()}
        for gpu in books.gpus.values():
            self._departed.append((gpu.key, gpu.figures.departed.figures()))
        self._limits = books.limits.by_pod()
        self._on = books.on

    def result(self) -> Checkpoint:
        """After ``finish``, at any time and in any thread: it does not read the books."""
        present = self._present
        lags = [(pod, gpu, lag_ns) for (pod, gpu), lag_ns in self._lags.items() if pod in present[gpu]]
        return Checkpoint(
            clients=tuple(self._clients.values()),
            limits=tuple(
                (pod, source, *stated)
                for pod, sources in self._limits.items()
                for source, stated in sources.by_source().items()
            ),
            lags=tuple(lags),
            scheduling_on=self._on,
            taken_ns=self._began_ns,
            departed=tuple(self._last_to_leave()),
            present=tuple(record for record in self._totals.values() if record.pod in present[record.gpu]),
            billed_away=tuple((pod, gpu, ns) for (pod, gpu), ns in self._billed_away.items() if ns),
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

    def _record(self, gpu: Gpu, tenant: Tenant) -> None:
        now_ns = self._advance_clock(gpu)
        possible_bytes = tenant.memory.possible_bytes()
        for client in tenant.clients.values():
            self._seen.add(client.key)
            billed_ns = _billed_busy_ns(client) if self._books.on else NEVER  # off, nothing is billed
            uncounted_ns = client.work.untallied_ns + gpu.resuming.uncounted_ns(client.key)
            self._clients[client.key] = ClientRecord(
                client.key,
                tenant.pod,
                gpu.key,
                billed_ns,
                client.work.reported_ns - uncounted_ns,
                client.work.heard_ns - uncounted_ns,  # it reported at least that long ago
                client.work.excess_ns,
                client.work.part_permille,
                tenant.memory.may_have_bytes(client.key),
                possible_bytes.get(client.key, 0),
            )
        self._totals[tenant.pod, gpu.key] = _pod_record(gpu, tenant, now_ns)
        self._billed_away[tenant.pod, gpu.key] = gpu.resuming.billed_ns(tenant.pod)
        lag_ns = _settled_lag_ns(gpu, tenant, now_ns)
        if tenant.limited and (lag_ns < 0 or tenant.state != RESUMING or gpu.resuming.waits):
            since_ns = (now_ns - self._began_ns) * tenant.percent // 100
            self._lags[tenant.pod, gpu.key] = lag_ns - since_ns


def _settled_lag_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """Rules 1 and 2."""
    lag_ns = lag.shown_lag_ns(gpu, tenant, now_ns)
    if _will_report(tenant):
        lag_ns += tenant.account.expected_ns(now_ns)
    return lag_ns


def _will_report(tenant: Tenant) -> bool:
    """Its clients will report the current hold when they resume."""
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
    uncounted_ns = unbilled_ns = _uncounted_work_ns(gpu, tenant, now_ns)
    if tenant.limited:
        unbilled_ns = 0 if _will_report(tenant) else account.expected_ns(now_ns)
    totals = figures.totals()._replace(
        gpu_time_ns=figures.gpu_time_ns + uncounted_ns,
        billed_ns=figures.billed_ns + unbilled_ns,
        entitled_ns=entitled_ns,
        throttled_ns=throttled_ns,
        swap_ns=figures.swap_until(now_ns),
    )
    return PodRecord(tenant.pod, gpu.key, totals, due_weight)


def _uncounted_work_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """What will be counted of the current hold: what was reported, or held by clients that cannot report."""
    reported_ns = tenant.hold.worked_ns
    if tenant.hold.shared:
        reported_ns = min(reported_ns, tenant.account.held_since_settled(now_ns))
    return reported_ns + unreported_part_ns(gpu, tenant, now_ns)


def _billed_busy_ns(client: Client) -> int:
    """Its busy counter when it was last billed, or when its hold began."""
    hold = client.tenant.hold
    if hold.client is client:
        return hold.busy_mark_ns
    return client.hold_mark_ns if client.holds else client.busy_ns
