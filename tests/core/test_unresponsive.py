"""Clients that do not drain: whoever runs the node is told which, and nobody else is named."""

from __future__ import annotations

from nvshare.core import effects, events
from nvshare.core.settings import Settings

from .model import GIB, MS, SECOND, Model

SETTINGS = Settings(drop_timeout_ns=5 * SECOND)


def named(wanted: list[effects.Effect]) -> list[int]:
    return [effect.client for effect in wanted if isinstance(effect, effects.Unresponsive)]


class Watched(Model):
    """Remembers whom the core complained of, and when."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.complaints: list[tuple[int, int]] = []
        super().__init__(settings)

    def _see(self, effect: effects.Effect) -> None:
        super()._see(effect)
        if isinstance(effect, effects.Unresponsive):
            self.complaints.append((self.now_ns, effect.client))

    def complained_of(self) -> set[int]:
        return {client for _, client in self.complaints}


def one_that_hangs(model: Model) -> tuple[int, int]:
    model.limit("a", 50)
    model.limit("b", 50)
    hung, other = model.register("a"), model.register("b")
    model.request(hung)
    model.request(other)
    return hung, other


def test_a_tenant_that_does_not_drain_is_named_after_the_drop_timeout_and_again() -> None:
    model = Watched()
    hung, other = one_that_hangs(model)
    model.pass_time(5 * SECOND)
    assert not model.complaints
    for _ in range(60):
        model.pass_time(100 * MS)
        if model.clients[other].dropping:
            model.release(other, MS, again=True)
    assert model.complained_of() == {hung}
    assert len(model.complaints) > 2, "whoever missed it hears of it again"
    explanation = model.core.snapshot(model.now_ns).gpus[0].tenants[0].explanation
    assert explanation.reason == "unresponsive"
    assert "nvshare ctl kill a" in explanation.remedy
    states = {
        client.client: client.state for client in model.core.snapshot(model.now_ns).gpus[0].tenants[0].clients
    }
    assert states == {hung: "unresponsive"}


def test_nothing_more_is_said_once_it_has_drained() -> None:
    model = Watched()
    hung, _ = one_that_hangs(model)
    model.pass_time(20 * SECOND)
    assert hung in model.complained_of()
    model.release(hung)
    model.complaints.clear()
    model.pass_time(20 * SECOND)
    assert hung not in model.complained_of()


def test_a_process_that_lets_go_is_not_named_for_its_sibling() -> None:
    model = Watched()
    model.limit("a", 50)
    model.limit("b", 50)
    hung, good, other = model.register("a"), model.register("a"), model.register("b")
    for key in (hung, good, other):
        model.request(key)
    for _ in range(200):
        model.pass_time(100 * MS)
        for key in (good, other):
            if model.clients[key].dropping:
                model.release(key, MS, again=True)
    assert model.complained_of() == {hung}


def test_a_slice_that_is_not_let_go_of_names_its_holder() -> None:
    model = Watched(
        Settings(switch_time_mode="fixed", switch_time_fixed_ns=10 * SECOND, drop_timeout_ns=5 * SECOND)
    )
    holder, small = model.register("a"), model.register("b")
    model.use(holder, 12 * GIB)
    model.use(small, 4 * GIB)
    model.request(holder)
    model.request(small)
    model.pass_time(14 * SECOND)
    model.release(holder, MS, again=True)  # from here on it keeps its queue short
    slice_ends = model.now_ns
    while not model.clients[holder].dropping:
        model.pass_time(SECOND)
        if model.clients[small].dropping:
            model.release(small, MS, again=True)
        assert model.now_ns < slice_ends + 60 * SECOND
    model.pass_time(4 * SECOND)
    assert not model.complaints
    model.pass_time(2 * SECOND)
    assert model.complained_of() == {holder}


class DeepQueue(Watched):
    """A client without a quota has the GPU, and keeps its queue short only when one with a quota comes."""

    def __init__(self) -> None:
        super().__init__()
        self.deep = self.register("a")
        self.request(self.deep)
        self.pass_time(2 * SECOND)
        self.limit("b", 50)
        self.limited = self.register("b")
        self.request(self.limited)

    def go_on(self, seconds: int) -> None:
        for _ in range(10 * seconds):
            self.pass_time(100 * MS)
            if self.clients[self.limited].dropping:
                self.release(self.limited, MS, again=True)


def test_a_client_with_a_long_queue_from_before_quotas_has_a_minute_to_drain() -> None:
    model = DeepQueue()
    model.go_on(55)
    assert model.clients[model.deep].holds
    assert not model.complaints, "the timeout is 5 s"
    model.go_on(10)
    assert model.complained_of() == {model.deep}


def test_a_standstill_takes_nothing_of_that_minute() -> None:
    model = DeepQueue()
    model.go_on(20)
    model.stand_still(60 * SECOND)
    model.go_on(35)
    assert not model.complaints
    model.go_on(10)
    assert model.complained_of() == {model.deep}


def test_the_minute_is_for_that_queue_alone() -> None:
    model = DeepQueue()
    model.go_on(20)
    model.release(model.deep, MS, again=True)
    model.go_on(20)
    assert model.complained_of() == {model.deep}


def test_a_standstill_of_the_daemon_makes_nobody_unresponsive() -> None:
    model = Watched()
    hung, _ = one_that_hangs(model)
    model.pass_time(2 * SECOND)  # it hangs, and has 3 s left
    model.stand_still(30 * SECOND)
    model.pass_time(SECOND)
    assert not model.complaints
    model.release(hung)
    model.pass_time(20 * SECOND)
    assert hung not in model.complained_of()
    assert named(model.step(events.Woken())) == []


def test_after_a_standstill_a_process_that_let_go_before_is_still_not_named() -> None:
    model = Watched()
    model.limit("a", 50)
    model.limit("b", 50)
    hung, good, other = model.register("a"), model.register("a"), model.register("b")
    for key in (hung, good, other):
        model.request(key)
    for _ in range(300):
        hold = model.tenant("a").hold
        late = hold.late_ns >= 0 and model.now_ns - hold.late_ns > 4600 * MS
        if late and model.clients[good].holds and not model.clients[good].dropping:
            break
        model.pass_time(50 * MS)
        for key in (good, other):
            if model.clients[key].dropping:
                model.release(key, MS, again=True)
    model.stand_still(30 * SECOND)
    model.pass_time(SECOND)
    assert model.clients[good].holds, "it is slow to drain this time, but had drained since its sibling hangs"
    assert model.complained_of() == {hung}


class Slow(Watched):
    """An honest tenant has a kernel of 300 ms on the card at any time, beside tenants that never let go.

    The card divides its time among all that have work, so there the kernel takes so many times as long.
    """

    def __init__(self, squatters: int) -> None:
        super().__init__(Settings(drop_timeout_ns=2 * SECOND))
        self.squatters = 0
        self.limit("honest", 60)
        self.honest = self.register("honest")
        self.left_ns = 0
        self.request(self.honest)
        for _ in range(squatters):
            self.squat()

    def squat(self) -> None:
        self.squatters += 1
        self.limit(f"squatter-{self.squatters}", 1)
        self.request(self.register(f"squatter-{self.squatters}"))

    def run(self, seconds: int) -> None:
        """Those that are named are killed, and others come in their place."""
        for _ in range(50 * seconds):
            self.pass_time(20 * MS)
            for _, key in self.complaints:
                if key != self.honest and key in self.core.clients:
                    self.step(events.ProcessGone(key))
                    self.squat()
            self._work(20 * MS)

    def _work(self, passed_ns: int) -> None:
        holding = [client for client in self.clients.values() if client.holds]
        me = self.clients[self.honest]
        if not me.holds:
            return
        self.left_ns -= passed_ns // len(holding)
        if self.left_ns <= 0 and me.dropping:
            self.release(self.honest, MS, again=True)
        if self.left_ns <= 0:
            self.left_ns = 300 * MS
        if me.holds and me.dropping and not self.core.clients[self.honest].wants:
            self.request(self.honest)  # another thread stands at the gate


def test_a_tenant_slowed_by_others_that_never_let_go_is_not_named() -> None:
    model = Slow(squatters=8)
    model.run(60)
    assert model.squatters > 8, "those that never let go are found all the same"
    assert model.honest not in model.complained_of()


def test_when_an_unresponsive_tenant_is_gone_the_others_get_a_grace_period() -> None:
    model = Watched()
    keys = []
    for number in range(3):
        model.limit(f"pod-{number}", 30)
        keys.append(model.register(f"pod-{number}"))
        model.request(keys[-1])
    while not model.complaints:
        model.pass_time(10 * MS)
    first = model.complaints[0][1]
    model.step(events.ProcessGone(first))
    gone_ns = model.now_ns
    model.complaints = [one for one in model.complaints if one[1] != first]
    while not model.complaints:
        model.pass_time(10 * MS)
    assert model.complaints[0][0] - gone_ns >= 2 * 500 * MS, "two of them, half a second each"
