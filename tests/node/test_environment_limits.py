"""A memory limit that a client's environment states: told with REGISTER, one of several words on its pod."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nvshare.core.events import LimitsSet
from nvshare.core.limit_sources import LimitSources
from nvshare.node.environment_limits import EnvironmentLimits
from nvshare.node.limit_pauses import LimitPauses
from nvshare.wire.dialects import V2
from nvshare.wire.messages import MessageType
from tests.node.harness import DaemonProcess, Raw, gpu_key, in_child, running

T = MessageType
MIB = 1 << 20


def register(daemon: DaemonProcess, limit_bytes: int, pod: str = "own") -> Raw:
    raw = daemon.connect()
    raw.send(
        T.REGISTER, pod_name=pod, pod_namespace="default", gpu_uuid=gpu_key(), memory_limit_bytes=limit_bytes
    )
    answer = raw.expect(T.SCHED_ON)
    raw.client_id = int(answer.data, 16)
    raw.epoch = raw.expect(T.KEEP_ALIVE).arguments[1]
    return raw


def limit_of(daemon: DaemonProcess, pod: str = "default/own") -> int:
    found: int = daemon.control.ask("GET", f"/v1/quotas/{pod}")["limits"]["memory_bytes"]
    return found


def test_it_is_leased_and_the_lower_one_holds_and_ctl_overrides(daemon: DaemonProcess) -> None:
    raw = register(daemon, 128 * MIB)
    assert raw.expect(T.LEASE).arguments[1:] == (128 * MIB, 0)
    daemon.set_quota("default/own", memory_bytes=1024 * MIB)
    assert raw.expect(T.UPDATE_LIMIT).memory_limit_bytes == 1024 * MIB
    assert raw.expect(T.LEASE).arguments[1:] == (1024 * MIB, 0)


def test_what_an_older_client_leaves_in_the_field_counts_for_nothing(daemon: DaemonProcess) -> None:
    raw = daemon.connect(V2)
    raw.send(T.REGISTER, pod_name="old", pod_namespace="default", gpu_uuid=gpu_key(), memory_limit_bytes=MIB)
    raw.expect(T.SCHED_ON)
    assert limit_of(daemon, "default/old") == 0


def test_it_ends_with_the_pods_last_process(daemon: DaemonProcess) -> None:
    child = in_child(lambda: register(daemon, 128 * MIB).close())
    daemon.wait_words('why="process ended"')
    assert child > 0
    assert limit_of(daemon) == 0


def test_it_survives_a_lost_connection_and_a_restart(open_path: Path) -> None:
    with running(open_path) as daemon:
        first = register(daemon, 128 * MIB)
        second = daemon.connect()
        assert second.resume(first).type is T.RESUMED
        assert limit_of(daemon) == 128 * MIB
        daemon.stop()
        daemon.start()
        third = daemon.connect()
        assert third.resume(second).type is T.RESUMED
        assert third.expect(T.LEASE).arguments[1:] == (128 * MIB, 0)


class Pod:
    """A pod with so many clients, the timer of its pause, and the words that were taken."""

    def __init__(self, clients: int) -> None:
        self.clients = clients
        self.limits = LimitSources()
        self.taken: list[int | None] = []
        self.timers: list[Callable[[], None]] = []
        dispatcher: Any = SimpleNamespace(loop=self, scheduler=self)
        pauses = LimitPauses(dispatcher, lambda _pod: self.clients)
        self.environment = EnvironmentLimits(dispatcher, pauses, self._take)

    def _take(self, word: LimitsSet, _owner: str) -> None:
        self.limits.put(*word)
        self.taken.append(word.memory_bytes)

    def call_later(self, _delay_sec: float, callback: Callable[[str], None], pod: str) -> None:
        self.timers.append(lambda: callback(pod))

    def say(self, *limits_bytes: int) -> None:
        for limit_bytes in limits_bytes:
            self.environment.state("pod", limit_bytes, "uid:1")

    def pass_pause(self) -> None:
        self.timers.pop(0)()


def test_among_many_the_newest_limit_is_taken_when_the_interval_is_over() -> None:
    crowd = Pod(100)
    crowd.say(1, 2, 3, 4)
    assert crowd.taken == [1]
    crowd.pass_pause()
    assert crowd.taken == [1, 4]
    crowd.say(5, 4)
    crowd.pass_pause()
    assert crowd.taken == [1, 4], "it is what holds already"
    assert crowd.timers == []
    crowd.say(6)
    assert crowd.taken == [1, 4, 6], "nothing was said for a while"


def test_a_few_are_sent_at_once() -> None:
    few = Pod(8)
    few.say(1, 2, 3, 3)
    assert few.taken == [1, 2, 3]


def test_a_limit_that_waits_ends_with_the_pod() -> None:
    crowd = Pod(100)
    crowd.say(1, 2)
    crowd.environment.withdraw("pod", "uid:1")
    crowd.pass_pause()
    assert crowd.taken == [1, None]


def test_a_client_that_comes_meanwhile_is_sent_the_current_limits(daemon: DaemonProcess) -> None:
    for _ in range(10):
        daemon.client("own")
    register(daemon, 200 * MIB)
    newcomer = register(daemon, 100 * MIB)
    told = newcomer.expect(T.UPDATE_LIMIT).memory_limit_bytes
    if told == 200 * MIB:  # it is, unless the machine was so slow that the pause was over
        assert newcomer.expect(T.UPDATE_LIMIT).memory_limit_bytes == 100 * MIB
    assert limit_of(daemon) == 100 * MIB
