"""What a lag may be: how much a tenant may be owed, and how much it may owe. Said here and nowhere else.

Rules:
1. A bill always counts. Beside bills a lag changes only here, at one of six moments, and by one rule each:
   ``wake``: one turn of credit at most, since nobody is owed for the time in which it wanted nothing; and
   before its first turn one owes what its owner's former tenants did (``books.owners``);
   ``resume``: one turn, and for one that waited all the while what it was due in AWAY_MOST_NS at most;
   ``end_hold``: no more credit than it had when the hold began, or a turn: what was held and not used is
   not owed later;
   ``give_back``: clients that cannot tell are billed for gaps between their kernels, too. What NVML says that
   they held and did not use is given back, up to an eighth of the bill: more than that is no such gap. Not
   where quotas fill the GPU: one that leaves many gaps would have its due at the expense of one with few;
   ``settle``: time that nobody else wanted is not owed back. That is what a ``share``, and the group of
   those without a quota, used beyond their due while nobody outside wanted it;
   ``begin_slices``: those without a quota are even when the first one has to wait outside. From then on all
   that is used counts, since somebody wants it, until ``end_slices``: then their group is as good as even.
2. The sum of what is owed to those who wait is bounded by what can be repaid: a turn each, and a slice for
   each that waits outside; and what drains cost that took longer than a turn, until it is repaid: who made
   the others wait may be gone, but they are owed the time all the same. Nobody alone is owed more than that
   and half a second; what exceeds it slips, for all alike.
3. A quota is a cap: who is ahead of the clock waits. While somebody waits outside it is kept over slices
   instead of turns, so one may be a slice ahead.

Hence, over any window in which a tenant is backlogged, its share is its due less its part of what slipped
(the time that nobody could have), give or take what its lag may differ at the two ends: two turns and a
drain, or while memory is exchanged two slices. Those who were owed more at the beginning go first.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import WHOLE, Account
from nvshare.core.books.pace import SECOND
from nvshare.core.gpu import Gpu
from nvshare.core.standing import IDLE
from nvshare.core.tenant import Tenant

OVERRUN_TURNS: Final = 4
AWAY_MOST_NS: Final = 10 * SECOND
"""Who waits for a daemon that is away waits no longer than that: then it runs ungated."""
REPAYABLE_FREE: Final = 2 * WHOLE // 100
REPAYABLE_NS: Final = 5 * SECOND
BREATH_NS: Final = SECOND // 500
"""Between the release of an older client and the request behind it; no time in which it wanted nothing."""
LOST_MOST_NS: Final = 20 * SECOND
"""What drains cost that took longer than a turn is owed to those who waited, up to this much."""
DEBT_TURNS: Final = 2
"""Who is further ahead than so many turns take one has not let go in time; its owner answers for that."""
GIVEN_BACK_MOST: Final = 8
"""As a part of the bill: one in so many."""
MISJUDGED_MOST_NS: Final = SECOND
"""NVML's moments are not those of our bills: what it said too much is made up for by what it says next."""
CAPPED_AT_ONCE: Final = 64
"""So few are owed that much: all are owed no more than the time that passed."""
ALONE_NS: Final = SECOND // 2
"""What one may be owed beyond what all may: others that are ahead of their quota make up for it."""


# ---- the moments ---------------------------------------------------------------------------


def wake(gpu: Gpu, tenant: Tenant) -> None:
    """Back from idle: at most one turn of credit; debt stays."""
    pace, account = gpu.pace, tenant.account
    if tenant.limited:
        account.rejoin(pace.slipped_ns)
        clock = pace.clock
        if tenant.habits.turns == 0 and tenant.owner != tenant.pod:
            account.begin_at(gpu.owners.begins_at(tenant.owner, pace.slipped_ns))
    elif gpu.residence.outside:
        clock = pace.fair
    else:
        return  # ``begin_slices`` levels those without a quota
    if pace.clock.at_ns - tenant.habits.served_ns <= BREATH_NS and tenant.queues_blindly:
        return  # it has just let go, and cannot say with its release that it wants more
    if account.virtual_ns < clock.virtual_ns:
        account.cap_lag(turn_ns(gpu, tenant), clock)


def wake_rest(gpu: Gpu) -> None:
    """The first of the group lines up."""
    pace = gpu.pace
    if not gpu.line.free and not gpu.floor.together:
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
        gpu.owners.note(tenant.owner, account.virtual_ns, gpu.pace.slipped_ns, clock.virtual_ns)
    if account.virtual_ns < clock.virtual_ns:
        most_ns = turn_ns(gpu, tenant)
        lag_ns = tenant.hold.lag_ns
        account.cap_lag(most_ns if most_ns > lag_ns else lag_ns, clock)


def give_back(gpu: Gpu, tenant: Tenant, billed_ns: int, worked_ns: int) -> None:
    """The card worked so long for a tenant while it was billed that much."""
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
    """After a bill of one that may borrow: what it had since somebody outside wants it counts."""
    pace, account, tempo = gpu.pace, tenant.account, tenant.tempo
    pace.fit_tenant(tenant)
    if account.virtual_ns > pace.clock.virtual_ns + tempo.ahead_ns:
        _forgive(gpu, account, tempo.turn_ns, until_ns, wanted_outside_ns(gpu, until_ns))


def begin_slices(gpu: Gpu) -> None:
    """All are settled. Those without a quota are even: until now nobody had to give way to another."""
    fair = gpu.pace.fair
    for tenant in gpu.tenants.values():
        if not tenant.limited:
            tenant.account.owe(0, fair)


def end_slices(gpu: Gpu) -> None:
    """Nobody waits outside any more: what the group had in slices beyond its minimum is not owed."""
    pace = gpu.pace
    pace.rest.cap_debt(pace.allowance(pace.rest.weight, OVERRUN_TURNS * pace.rest_turn_ns), pace.clock)


def settle_rest(gpu: Gpu, until_ns: int) -> None:
    """After a bill of the group; as far as it ran by right, that is."""
    pace, floor = gpu.pace, gpu.floor
    if pace.rest.virtual_ns > pace.clock.virtual_ns + pace.rest_ahead_ns and not gpu.residence.outside:
        by_right_until_ns = until_ns if floor.entitled else floor.turn_started_ns
        _forgive(gpu, pace.rest, pace.rest_turn_ns, by_right_until_ns)


def _forgive(gpu: Gpu, account: Account, turn_ns: int, until_ns: int, wanted_ns: int = 0) -> None:
    """Of one that is ahead by more than a turn, which is always owed back."""
    pace = gpu.pace
    length_ns = min(until_ns - gpu.floor.turn_started_ns, OVERRUN_TURNS * turn_ns)
    length_ns = max(turn_ns, length_ns)
    length_ns = max(wanted_ns, length_ns)  # by twos, which the compiled core does without a call
    account.cap_debt(pace.allowance(account.weight, length_ns), pace.clock)


def slip(gpu: Gpu) -> None:
    """What cannot be repaid is not owed: hand-overs take time that no quota can have (rule 2)."""
    owed, weight = _owed(gpu)
    if gpu.pace.lost_ns:
        gpu.pace.repaid(owed // WHOLE - _repayable_ns(gpu, lost=False))
    if owed <= (len(gpu.line.ready) + 1) * gpu.pace.turn_ns * WHOLE:
        return  # as nearly always
    most_ns = _repayable_ns(gpu)
    if owed > most_ns * WHOLE:
        _cap_each(gpu, most_ns + ALONE_NS)
        owed, weight = _owed(gpu)
        excess = owed - most_ns * WHOLE
        if excess > 0:
            gpu.pace.slip(excess // weight)


def _owed(gpu: Gpu) -> tuple[int, int]:
    """To all who wait, and their weight; times WHOLE."""
    line, pace = gpu.line, gpu.pace
    clock_ns, rest = pace.clock.virtual_ns, pace.rest
    owed = line.weight * clock_ns - line.weighted_ns
    if not line.free:
        return owed, line.weight
    return owed + rest.weight * (clock_ns - rest.virtual_ns), line.weight + rest.weight


def _repayable_ns(gpu: Gpu, lost: bool = True) -> int:
    """What those who wait may be owed together; without what was lost to late drains, or with it."""
    outside = len(gpu.residence.outside)
    most_ns = (len(gpu.line.ready) + outside + 1) * gpu.pace.turn_ns
    most_ns += gpu.line.drains_ns  # while one drains longer than a turn the others wait so much longer
    if outside:
        most_ns += (outside + 1) * gpu.slice_ns()
    if gpu.pace.free_weight() >= REPAYABLE_FREE:
        most_ns += REPAYABLE_NS  # a GPU with room can repay what an outage cost
    if lost:
        most_ns += gpu.pace.lost_ns
    return most_ns


def _cap_each(gpu: Gpu, most_ns: int) -> None:
    """Nobody alone is owed much more than all may be together: what slips would make debts of the others."""
    pace, line = gpu.pace, gpu.line
    if line.free:
        pace.rest.cap_lag(most_ns, pace.clock)
    for _ in range(min(CAPPED_AT_ONCE, len(line.ready))):
        top = line.first()
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
    """What a tenant is owed; one without a quota by an even part of what quotas leave."""
    account = tenant.account
    if tenant.limited:
        return account.lag_ns(gpu.pace.clock, now_ns)
    had_ns = tenant.figures.part_until(gpu.figures.shared, now_ns)
    return gpu.pace.fair.virtual_ns - account.virtual_ns - had_ns


def shown_lag_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """Of an idle one no more than it would be owed if it woke now."""
    if tenant.standing != IDLE or not tenant.limited:
        return lag_ns(gpu, tenant, now_ns)
    account = tenant.account
    behind_ns = gpu.pace.clock.virtual_ns - account.virtual_of_rest(gpu.pace.slipped_ns)
    return min(behind_ns * account.weight // WHOLE, turn_ns(gpu, tenant))


def wanted_outside_ns(gpu: Gpu, now_ns: int) -> int:
    """For how long somebody outside could have used the GPU: one without a quota, or not ahead of its own.

    Judged by the first to come of those without one, and of the others by the one that is furthest behind.
    """
    if not gpu.residence.outside:
        return 0
    longest_ns = 0
    free, limited = gpu.residence.waiting.first_free(), gpu.line.first_outside()
    if free is not None:
        longest_ns = now_ns - free.seat.since_ns
    if limited is not None:
        behind_ns = gpu.pace.clock.real_since(limited.account.virtual_ns)
        longest_ns = max(longest_ns, min(now_ns - limited.seat.since_ns, behind_ns))
    return longest_ns


def due(gpu: Gpu, tenant: Tenant) -> bool:
    """The clock has reached it, so its quota lets it run."""
    ahead_ns = tenant.account.virtual_ns - gpu.pace.clock.virtual_ns
    if ahead_ns <= 0:
        return True
    return bool(gpu.residence.outside) and ahead_ns <= relaxed_ns(gpu, tenant)


def relaxed_ns(gpu: Gpu, tenant: Tenant) -> int:
    """How far ahead of the clock one may begin a turn (rule 3)."""
    if not gpu.residence.outside:
        return 0
    gpu.pace.fit_tenant(tenant)
    return max(0, gpu.pace.allowance(tenant.account.weight, gpu.slice_ns()) - tenant.tempo.ahead_ns)


def ahead_most_ns(gpu: Gpu, tenant: Tenant) -> int:
    """How far ahead of the clock a turn may take one."""
    if not gpu.residence.outside:
        return tenant.tempo.ahead_ns
    return gpu.pace.allowance(tenant.account.weight, gpu.slice_ns())
