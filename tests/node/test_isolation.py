"""What one client does, or what goes wrong in telling it something, is never another's trouble."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from nvshare.wire.messages import MessageType
from tests.node.harness import PATIENCE_SEC, DaemonProcess, Raw, gpu_key, running

T = MessageType


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """What is sent meanwhile is dealt with in one round of the loop, in the order it was sent."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE_SEC
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def daemon(open_path: Path) -> Iterator[DaemonProcess]:
    """However slow the machine, all that has come is read in one round."""
    with running(open_path, bounds={"round_ns": PATIENCE_SEC * 10**9}) as process:
        yield process


def waiting(*clients: Raw) -> None:
    for client in clients:
        client.send(T.REQ_LOCK)
        client.round_trip()


def register_again(client: Raw) -> None:
    client.send(T.REGISTER, pod_name="again", pod_namespace="default", gpu_uuid=gpu_key())


@pytest.mark.parametrize("repeated", [1, 2])
def test_a_waiter_that_registers_again_takes_nobody_with_it(daemon: DaemonProcess, repeated: int) -> None:
    """In the round in which it is ended it is granted the GPU, and so is somebody behind it."""
    daemon.set_quota("holder", core_percent=50)
    holder, offender, bystander = (daemon.client(name) for name in ("holder", "offender", "bystander"))
    holder.lock()
    waiting(offender, bystander)
    with standing_still(daemon.pid):
        for _ in range(repeated):
            register_again(offender)
        holder.send(T.TURN_ENDED, arguments=(10**6, 0, 10**6, 0, 0, 10**6))
    bystander.expect(T.LOCK_OK)
    holder.round_trip()
    assert offender.ended()
    counters = daemon.counters()
    assert counters["refused"] == {"already_registered": 1}
    assert counters["disconnects"]["protocol"] == 1
    assert counters["events"].get("callback_raised", 0) == 0


def test_a_grant_to_a_client_that_is_being_ended_goes_to_the_next(daemon: DaemonProcess) -> None:
    for name in ("holder", "offender", "bystander"):
        daemon.set_quota(name, core_percent=30)
    holder, offender, bystander = (daemon.client(name) for name in ("holder", "offender", "bystander"))
    holder.lock()
    waiting(offender, bystander)
    with standing_still(daemon.pid):
        register_again(offender)
        holder.send(T.LOCK_RELEASED)
    bystander.expect(T.LOCK_OK)
    holder.round_trip()
    events = daemon.counters()["events"]
    assert events["effects_undelivered"] >= 1
    assert events.get("callback_raised", 0) == 0


def test_every_other_effect_of_a_list_is_performed(daemon: DaemonProcess) -> None:
    """Scheduling goes on and off for all at once, while one of them is being ended."""
    clients = [daemon.client(f"pod-{number}", gpu_key(number % 2)) for number in range(8)]
    operator = daemon.connect()
    operator.send(T.SCHED_ON)
    daemon.wait_words("scheduling set on=True")
    clients[-1].round_trip()  # a round of the loop in which the operator has nothing to say
    with standing_still(daemon.pid):
        register_again(clients[0])
        register_again(clients[3])
        operator.send(T.SCHED_OFF)
    for number, client in enumerate(clients):
        if number in (0, 3):
            assert client.ended()
        else:
            client.expect(T.SCHED_OFF)
    assert daemon.counters()["events"]["effects_undelivered"] == 2


def faulty(directory: Path, grant: int) -> AbstractContextManager[DaemonProcess]:
    environment = {"FAULTY_GRANT": str(grant)}
    return running(directory, module="tests.node.run_faulty_daemon", environment=environment, bugs=1)


def test_a_send_that_raises_ends_its_receiver_and_the_gpu_goes_on(open_path: Path) -> None:
    with faulty(open_path, grant=1) as daemon:
        for name in ("unlucky", "next"):
            daemon.set_quota(name, core_percent=40)
        unlucky, second = daemon.client("unlucky"), daemon.client("next")
        unlucky.send(T.REQ_LOCK)
        assert unlucky.ended()
        second.lock()
        [gpu] = daemon.control.ask("GET", "/v1/gpus")["gpus"]
        assert gpu["running_clients"] == 1
        events = daemon.counters()["events"]
        assert (events["callback_raised"], events["grants_lost"]) == (1, 1)
        back = daemon.connect()
        assert back.resume(unlucky, request_seq=1).type is T.RESUMED
        second.send(T.LOCK_RELEASED)
        back.expect(T.LOCK_OK)


def test_a_send_that_raises_does_not_harm_its_cause(open_path: Path) -> None:
    """One release grants the GPU to two; telling the first of them raises."""
    with faulty(open_path, grant=2) as daemon:
        daemon.set_quota("holder", core_percent=50)
        holder, unlucky, bystander = (daemon.client(name) for name in ("holder", "unlucky", "bystander"))
        holder.lock()
        waiting(unlucky, bystander)
        holder.send(T.LOCK_RELEASED)
        bystander.expect(T.LOCK_OK)
        assert unlucky.ended()
        holder.round_trip()
        assert daemon.counters()["disconnects"] == {
            "ended": 0,
            "protocol": 0,
            "overflow": 0,
            "replaced": 0,
            "fault": 1,
        }
