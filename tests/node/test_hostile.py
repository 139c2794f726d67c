"""What a client, the kernel or a stranger can do to the daemon, and it lives on."""

from __future__ import annotations

import os
import random
import signal
import socket
from pathlib import Path

import pytest

from nvshare.node.checkpoint import FILE, Saved, boot_id, decode
from nvshare.node.checkpoint import encode as encode_checkpoint
from nvshare.wire.codec import encode
from nvshare.wire.dialects import DIALECTS, V3
from nvshare.wire.messages import Message, MessageType
from tests.node.harness import DaemonProcess, Raw, gpu_key, in_child, running

T = MessageType
LIFE = (
    Message(T.REGISTER, pod_name="mortal", pod_namespace="default", gpu_uuid=gpu_key()),
    Message(T.REQ_LOCK),
    Message(T.MEM_RESERVE, arguments=(1, 1 << 20)),
    Message(T.MEM_USED, arguments=(1 << 20, 1)),
    Message(T.BUSY, arguments=(10**6, 0, 10**6, 0, 0, 0, 0, 0)),
    Message(T.TURN_ENDED, arguments=(10**7, 0, 10**6, 1, 0, 10**7)),
    Message(T.LOCK_RELEASED),
    Message(T.KEEP_ALIVE, arguments=(1, 0)),
)


@pytest.mark.parametrize("count", range(len(LIFE) + 1))
def test_kill_9_at_every_message_boundary_and_within(daemon: DaemonProcess, count: int) -> None:
    for name in ("mortal", "witness"):
        daemon.set_quota(name, core_percent=40, memory_bytes=1 << 30)
    witness = daemon.client("witness")
    for extra in (0, 1, 658):

        def live_and_die(extra: int = extra) -> None:
            raw = Raw(daemon.path)
            frames = b"".join(encode(message, V3) for message in LIFE[: count + 1])
            raw.socket.sendall(frames[: count * V3.frame_bytes + extra])

        os.waitpid(in_child(live_and_die), 0)
        witness.cycle()
    status = daemon.wait_status(lambda found: found["clients"] == 1 and found["unregistered"] == 0)
    assert status["counters"]["events"].get("callback_raised") is None


def throw_random_bytes(daemon: DaemonProcess, count: int, seed: int) -> None:
    chance = random.Random(seed)
    descriptors = len(os.listdir(f"/proc/{daemon.pid}/fd"))
    starts = [b"", *(encode(LIFE[0], dialect) for dialect in DIALECTS)]
    for _ in range(count):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as thrower:
            thrower.connect(str(daemon.path))
            data = chance.choice(starts) + chance.randbytes(chance.choice((0, 1, 536, 659, 700, 2000)))
            try:
                thrower.sendall(data)
            except OSError:
                continue  # it was ended before it had said everything
    witness = daemon.client("witness", gpu_key(1))
    witness.cycle()
    status = daemon.wait_status(lambda found: found["unregistered"] == 0)
    assert status["counters"]["events"].get("callback_raised") is None
    assert status["gpus"] <= 64
    assert len(os.listdir(f"/proc/{daemon.pid}/fd")) <= descriptors + 32, "not one for each string"


def test_2000_random_byte_strings(daemon: DaemonProcess) -> None:
    throw_random_bytes(daemon, 2000, seed=1)


@pytest.mark.verify
def test_100000_random_byte_strings(daemon: DaemonProcess) -> None:
    throw_random_bytes(daemon, 100_000, seed=2)


@pytest.mark.parametrize("limit_bytes", [0, 1 << 20])
def test_claims_that_add_up_to_more_than_a_message_can_tell(daemon: DaemonProcess, limit_bytes: int) -> None:
    most = (1 << 64) - 1
    if limit_bytes:
        daemon.set_quota("liars", memory_bytes=limit_bytes)
    liars = [daemon.client("liars") for _ in range(2)]
    for liar in liars:
        liar.send(T.MEM_USED, arguments=(most, 0))
        liar.round_trip()
    for seq in (1, 2):
        liars[0].send(T.MEM_RESERVE, arguments=(seq, most))
        answer = liars[0].expect(T.MEM_RESERVED, T.MEM_REFUSED)
        if limit_bytes:
            believed = 2 * limit_bytes  # none of them can have more than the limit
            assert (answer.type, answer.arguments) == (T.MEM_REFUSED, (seq, limit_bytes, believed, most))
        else:
            assert (answer.type, answer.arguments) == (T.MEM_RESERVED, (seq, most, most))
    daemon.client("witness", gpu_key(1)).cycle()
    assert daemon.counters()["events"].get("callback_raised") is None


def test_a_socket_handed_to_a_child_ends_with_the_parent(daemon: DaemonProcess) -> None:
    """The grandchild keeps the connection open; the client is its parent all the same."""
    daemon.set_quota("other", core_percent=50)
    reading, writing = os.pipe()

    def parent() -> None:
        raw = Raw(daemon.path)
        raw.register("parent")
        raw.lock()
        if os.fork() == 0:
            raw.ended()
            os.write(writing, b"ended")
            os._exit(0)

    os.waitpid(in_child(parent), 0)
    os.close(writing)
    assert os.read(reading, 100) == b"ended"
    os.close(reading)
    daemon.wait_status(lambda found: found["clients"] == 0)
    daemon.client("other").cycle()


def edit_checkpoint(daemon: DaemonProcess, **changes: object) -> Saved:
    path = daemon.private_dir / FILE
    saved, _ = decode(path.read_bytes(), 1 << 62)
    fields = {name: getattr(saved, name) for name in saved.__struct_fields__}
    edited = Saved(**{**fields, **changes})
    path.write_bytes(encode_checkpoint(edited))
    return edited


def test_a_reused_pid_is_not_the_client_it_was(daemon: DaemonProcess) -> None:
    former = daemon.client("former")
    daemon.wait_status(lambda found: found["checkpoints_written"] >= 1)
    assert daemon.stop() == 0
    saved, _ = decode((daemon.private_dir / FILE).read_bytes(), 1 << 62)
    assert [client.pid for client in saved.clients] == [os.getpid()]
    older = [
        type(client)(**{**{f: getattr(client, f) for f in client.__struct_fields__}, "start_ticks": 1})
        for client in saved.clients
    ]
    edit_checkpoint(daemon, clients=older)
    daemon.start()
    assert daemon.status()["expected_back"] == 0, "a process of that pid lives, and it is another one"
    raw = daemon.connect()
    answer = raw.resume(former)
    assert (answer.type, answer.data) == (T.REFUSED, "unknown_client")


def test_only_the_same_process_resumes(daemon: DaemonProcess) -> None:
    former = daemon.client("former")
    reading, writing = os.pipe()

    def thief() -> None:
        os.write(writing, Raw(daemon.path).resume(former).data.encode())

    os.waitpid(in_child(thief), 0)
    os.close(writing)
    assert os.read(reading, 100) == b"not_that_process"
    os.close(reading)
    assert daemon.connect().resume(former, epoch=former.epoch + 1).data == "wrong_epoch"
    assert daemon.connect().resume(former).type is T.RESUMED


def test_a_client_that_met_a_daemon_that_wrote_nothing_down_resumes_with_the_next(
    daemon: DaemonProcess,
) -> None:
    """It has the epoch of one that is in no checkpoint; what it was before is known."""
    former = daemon.client("former")
    daemon.wait_status(lambda found: found["checkpoints_written"] >= 1)
    daemon.kill()
    daemon.start()
    assert daemon.connect().resume(former, epoch=former.epoch + 1).type is T.RESUMED


def test_a_dead_peer_is_refused(daemon: DaemonProcess) -> None:
    """It connects, says all it has to say and dies before anybody accepts."""
    os.kill(daemon.pid, signal.SIGSTOP)
    try:

        def say_and_die() -> None:
            raw = Raw(daemon.path)
            raw.send(T.REGISTER, pod_name="dead", pod_namespace="default", gpu_uuid=gpu_key())
            raw.send(T.REQ_LOCK)

        os.waitpid(in_child(say_and_die), 0)
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    status = daemon.wait_status(lambda found: found["counters"]["refused"])
    assert status["counters"]["refused"] == {"peer_dead": 1}
    assert status["clients"] == 0


def test_a_peer_whose_pid_cannot_be_seen_reads_why_it_is_refused(open_path: Path) -> None:
    """The daemon in a pid namespace of its own, the client outside it."""
    prefix = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    daemon = DaemonProcess(open_path, prefix=prefix)
    daemon.start()
    try:
        raw = daemon.connect()
        answer = raw.register("unseen")
        assert (answer.type, answer.data) == (T.REFUSED, "pid_not_visible")
        assert answer.core_limit_percent == 0, "not known: what it was told before holds"
        assert raw.ended()
        operator = daemon.connect()
        operator.send(T.SCHED_OFF)
        assert operator.ended(), "without an identity there are no rights either"
    finally:
        daemon.close_clients()
        daemon.kill()


def test_a_process_in_a_pod_is_that_pods_whatever_it_says(daemon: DaemonProcess) -> None:
    """A real cgroup; also root in a container may not switch scheduling off."""
    uid = f"12345678-1234-1234-1234-{os.getpid():012d}"
    cgroup = Path("/sys/fs/cgroup/freezer/kubepods/burstable") / f"pod{uid}"
    try:
        cgroup.mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"cannot make a cgroup here: {error}")
    reading, writing = os.pipe()

    def contained() -> None:
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))
        raw = Raw(daemon.path)
        raw.register("somebody-else")
        operator = Raw(daemon.path)
        operator.send(T.SCHED_OFF)
        operator.ended()
        os.write(writing, b"x")
        signal.pause()

    child = in_child(contained)
    os.close(writing)
    try:
        assert os.read(reading, 1) == b"x"
        [row] = daemon.control.ask("GET", "/v1/clients")["clients"]
        assert row["pod"] == f"pod:{uid}"
        status = daemon.status()
        assert status["scheduling_on"] is True
        assert status["counters"]["refused"] == {"not_permitted": 1}
        assert status["counters"]["events"]["pod_claims_ignored"] == 1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        cgroup.rmdir()


def test_the_bounds_of_a_pod_and_of_a_user_hold(open_path: Path) -> None:
    with running(open_path, bounds={"clients_per_pod": 2, "clients_per_uid": 5}) as daemon:
        for _ in range(2):
            daemon.client("a")
        assert daemon.connect().register("a").data == "too_many_in_pod"
        for name in ("b", "c", "d"):
            daemon.client(name)
        assert daemon.connect().register("e").data == "too_many_of_user"
        refused = daemon.counters()["refused"]
        assert refused == {"too_many_in_pod": 1, "too_many_of_user": 1}


def test_the_bound_of_clients_holds(open_path: Path) -> None:
    with running(open_path, bounds={"clients": 3}) as daemon:
        clients = [daemon.client(name) for name in ("a", "b", "c")]
        assert daemon.connect().register("d").data == "too_many_clients"
        assert daemon.counters()["refused"] == {"too_many_clients": 1}
        clients[0].close()
        daemon.wait_words("client disconnected")
        assert daemon.connect().register("d").data == "too_many_clients", (
            "its process lives, and may come back"
        )
        daemon.client("a").cycle()  # in its place
        assert daemon.status()["clients"] == 3


def test_a_handshake_has_its_time(open_path: Path) -> None:
    with running(open_path, bounds={"handshake_ns": 200_000_000}) as daemon:
        silent = daemon.connect()
        assert silent.ended()
        assert daemon.counters()["refused"] == {"handshake_timeout": 1}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is not a checkpoint"),
        (b"nvshare-checkpoint 9 x\n{}", "it has version 9"),
        (b"nvshare-checkpoint 2 x\n{}", "checksum"),
        ("boot", "another boot"),
        ("future", "future"),
    ],
)
def test_a_checkpoint_that_cannot_be_used_is_set_aside(
    open_path: Path, content: bytes | str, why: str
) -> None:
    if isinstance(content, str):
        foreign = Saved(1, "other" if content == "boot" else boot_id(), 1 << 62, True, [], [], [], [])
        content = encode_checkpoint(foreign)
    (open_path / "p").mkdir(mode=0o700)
    (open_path / "p" / FILE).write_bytes(content)
    with running(open_path) as daemon:
        lines = [line for line in daemon.log if "checkpoint set aside" in line]
        assert len(lines) == 1
        assert why in lines[0]
        assert (open_path / "p" / "checkpoint.unusable").read_bytes() == content
        daemon.client("fresh").cycle()
