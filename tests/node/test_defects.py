"""What killed, stalled or fooled the daemon this one replaces: each test fails on one with the defect."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nvshare.client.control import NotPermitted
from nvshare.runtime.daemon_threads import THREADS_MAX
from nvshare.wire.codec import encode
from nvshare.wire.dialects import INTERIM, ORIGINAL, V2, V3, Dialect
from nvshare.wire.messages import Message, MessageType
from tests.node.harness import PATIENCE_SEC, DaemonProcess, Raw, gpu_key, in_child, running

T = MessageType
NOBODY = 65_534


def pods(daemon: DaemonProcess) -> list[str]:
    return sorted(row["pod"] for row in daemon.control.ask("GET", "/v1/clients")["clients"])


def limited(daemon: DaemonProcess, *names: str) -> list[Raw]:
    """Clients whose turns exclude each other, each of its own pod."""
    for name in names:
        daemon.set_quota(name, core_percent=90 // len(names))
    return [daemon.client(name) for name in names]


# 1: no SIGPIPE handling, a client that dies with a pending request kills the scheduler


def test_1_a_client_that_dies_with_a_pending_request_harms_nobody(daemon: DaemonProcess) -> None:
    holder, other = limited(daemon, "holder", "other")
    holder.lock()

    def ask_and_die() -> None:
        dying = Raw(daemon.path)
        dying.register("dying")
        dying.send(T.REQ_LOCK)
        dying.round_trip()

    os.waitpid(in_child(ask_and_die), 0)
    holder.send(T.LOCK_RELEASED)
    other.lock()
    assert daemon.alive()


# 2: a grant that cannot be sent recurses until the stack is gone


def test_2_a_client_that_stops_reading_is_dropped_alone(daemon: DaemonProcess) -> None:
    deaf, other = daemon.client("deaf"), daemon.client("other")
    frame = encode(Message(T.KEEP_ALIVE, arguments=(1, 0)), V3)
    much = frame * 100_000  # about 65 MB of answers, if nothing stopped it
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        deaf.socket.sendall(much)
    other.cycle()
    status = daemon.wait_status(lambda found: found["counters"]["events"].get("output_overflow") == 1)
    assert status["clients"] == 2, "the memory of the deaf one counts while its process lives"


def test_2_grants_that_nobody_reads_do_not_stop_the_next(daemon: DaemonProcess) -> None:
    deaf, other = limited(daemon, "deaf", "other")
    pair = encode(Message(T.REQ_LOCK), V3) + encode(Message(T.LOCK_RELEASED), V3)
    deaf.socket.settimeout(0.5)
    try:
        for _ in range(5000):
            deaf.socket.sendall(pair)
    except OSError:
        pass  # dropped, or the daemon waits for its own turn to drop it
    for _ in range(3):
        other.cycle()


# 3: requests and OFF/ON duplicate a client in the queues


def test_3_asking_again_is_asking_once(daemon: DaemonProcess) -> None:
    first, second = limited(daemon, "first", "second")
    first.lock()
    for _ in range(50):
        first.send(T.REQ_LOCK)  # while running
        second.send(T.REQ_LOCK)  # while waiting
    second.round_trip()
    gpu = daemon.control.ask("GET", "/v1/gpus")["gpus"][0]
    waiting = gpu["request_queue_clients"] + gpu["wait_queue_clients"]
    assert (gpu["running_clients"], waiting) == (1, 1)
    first.send(T.LOCK_RELEASED)
    second.expect(T.LOCK_OK)
    second.close()
    first.lock()
    assert daemon.counters()["messages_sent"]["LOCK_OK"] == 3


@pytest.mark.parametrize("state", ["idle", "waiting", "running", "draining"])
def test_3_off_and_on_in_every_state_leaves_no_ghost(daemon: DaemonProcess, state: str) -> None:
    holder, client = limited(daemon, "holder", "client")
    if state == "waiting":
        holder.lock()
        client.send(T.REQ_LOCK)
    elif state in ("running", "draining"):
        client.lock()
    if state == "draining":
        holder.send(T.REQ_LOCK)
        client.expect(T.DROP_LOCK)
    client.round_trip()
    for on in (False, True, True, False, False, True):
        daemon.control.ask("PUT", "/v1/scheduling", {"on": on})
    client.expect(T.SCHED_OFF)
    client.expect(T.SCHED_ON)
    gpu = daemon.control.ask("GET", "/v1/gpus")["gpus"][0]
    assert (gpu["running_clients"], gpu["request_queue_clients"], gpu["wait_queue_clients"]) == (0, 0, 0)
    client.close()
    fresh = daemon.client("fresh")
    holder.send(T.LOCK_RELEASED)
    holder.cycle()
    fresh.cycle()


# 4: the leaving client is granted what it leaves


def test_4_a_client_that_leaves_is_granted_nothing(daemon: DaemonProcess) -> None:
    first, second, third = limited(daemon, "first", "second", "third")
    first.lock()
    for waiter in (second, third):
        waiter.send(T.REQ_LOCK)
        waiter.round_trip()
    second.close()
    daemon.wait_words("client disconnected")
    first.close()
    third.expect(T.LOCK_OK)
    assert daemon.counters()["messages_sent"]["LOCK_OK"] == 2


# 5: records are used after they are freed when several leave at once


@pytest.mark.parametrize("count", [500])
def test_5_500_clients_leaving_at_once(daemon: DaemonProcess, count: int) -> None:
    daemon.set_quota("stays", core_percent=50)
    stays = daemon.client("stays")

    def crowd() -> None:
        clients = []
        for number in range(count):
            client = Raw(daemon.path)
            client.register(f"crowd-{number}", gpu_key(number % 8))
            client.send(T.REQ_LOCK)
            clients.append(client)
        clients[-1].round_trip()

    os.waitpid(in_child(crowd), 0)
    daemon.wait_status(lambda status: status["clients"] == 1)
    for _ in range(10):
        stays.cycle()
    assert pods(daemon) == ["default/stays"]


# 6: running out of descriptors ends the daemon


def test_6_out_of_descriptors_accepting_pauses_and_nobody_is_sent_away(tmp_path: Path) -> None:
    def few_descriptors() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    with running(tmp_path, preexec_fn=few_descriptors) as daemon:
        early = [daemon.connect() for _ in range(100)]
        registered = [client for client in early[:10] if client.register().type is T.SCHED_ON]
        assert len(registered) == 10
        daemon.wait_words("out of file descriptors")  # there may be none left to answer a request for status
        assert all(not _has_ended(client) for client in early)
        for client in early[:60]:
            client.close()
        for client in early[60:70]:
            assert client.register().type is T.SCHED_ON
        for client in early[60:]:
            client.close()
        daemon.wait_status(lambda status: "accept_paused_exhausted" in status["counters"]["events"])


def _has_ended(client: Raw) -> bool:
    client.socket.setblocking(False)
    try:
        return client.socket.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    finally:
        client.socket.settimeout(PATIENCE_SEC)


# 7 is the clients': tests/client. 8: a slice of 0 makes the timer spin


def test_8_a_slice_of_nothing_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nvshare", "scheduler", "--sock-dir", str(tmp_path / "s")]
    environment = {**os.environ, "NVSHARE_SWITCH_TIME_MODE": "fixed", "NVSHARE_SWITCH_TIME_FIXED": "0"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SEC)
    assert result.returncode == 2
    assert "NVSHARE_SWITCH_TIME_FIXED='0'" in result.stderr
    assert "from 1 to 86400" in result.stderr


# 9: anybody may switch scheduling off


@pytest.mark.parametrize("dialect", [ORIGINAL, INTERIM, V2, V3], ids=lambda dialect: dialect.name)
def test_9_a_strangers_control_message_is_refused_and_counted(
    daemon: DaemonProcess, dialect: Dialect
) -> None:
    refused = []

    def stranger() -> None:
        os.setuid(NOBODY)
        for message in (Message(T.SCHED_OFF), Message(T.SET_TQ, data="5"), Message(T.SCHED_ON)):
            with Raw(daemon.path, dialect) as raw:
                raw.socket.sendall(encode(message, dialect))
                raw.ended()

    _, code = os.waitpid(in_child(stranger), 0)
    refused = daemon.counters()["refused"]
    assert os.WTERMSIG(code) == signal.SIGKILL
    assert refused == {"not_permitted": 3}
    assert daemon.status()["scheduling_on"] is True


def test_9_root_outside_containers_may_switch(daemon: DaemonProcess) -> None:
    with daemon.connect(V2) as operator:
        operator.send(T.SCHED_OFF)
        daemon.wait_status(lambda status: not status["scheduling_on"])
        operator.send(T.SCHED_ON)
        daemon.wait_status(lambda status: bool(status["scheduling_on"]))
        operator.send(T.SET_TQ, data="7")
        daemon.wait_words("slice set seconds=7")


def test_9_the_control_socket_is_not_a_strangers(daemon: DaemonProcess) -> None:
    reading, writing = os.pipe()

    def stranger() -> None:
        os.setuid(NOBODY)
        try:
            daemon.status()
        except NotPermitted:
            os.write(writing, b"not permitted")

    os.waitpid(in_child(stranger), 0)
    os.close(writing)
    assert os.read(reading, 100) == b"not permitted"
    os.close(reading)


# 10: pods are believed as sent


def test_10_a_strangers_claim_about_its_pod_does_not_count(daemon: DaemonProcess) -> None:
    daemon.set_quota("rich", core_percent=100, memory_bytes=1 << 40)
    reading, writing = os.pipe()

    def stranger() -> None:
        os.setuid(NOBODY)
        raw = Raw(daemon.path)
        raw.register("rich")
        os.write(writing, b"x")
        signal.pause()

    child = in_child(stranger)
    os.close(writing)
    assert os.read(reading, 1) == b"x"
    [pod] = pods(daemon)
    assert pod.startswith(f"process:{child}:")
    assert daemon.counters()["events"]["pod_claims_ignored"] == 1
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)


# 11: each made-up UUID costs a thread for ever


def test_11_2000_made_up_gpus_cost_nothing(daemon: DaemonProcess) -> None:
    before = len(os.listdir(f"/proc/{daemon.pid}/task"))
    reasons: dict[str, int] = {}
    for number in range(2000):
        with daemon.connect() as raw:
            answer = raw.register(gpu=gpu_key(number) if number % 2 else f"made-up-{number}")
            reasons[answer.data if answer.type is T.REFUSED else "taken"] = (
                reasons.get(answer.data if answer.type is T.REFUSED else "taken", 0) + 1
            )
    assert reasons == {"taken": 32, "bad_gpu": 1000, "too_many_gpus": 968}
    status = daemon.status()
    assert status["gpus"] == 32
    assert status["counters"]["refused"] == {"bad_gpu": 1000, "too_many_gpus": 968}
    threads = len(os.listdir(f"/proc/{daemon.pid}/task"))
    assert threads <= before + THREADS_MAX, "its pool may have started meanwhile; a GPU has no thread"


# 12: names are printed as they come


def test_12_a_name_cannot_write_lines(daemon: DaemonProcess) -> None:
    evil = 'a"} 1\nnvshare_fake 2\n2026-01-01T00:00:00Z ERROR all is lost'
    with daemon.connect() as raw:
        raw.register(evil)
        daemon.wait_words("client registered")
        [pod] = pods(daemon)
        assert pod.startswith("process:")
    with daemon.connect() as raw:
        raw.register(gpu='GPU-"\nfake')
        daemon.wait_words("bad_gpu")
    assert not any(line.startswith(("nvshare_fake", "fake", "2026-01-01")) for line in daemon.log)


# 17, 18: registering stops everybody else, and costs grow with the clients


def test_17_others_go_on_while_300_register(daemon: DaemonProcess) -> None:
    worker = daemon.client("worker")
    done = threading.Event()
    cycles = 0

    def work() -> None:
        nonlocal cycles
        while not done.is_set():
            worker.cycle()
            cycles += 1

    thread = threading.Thread(target=work)
    thread.start()
    clients = [daemon.client(f"new-{number}", gpu_key(number % 8)) for number in range(300)]
    done.set()
    thread.join(PATIENCE_SEC)
    assert cycles >= 100, "a lock cycle for every three registrations at the least"
    assert daemon.status()["clients"] == 301
    for client in clients:
        client.close()


# 24: a message that comes or goes in pieces ends the connection


@pytest.mark.parametrize("dialect", [ORIGINAL, INTERIM, V2, V3], ids=lambda dialect: dialect.name)
def test_24_a_message_may_come_byte_by_byte(tmp_path: Path, dialect: Dialect) -> None:
    with (
        running(tmp_path, arguments=["--gpus", f"{gpu_key()}=16Gi"]) as daemon,
        daemon.connect(dialect) as raw,
    ):
        message = Message(T.REGISTER, pod_name="slow", pod_namespace="default", gpu_uuid=gpu_key())
        for byte in encode(message, dialect) + encode(Message(T.REQ_LOCK), dialect):
            raw.socket.send(bytes([byte]))
            if byte:
                # A pause long enough for the daemon to see the pieces apart.
                daemon.status()
        assert raw.expect(T.SCHED_ON).data
        raw.expect(T.LOCK_OK)


def test_24_what_goes_in_pieces_arrives_whole(daemon: DaemonProcess) -> None:
    raw = daemon.client()
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    count = 200  # more than the kernel takes, less than what we keep for it
    for seq in range(1, count + 1):
        raw.send(T.KEEP_ALIVE, arguments=(seq, 0))
    assert [raw.expect(T.KEEP_ALIVE).arguments[0] for _ in range(count)] == list(range(1, count + 1))
