"""The bounds of a lag: how much a tenant may be owed, and how much it may owe. Defined only here.

Rules:
1. A bill always counts. Apart from bills a lag changes only here, on six occasions, by one rule each:
   ``wake``: at most one turn of credit, since no time is owed for a period in which it wanted nothing; and
   before its first turn a tenant takes over the debt of its owner's earlier tenants (``books.owner_debts``);
   ``resume``: one turn, and if it waited all the time at most what it was due in AWAY_MOST_NS;
   ``end_hold``: no more credit than it had when the hold began, or a turn: time held and not used is not owed
   later;
   ``give_back``: clients that cannot report are billed for gaps between their kernels, too. What they held
   and did not use according to NVML is credited, up to an eighth of the bill: more is not such a gap. Not if
   quotas fill the GPU: a tenant with many gaps would get its due at the expense of one with few;
   ``settle``: time that nobody else wanted is not owed back: what a ``share``, or the group of tenants
   without a quota, used beyond its due while nobody outside wanted it;
   ``begin_slices``: tenants without a quota have no lag when the first one has to wait outside. From then on
   everything that is used counts, since somebody wants it, until ``end_slices``, which clears most of the
   group's debt.
2. The sum of what is owed to waiting tenants is bounded by what can be repaid: a turn each, a slice for each
   one that waits outside, and the cost of drains that took longer than a turn, until it is repaid: even if
   the tenant that caused it is gone, the others are owed that time. No single tenant is owed more than that
   and half a second; the excess slips, for all alike.
3. A quota is a cap: a tenant ahead of the clock waits. While somebody waits outside, quotas are kept over
   slices instead of turns, so a tenant may be a slice ahead.

Hence, over any window in which a tenant is backlogged, its share is its due less its part of what slipped
(the time that nobody could have), give or take the difference of its lag at the two ends: two turns and a
drain, or two slices while memory is exchanged. Tenants that were owed more at the beginning go first.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import WHOLE, Account
from nvshare.core.books.pace import SECOND
from nvshare.core.gpu import Gpu
from nvshare.core.tenant import Tenant
from nvshare.core.tenant_state import IDLE

OVERRUN_TURNS: Final = 4
AWAY_MOST_NS: Final = 10 * SECOND
"""A client waits no longer than that for a daemon that is away; then it runs ungated."""
REPAYABLE_FREE: Final = 2 * WHOLE // 100
REPAYABLE_NS: Final = 5 * SECOND
BREATH_NS: Final = SECOND // 500
"""Between the release of an older client and its next request, it does not count as idle."""
LOST_MOST_NS: Final = 20 * SECOND
"""The cost of drains longer than a turn is owed to waiting tenants, up to this much."""
DEBT_TURNS: Final = 2
"""A tenant further ahead than this many turns explain did not let go in time; its owner is responsible."""
GIVEN_BACK_MOST: Final = 8
"""The largest part of the bill, as one in so many."""
MISJUDGED_MOST_NS: Final = SECOND
"""NVML's samples are not taken at the moments of bills: an excess is offset by the next sample."""
CAPPED_AT_ONCE: Final = 64
"""Only a few can be owed that much: all together are owed no more than the time that passed."""
ALONE_NS: Final = SECOND // 2
"""What one tenant may be owed beyond the sum for all, offset by others that are ahead."""


# ---- the occasions -------------------------------------------------------------------------


def wake(gpu: Gpu, tenant: Tenant) -> None:
    """Back from idle: at most one turn of credit; debt stays."""
    pace, account = gpu.pace, tenant.account
    if tenant.limited:
        account.rejoin(pace.slipped_ns)
        clock = pace.clock
        if tenant.habits.turns == 0 and tenant.owner != tenant.pod:
            account.begin_at(gpu.owner_debts.begins_at(tenant.owner, pace.slipped_ns))
    elif gpu.resident_set.outside:
        clock = pace.fair
    else:
        return  # ``begin_slices`` clears the lag of tenants without a quota
    if pace.clock.at_ns - tenant.habits.served_ns <= BREATH_NS and tenant.queues_blindly:
        return  # it has just let go, and cannot ask again with its release
    if account.virtual_ns < clock.virtual_ns:
        account.cap_lag(turn_ns(gpu, tenant), clock)


def wake_rest(gpu: Gpu) -> None:
    """The first tenant of the group joins the queue."""
    pace = gpu.pace
    if not gpu.queue.free and not gpu.occupants.together:
        pace.rest.cap_lag(pace.rest_turn_ns, pace.clock)


def level_rest(gpu: Gpu) -> None:
    """The group gets a turn because it has waited too long, not because it was owed one."""
    gpu.pace.rest.cap_lag(0, gpu.pace.clock)


def resume(gpu: Gpu, tenant: Tenant, waited: bool) -> None:
    """A process is back, and its bill for the time between has been charged."""
    pace = gpu.pace
    if tenant.limited:
        tenant.account.rejoin(pace.slipped_ns)
    most_ns = turn_ns(gpu, tenant)
    if waited:
        most_ns += AWAY_MOST_NS * tenant.account.weight // WHOLE
    tenant.account.cap_lag(most_ns, pace.clock_of(tenant))


def end_hold(gpu: Gpu, tenant: Tenant) -> None:
    account, clock = tenant.account, gpu.pace.clock
    ahead_ns = account.virtual_ns - clock.virtual_ns
    if tenant.owner != tenant.pod and ahead_ns > DEBT_TURNS * tenant.tempo.ahead_ns:
        gpu.owner_debts.note(tenant.owner, account.virtual_ns, gpu.pace.slipped_ns, clock.virtual_ns)
    if account.virtual_ns < clock.virtual_ns:
        most_ns = turn_ns(gpu, tenant)
        lag_ns = tenant.hold.lag_ns
        account.cap_lag(most_ns if most_ns > lag_ns else lag_ns, clock)


def give_back(gpu: Gpu, tenant: Tenant, billed_ns: int, worked_ns: int) -> None:
    """How long the card worked for a tenant while it was billed ``billed_ns``."""
    habits = tenant.habits
    unused_ns = billed_ns - worked_ns - habits.misjudged_ns
    habits.misjudge(min(max(0, -unused_ns), MISJUDGED_MOST_NS))
    unused_ns = min(unused_ns, billed_ns // GIVEN_BACK_MOST)
    if unused_ns > 0 and gpu.pace.free_weight() >= REPAYABLE_FREE:
        seated = gpu.unseat(tenant)
        tenant.account.give_back(unused_ns)
        if seated:
            gpu.reseat(tenant)


def settle(gpu: Gpu, tenant: Tenant, until_ns: int) -> None:
    """After a bill of a tenant that may borrow: what it used while somebody outside waited counts."""
    pace, account, tempo = gpu.pace, tenant.account, tenant.tempo
    pace.fit_tenant(tenant)
    if account.virtual_ns > pace.clock.virtual_ns + tempo.ahead_ns:
        _forgive(gpu, account, tempo.turn_ns, until_ns, wanted_outside_ns(gpu, until_ns))


def begin_slices(gpu: Gpu) -> None:
    """All are settled. Tenants without a quota have no lag: until now none had to give way to another."""
    fair = gpu.pace.fair
    for tenant in gpu.tenants.values():
        if not tenant.limited:
            tenant.account.owe(0, fair)


def end_slices(gpu: Gpu) -> None:
    """Nobody waits outside any more: what the group had in slices beyond its minimum is not owed."""
    pace = gpu.pace
    pace.rest.cap_debt(pace.allowance(pace.rest.weight, OVERRUN_TURNS * pace.rest_turn_ns), pace.clock)


def settle_rest(gpu: Gpu, until_ns: int) -> None:
    """After a bill of the group, as far as it ran because it was owed time."""
    pace, occupants = gpu.pace, gpu.occupants
    if pace.rest.virtual_ns > pace.clock.virtual_ns + pace.rest_ahead_ns and not gpu.resident_set.outside:
        by_right_until_ns = until_ns if occupants.entitled else occupants.turn_started_ns
        _forgive(gpu, pace.rest, pace.rest_turn_ns, by_right_until_ns)


def _forgive(gpu: Gpu, account: Account, turn_ns: int, until_ns: int, wanted_ns: int = 0) -> None:
    """Reduce the debt of an account that is ahead by more than a turn; a turn is always owed back."""
    pace = gpu.pace
    length_ns = min(until_ns - gpu.occupants.turn_started_ns, OVERRUN_TURNS * turn_ns)
    length_ns = max(turn_ns, length_ns)
    length_ns = max(wanted_ns, length_ns)  # pairwise, which the compiled core does without a call
    account.cap_debt(pace.allowance(account.weight, length_ns), pace.clock)


def slip(gpu: Gpu) -> None:
    """What cannot be repaid is not owed: hand-overs take time that no quota can have (rule 2)."""
    owed, weight = _owed(gpu)
    if gpu.pace.lost_ns:
        gpu.pace.repaid(owed // WHOLE - _repayable_ns(gpu, lost=False))
    if owed <= (len(gpu.queue.ready) + 1) * gpu.pace.turn_ns * WHOLE:
        return  # nearly always
    most_ns = _repayable_ns(gpu)
    if owed > most_ns * WHOLE:
        _cap_each(gpu, most_ns + ALONE_NS)
        owed, weight = _owed(gpu)
        excess = owed - most_ns * WHOLE
        if excess > 0:
            gpu.pace.slip(excess // weight)


def _owed(gpu: Gpu) -> tuple[int, int]:
    """Owed to all waiting tenants, times WHOLE; and the sum of their weights."""
    queue, pace = gpu.queue, gpu.pace
    clock_ns, rest = pace.clock.virtual_ns, pace.rest
    owed = queue.weight * clock_ns - queue.weighted_ns
    if not queue.free:
        return owed, queue.weight
    return owed + rest.weight * (clock_ns - rest.virtual_ns), queue.weight + rest.weight


def _repayable_ns(gpu: Gpu, lost: bool = True) -> int:
    """What waiting tenants may be owed together; with or without what was lost to late drains."""
    outside = len(gpu.resident_set.outside)
    most_ns = (len(gpu.queue.ready) + outside + 1) * gpu.pace.turn_ns
    most_ns += gpu.queue.drains_ns  # the others wait longer while one drains longer than a turn
    if outside:
        most_ns += (outside + 1) * gpu.slice_ns()
    if gpu.pace.free_weight() >= REPAYABLE_FREE:
        most_ns += REPAYABLE_NS  # a GPU with room can repay what an outage cost
    if lost:
        most_ns += gpu.pace.lost_ns
    return most_ns


def _cap_each(gpu: Gpu, most_ns: int) -> None:
    """No single tenant is owed much more than all together, or slipping would put the others in debt."""
    pace, queue = gpu.pace, gpu.queue
    if queue.free:
        pace.rest.cap_lag(most_ns, pace.clock)
    for _ in range(min(CAPPED_AT_ONCE, len(queue.ready))):
        top = queue.first()
        assert top is not None
        account = top.account
        if (pace.clock.virtual_ns - account.virtual_ns) * account.weight <= most_ns * WHOLE:
            return
        gpu.unseat(top)
        account.cap_lag(most_ns, pace.clock)
        gpu.reseat(top)


# ---- reading it ---------------------------------------------------------------------------------


def turn_ns(gpu: Gpu, tenant: Tenant) -> int:
    tempo = tenant.tempo
    if tempo.mark != gpu.pace.mark:
        gpu.pace.fit_tenant(tenant)
    return tempo.turn_ns


def lag_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """What a tenant is owed; without a quota, compared with an equal part of what quotas leave."""
    account = tenant.account
    if tenant.limited:
        return account.lag_ns(gpu.pace.clock, now_ns)
    had_ns = tenant.figures.part_until(gpu.figures.shared, now_ns)
    return gpu.pace.fair.virtual_ns - account.virtual_ns - had_ns


def shown_lag_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """If it is idle, at most what it would be owed if it woke now."""
    if tenant.state != IDLE or not tenant.limited:
        return lag_ns(gpu, tenant, now_ns)
    account = tenant.account
    behind_ns = gpu.pace.clock.virtual_ns - account.virtual_of_rest(gpu.pace.slipped_ns)
    return min(behind_ns * account.weight // WHOLE, turn_ns(gpu, tenant))


def wanted_outside_ns(gpu: Gpu, now_ns: int) -> int:
    """How long a tenant outside could have used the GPU: without a quota, or not ahead of its quota.

    Judged by the first to arrive of those without a quota, and by the one furthest behind of the others.
    """
    if not gpu.resident_set.outside:
        return 0
    longest_ns = 0
    free, limited = gpu.resident_set.memory_queue.first_free(), gpu.queue.first_outside()
    if free is not None:
        longest_ns = now_ns - free.seat.since_ns
    if limited is not None:
        behind_ns = gpu.pace.clock.real_since(limited.account.virtual_ns)
        longest_ns = max(longest_ns, min(now_ns - limited.seat.since_ns, behind_ns))
    return longest_ns


def due(gpu: Gpu, tenant: Tenant) -> bool:
    """The clock has reached it, so its quota permits it to run."""
    ahead_ns = tenant.account.virtual_ns - gpu.pace.clock.virtual_ns
    if ahead_ns <= 0:
        return True
    return bool(gpu.resident_set.outside) and ahead_ns <= relaxed_ns(gpu, tenant)


def relaxed_ns(gpu: Gpu, tenant: Tenant) -> int:
    """How far ahead of the clock a tenant may begin a turn (rule 3)."""
    if not gpu.resident_set.outside:
        return 0
    gpu.pace.fit_tenant(tenant)
    return max(0, gpu.pace.allowance(tenant.account.weight, gpu.slice_ns()) - tenant.tempo.ahead_ns)


def ahead_most_ns(gpu: Gpu, tenant: Tenant) -> int:
    """How far ahead of the clock a turn may take a tenant."""
    if not gpu.resident_set.outside:
        return tenant.tempo.ahead_ns
    return gpu.pace.allowance(tenant.account.weight, gpu.slice_ns())
