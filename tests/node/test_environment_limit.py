"""A memory limit that a client's environment states: told with REGISTER, one of several words on its pod."""

from __future__ import annotations

from pathlib import Path

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
