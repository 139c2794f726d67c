"""A copy of the books of all GPUs as of one moment, for exporters.

Rules:
1. A GPU's books are only copied in one step, because nobody is granted a turn meanwhile: a microsecond per
   client, or a few if the books are not cached. Everything that must be computed is computed from the copy,
   later and in steps; so are the figures of pods that are gone, which no longer change.
2. GPUs are copied one after another, with other work in between. Before a GPU's books or its clock change,
   it is copied. So all copies are of the moment at which the observation began, and their figures agree.
3. Figures of what has not ended yet are estimates that may turn out smaller when it ends. Code that shows
   them as counters must keep them from going back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from nvshare.core.account import CLOSED, WHOLE
from nvshare.core.books.histogram import HistogramCopy
from nvshare.core.books.pod_figures import HERE, PodFigures
from nvshare.core.client import Client
from nvshare.core.events import Event, Woken
from nvshare.core.gpu import Gpu
from nvshare.core.tenant_state import DRAINING
from nvshare.core.view.report import unreported_part_ns

ROWS_AT_ONCE: Final = 64
"""Rows that are unpacked in one step, which takes a fraction of a millisecond."""


class PodFiguresCopy(NamedTuple):
    """A pod's counters, without what has not ended yet."""

    gpu_time_ns: int
    billed_ns: int
    disputes: int
    claims_cut: int
    false_holds: int
    late_drains: int
    overlap_ns: int
    entitled_ns: int
    entitled_mark_ns: int
    throttled_ns: int
    swap_ns: int
    wait_counts: list[int]
    wait_sum_ns: int
    last_worked_ns: int
    left_ns: int
    ready_since_ns: int
    outside_since_ns: int

    @property
    def here(self) -> bool:
        return self.left_ns == HERE


class TenantCopy(NamedTuple):
    pod: str
    percent: int
    limited: bool
    share: bool
    active: bool
    outside: bool  # for want of memory
    pending_drop: bool
    unresponsive: bool
    queued: int
    holding: int
    virtual_ns: int
    weight: int
    pending_ns: int
    open_ns: int
    duty_percent: int
    unreported_ns: int  # of a hold whose clients cannot report what they do with it
    window_used_ns: int
    used_bytes: int
    limit_bytes: int
    clients: list[tuple[int, int, int]]  # those that are connected: id, used and peak bytes
    figures: PodFiguresCopy


class GpuCopy(NamedTuple):
    """One GPU at one moment."""

    gpu: str
    number: int
    taken_ns: int
    window_ns: int
    safe_limit_bytes: int
    stranger_bytes: int
    running_bytes: int
    peak_running_bytes: int
    overloaded: bool
    turn_ns: int
    virtual_ns: int
    slipped_ns: int
    numerator: int
    denominator: int
    drops: tuple[tuple[str, int], ...]
    overlap_ns: int
    figures: dict[str, int | HistogramCopy]  # as the catalog of metrics names them
    awaits_clients: bool  # clients of the previous daemon have not reported yet
    forget_before_ns: int
    raw_tenants: list[tuple[Any, ...]]
    raw_departed: Mapping[str, PodFigures]
    tenants: list[TenantCopy]  # these two are filled by ``unpacking``
    departed: list[tuple[str, PodFiguresCopy]]

    def histogram(self, name: str) -> HistogramCopy:
        found = self.figures[name]
        assert isinstance(found, HistogramCopy), name
        return found

    # ---- what is computed from the copy ------------------------------------------------------

    def held_ns(self, tenant: TenantCopy) -> int:
        """Held since the last settlement."""
        return tenant.pending_ns + (self.taken_ns - tenant.open_ns if tenant.open_ns != CLOSED else 0)

    def expected_bill_ns(self, tenant: TenantCopy) -> int:
        """What that is expected to be billed."""
        return self.held_ns(tenant) * tenant.duty_percent // 100

    def effective_percent(self, tenant: TenantCopy) -> float:
        return tenant.percent * self.numerator / self.denominator if tenant.limited else 100.0

    def window_used_ns(self, tenant: TenantCopy) -> int:
        running_ns = self.expected_bill_ns(tenant) if tenant.limited else tenant.unreported_ns
        return min(self.window_ns, tenant.window_used_ns + running_ns)

    def window_limit_ns(self, tenant: TenantCopy) -> int:
        return int(self.window_ns * self.effective_percent(tenant) / 100)

    def debt_ns(self, tenant: TenantCopy) -> int:
        """How far what was billed is ahead of what was due."""
        if not tenant.limited or tenant.share:
            return 0
        owed_ns = (self.virtual_ns - tenant.virtual_ns) * tenant.weight // WHOLE
        return max(0, self.expected_bill_ns(tenant) - owed_ns)

    def throttled(self, tenant: TenantCopy) -> bool:
        """It wants the GPU, and is held back by its own quota: as in ``explain.throttled``."""
        return (
            tenant.queued > 0
            and tenant.limited
            and not tenant.share
            and tenant.holding == 0
            and not tenant.outside
            and tenant.virtual_ns > self.virtual_ns
        )

    def queued_clients(self) -> tuple[int, int, int]:
        """How many run, wait for their turn, and wait for memory or quota."""
        running = waiting = outside = 0
        for tenant in self.tenants:
            running += tenant.holding
            if tenant.outside or self.throttled(tenant):
                outside += tenant.queued
            else:
                waiting += tenant.queued
        return running, waiting, outside

    def gpu_time_ns(self, tenant: TenantCopy) -> int:
        return tenant.figures.gpu_time_ns + tenant.unreported_ns

    def billed_ns(self, tenant: TenantCopy) -> int:
        """What counts against its quota, including the current hold. Without a quota, its GPU time."""
        running_ns = self.expected_bill_ns(tenant) if tenant.limited else tenant.unreported_ns
        return tenant.figures.billed_ns + running_ns

    def entitled_ns(self, tenant: TenantCopy) -> int:
        figures = tenant.figures
        if not tenant.active:
            return figures.entitled_ns
        due_ns = self.virtual_ns + self.slipped_ns if tenant.limited else self.taken_ns
        return figures.entitled_ns + (due_ns - figures.entitled_mark_ns) * tenant.weight // WHOLE

    def throttled_ns(self, tenant: TenantCopy) -> int:
        figures = tenant.figures
        if figures.ready_since_ns < 0:
            return figures.throttled_ns
        behind_ns = max(0, self.virtual_ns - tenant.virtual_ns) * self.denominator // self.numerator
        return figures.throttled_ns + max(0, self.taken_ns - figures.ready_since_ns - behind_ns)

    def swap_ns(self, figures: PodFiguresCopy) -> int:
        waiting_ns = self.taken_ns - figures.outside_since_ns if figures.outside_since_ns >= 0 else 0
        return figures.swap_ns + waiting_ns

    def last_worked_ns(self, tenant: TenantCopy) -> int:
        """When the pod last worked; -1 if it never did."""
        return self.taken_ns if tenant.unreported_ns else tenant.figures.last_worked_ns


def observe(gpu: Gpu, forget_before_ns: int, now_ns: int) -> GpuCopy:
    """The GPU's books, without pods that left before then; its clock has been brought to now."""
    figures, pace, resident_set = gpu.figures, gpu.pace, gpu.resident_set
    figures.departed.expire(forget_before_ns)
    clock = pace.clock
    return GpuCopy(
        gpu.key,
        gpu.index,
        now_ns,
        gpu.settings.compute_window_ns,
        gpu.safe_limit_bytes,
        resident_set.stranger_bytes,
        gpu.occupants.running_bytes,
        gpu.occupants.peak_bytes,
        resident_set.overloaded,
        pace.turn_ns,
        clock.virtual_ns,
        pace.slipped_ns,
        clock.numerator,
        clock.denominator,
        tuple((reason.value, count) for reason, count in figures.drops.items()),
        figures.overlap_until(now_ns),
        figures.by_name(),
        gpu.resuming.waits,
        forget_before_ns,
        _tenants(gpu, now_ns),
        figures.departed.figures(),
        [],
        [],
    )


class Observation:
    """Copies of the books of all GPUs at one moment. The caller that began it must end it."""

    __slots__ = ("_copies", "_forget_before_ns", "_move_clock", "_now_ns", "_uncopied", "_under_way")

    def __init__(
        self,
        gpus: Iterable[Gpu],
        bring: Callable[[Gpu, int], None],
        forget_before_ns: int,
        now_ns: int,
        under_way: Observations,
    ) -> None:
        """``bring`` moves a GPU's clock to a moment."""
        self._under_way = under_way
        under_way.open.append(self)
        self._uncopied = {gpu.key: gpu for gpu in gpus}
        self._copies: dict[str, GpuCopy | None] = dict.fromkeys(self._uncopied)
        self._move_clock = bring
        self._forget_before_ns = forget_before_ns
        self._now_ns = now_ns

    def before_change(self, gpu: Gpu) -> None:
        """Its books are about to be other than they were (rule 2)."""
        if self._uncopied.pop(gpu.key, None) is not None:
            self._move_clock(gpu, self._now_ns)
            self._copies[gpu.key] = observe(gpu, self._forget_before_ns, self._now_ns)

    def copying(self) -> Iterator[None]:
        """A GPU a step. Copying moves its clock, so those that began before are served before."""
        while self._uncopied:
            self._under_way.before_change(next(iter(self._uncopied.values())))
            yield None

    def end(self) -> None:
        self._under_way.open.remove(self)

    def copies(self) -> list[GpuCopy]:
        """Those that are made, in the order in which the GPUs are known."""
        return [copy for copy in self._copies.values() if copy is not None]


class Observations:
    """The observations in progress, oldest first."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open: list[Observation] = []

    def before_change(self, gpu: Gpu) -> None:
        for observation in self.open:
            observation.before_change(gpu)

    def before_event(self, event: Event, gpus: Mapping[str, Gpu], clients: Mapping[int, Client]) -> None:
        """An event changes the GPU that it names, or that of its client; otherwise it may change all."""
        if isinstance(event, Woken):
            return  # deadlines call ``before_change`` one by one
        client_key: int | None = getattr(event, "client", None)
        gpu_key: str | None = getattr(event, "gpu", None)
        client = None if client_key is None else clients.get(client_key)
        if client is not None:
            self.before_change(client.gpu)
        if gpu_key is not None and gpu_key in gpus:
            self.before_change(gpus[gpu_key])
        if client_key is None and gpu_key is None:
            for gpu in gpus.values():
                self.before_change(gpu)


def _tenants(gpu: Gpu, now_ns: int) -> list[tuple[Any, ...]]:
    """The fields of TenantCopy and PodFiguresCopy as plain tuples, which take half the time."""
    rows: list[tuple[Any, ...]] = []
    for tenant in gpu.tenants.values():
        account, memory = tenant.account, tenant.memory
        clients = []
        for key, share in memory.shares.items():
            if share.connected:
                clients.append((key, share.used_bytes, share.peak_bytes))
        rows.append(
            (
                tenant.pod,
                tenant.percent,
                tenant.limited,
                tenant.share,
                tenant.tempo.active,
                tenant.figures.outside_since_ns >= 0,
                tenant.state >= DRAINING,
                tenant.habits.unresponsive,
                tenant.queued_clients,
                tenant.gate.holding,
                account.virtual_ns,
                account.weight,
                account.pending_ns,
                account.open_ns,
                account.duty_percent,
                unreported_part_ns(gpu, tenant, now_ns),
                tenant.window.used_ns(now_ns),
                tenant.footprint.used_bytes,
                memory.limit_bytes,
                clients,
                _pod_figures(tenant.figures),
            )
        )
    return rows


def _pod_figures(figures: PodFigures) -> tuple[Any, ...]:
    wait = figures.lock_wait
    return (
        figures.gpu_time_ns,
        figures.billed_ns,
        figures.disputes,
        figures.claims_cut,
        figures.false_holds,
        figures.late_drains,
        figures.overlap_ns,
        figures.entitled_ns,
        figures.entitled_mark_ns,
        figures.throttled_ns,
        figures.swap_ns,
        wait.counts[:],
        wait.sum_ns,
        figures.last_worked_ns,
        figures.left_ns,
        figures.ready_since_ns,
        figures.outside_since_ns,
    )


def unpacking(copy: GpuCopy) -> Iterator[None]:
    """Fill in the copy's tenants and departed pods, in steps between which other work can run."""
    rows = copy.raw_tenants
    for start in range(0, len(rows), ROWS_AT_ONCE):
        for row in rows[start : start + ROWS_AT_ONCE]:
            copy.tenants.append(TenantCopy._make((*row[:-1], PodFiguresCopy._make(row[-1]))))
        yield None
    gone = list(copy.raw_departed.items())
    for start in range(0, len(gone), ROWS_AT_ONCE):
        for pod, figures in gone[start : start + ROWS_AT_ONCE]:
            if figures.left_ns >= copy.forget_before_ns:
                copy.departed.append((pod, PodFiguresCopy._make(_pod_figures(figures))))
        yield None


def unpack(copy: GpuCopy) -> GpuCopy:
    """All steps at once."""
    for _ in unpacking(copy):
        pass
    return copy
