"""Both clients against a running daemon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvshare.client import AsyncClient, Client, ClientRefused
from nvshare.client.errors import NO_ROOM
from nvshare.client.link import Phase
from nvshare.client.reconnect import JITTER_SEC, reconnect_delay_sec
from nvshare.client.session import Session
from tests.node.harness import PATIENCE_SEC, DaemonProcess, gpu_key, running


@pytest.fixture
def daemon() -> Iterator[DaemonProcess]:
    with tempfile.TemporaryDirectory(prefix="nvshare-test-") as name, running(Path(name)) as process:
        yield process


def connect(daemon: DaemonProcess, pod: str) -> Client:
    client = Client(gpu_key(), sock_dir=str(daemon.sock_dir), pod=pod)
    assert client.wait_ready(PATIENCE_SEC)
    return client


def test_two_clients_take_turns(daemon: DaemonProcess) -> None:
    for pod in ("a", "b"):
        daemon.set_quota(pod, core_percent=45)
    inside = 0
    worst = 0
    guard = threading.Lock()

    def work(client: Client) -> None:
        nonlocal inside, worst
        for _ in range(30):
            with client.gpu():
                with guard:
                    inside += 1
                    worst = max(worst, inside)
                time.sleep(0.001)  # the work itself
                with guard:
                    inside -= 1

    with connect(daemon, "a") as first, connect(daemon, "b") as second:
        threads = [threading.Thread(target=work, args=(client,)) for client in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SEC)
        assert (inside, worst) == (0, 1)
        assert first.session.turns.grants >= 1
        assert second.session.turns.grants >= 1


def test_7_a_restart_of_the_daemon_is_nobodys_end(daemon: DaemonProcess) -> None:
    with connect(daemon, "a") as client:
        daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
        with client.gpu():
            daemon.kill()
            daemon.start()
            daemon.wait_words("client resumed")
        with client.gpu():
            pass
        daemon.wait_status(lambda _: client.session.resumes == 1)  # which the log may be ahead of
        assert client.session.registrations == 1


def wait_used(daemon: DaemonProcess, used_bytes: int) -> None:
    """The two clients have connections of their own: what one said may come after what the other asks."""

    def seen(_status: object) -> bool:
        [tenant] = daemon.control.ask("GET", "/v1/tenants/a")["tenants"]
        return bool(tenant["used_bytes"] == used_bytes)

    daemon.wait_status(seen)


def test_memory_is_counted_before_it_is_allocated(daemon: DaemonProcess) -> None:
    daemon.set_quota("a", memory_bytes=1000)
    with connect(daemon, "a") as first:
        assert first.reserve(900)
        with connect(daemon, "a") as second:
            assert not second.reserve(200)
            assert second.reserve(100)
            first.free(500)
            wait_used(daemon, 400 + 100)
            assert second.reserve(400)
            assert not first.reserve(200)


def test_no_daemon_raises_nothing_and_is_waited_for(tmp_path: Path) -> None:
    with Client(gpu_key(), sock_dir=str(tmp_path / "s"), pod="a") as client:
        assert client.reserve(1 << 37)
        entered = threading.Event()

        def work() -> None:
            with client.gpu():
                entered.set()

        thread = threading.Thread(target=work)
        thread.start()
        with running(tmp_path) as daemon:
            assert entered.wait(PATIENCE_SEC)
            thread.join(PATIENCE_SEC)
            assert not client.session.link.ungated
            [row] = daemon.control.ask("GET", "/v1/clients")["clients"]
            assert row["used_bytes"] == 1 << 37


@pytest.mark.verify
def test_no_daemon_for_10_s_opens_the_gate_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = time.monotonic()
    with Client(gpu_key(), sock_dir=str(tmp_path), pod="a") as client, client.gpu():
        assert time.monotonic() - start >= 10
        assert client.session.link.ungated
    assert "running ungated" in caplog.text


@contextlib.contextmanager
def stopped(daemon: DaemonProcess) -> Iterator[None]:
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGCONT)  # unless it was killed meanwhile


def wait_asking(session: Session) -> None:
    deadline = time.monotonic() + PATIENCE_SEC
    while not session.memory._requests and not session.link.ungated:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("dies", [True, False])
def test_a_daemon_that_stays_away_keeps_nobody_waiting_for_memory(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """It dies between the question and its answer, or says nothing, and does not come back."""
    daemon.set_quota("a", memory_bytes=1000)
    answers: list[bool] = []
    with connect(daemon, "a"), connect(daemon, "a") as second:
        assert second.reserve(1), "asked for, and so the limit is known"
        monkeypatch.setattr("nvshare.client.session.SILENCE_NS", 200_000_000)
        with stopped(daemon):
            thread = threading.Thread(target=lambda: answers.append(second.reserve(300)), daemon=True)
            thread.start()
            if dies:
                wait_asking(second.session)
                daemon.kill()
            thread.join(PATIENCE_SEC)
            assert answers == [True]
            assert not second.reserve(700)
            assert second.reserve(699)


def test_the_async_client_waits_for_no_memory_either(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.set_quota("a", memory_bytes=1000)

    async def live() -> tuple[bool, bool]:
        async with AsyncClient(gpu_key(), sock_dir=str(daemon.sock_dir), pod="a") as client:
            while client.session.phase is not Phase.READY:
                await asyncio.sleep(0.001)
            assert await client.reserve(1)
            monkeypatch.setattr("nvshare.client.session.SILENCE_NS", 200_000_000)
            with stopped(daemon):
                first = asyncio.create_task(client.reserve(300))
                await asyncio.to_thread(wait_asking, client.session)
                await asyncio.to_thread(daemon.kill)
                return await first, await client.reserve(700)

    with connect(daemon, "a"):
        assert asyncio.run(asyncio.wait_for(live(), PATIENCE_SEC)) == (True, False)


def test_a_refusal_is_raised_with_its_reason(daemon: DaemonProcess) -> None:
    with Client("no-such-gpu", sock_dir=str(daemon.sock_dir)) as client:
        with pytest.raises(ClientRefused, match="bad_gpu"), client.gpu():
            pass
        with pytest.raises(ClientRefused, match="bad_gpu"):
            client.reserve(1)


def test_the_async_client(daemon: DaemonProcess) -> None:
    for pod in ("a", "b"):
        daemon.set_quota(pod, core_percent=45, memory_bytes=1000)

    async def work(client: AsyncClient, running_now: list[int], worst: list[int]) -> None:
        for _ in range(20):
            async with client.gpu():
                running_now.append(1)
                worst.append(len(running_now))
                await asyncio.sleep(0.001)  # the work itself
                running_now.pop()

    async def both() -> tuple[int, bool, bool]:
        running_now: list[int] = []
        worst: list[int] = []
        directory = str(daemon.sock_dir)
        async with (
            AsyncClient(gpu_key(), sock_dir=directory, pod="a") as first,
            AsyncClient(gpu_key(), sock_dir=directory, pod="b") as second,
        ):
            await asyncio.gather(work(first, running_now, worst), work(second, running_now, worst))
            return max(worst), await first.reserve(1000), await first.reserve(1)

    worst, fits, too_much = asyncio.run(asyncio.wait_for(both(), PATIENCE_SEC))
    assert (worst, fits, too_much) == (1, True, False)


def test_the_async_client_resumes(daemon: DaemonProcess) -> None:
    async def live() -> int:
        async with AsyncClient(gpu_key(), sock_dir=str(daemon.sock_dir), pod="a") as client:
            async with client.gpu():
                await asyncio.to_thread(daemon.wait_status, lambda status: status["clients"] == 1)
                await asyncio.to_thread(daemon.wait_status, lambda status: status["checkpoint_current"])
                await asyncio.to_thread(daemon.kill)
                await asyncio.to_thread(daemon.start)
                await asyncio.to_thread(daemon.wait_words, "client resumed")
            async with client.gpu():
                return client.session.resumes

    assert asyncio.run(asyncio.wait_for(live(), PATIENCE_SEC)) == 1


def wait_states(daemon: DaemonProcess, wanted: dict[str, str]) -> None:
    """Until the daemon sees each pod's client so."""
    deadline = time.monotonic() + PATIENCE_SEC
    states: dict[str, str] = {}
    while states != wanted:
        assert time.monotonic() < deadline, (states, wanted)
        rows = daemon.control.ask("GET", "/v1/clients")["clients"]
        states = {row["pod"]: row["state"] for row in rows}


def test_a_cancelled_wait_leaves_no_request_behind(daemon: DaemonProcess) -> None:
    for pod in ("a", "b"):
        daemon.set_quota(pod, core_percent=45)

    async def live() -> None:
        directory = str(daemon.sock_dir)
        async with (
            AsyncClient(gpu_key(), sock_dir=directory, pod="a") as first,
            AsyncClient(gpu_key(), sock_dir=directory, pod="b") as second,
        ):
            async with first.gpu():
                waiting = asyncio.create_task(second.acquire())
                await asyncio.sleep(0)  # its request is on the way
                assert not waiting.done()
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
            await asyncio.to_thread(wait_states, daemon, {"default/a": "idle", "default/b": "idle"})
            assert second.session.turns.busy_ns(0) == 0, "what it was granted after all, it has not used"
            async with first.gpu():
                pass
            await asyncio.to_thread(wait_states, daemon, {"default/a": "idle", "default/b": "idle"})

    asyncio.run(asyncio.wait_for(live(), PATIENCE_SEC))


def test_a_cancelled_reservation_uses_nothing(daemon: DaemonProcess) -> None:
    daemon.set_quota("a", memory_bytes=100)

    async def live() -> None:
        directory = str(daemon.sock_dir)
        async with (
            AsyncClient(gpu_key(), sock_dir=directory, pod="a") as first,
            AsyncClient(gpu_key(), sock_dir=directory, pod="a") as second,
        ):
            await asyncio.to_thread(daemon.wait_status, lambda status: status["clients"] == 2)
            while not await second.reserve(1):  # until both must ask
                pass
            second.free(1)
            asking = asyncio.create_task(second.reserve(100))
            await asyncio.sleep(0)  # the question is on the way
            assert not asking.done()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            while not await first.reserve(100):
                pass

    asyncio.run(asyncio.wait_for(live(), PATIENCE_SEC))


def test_clients_come_back_within_half_a_second_and_not_all_at_once() -> None:
    delays = [reconnect_delay_sec() for _ in range(1000)]
    assert all(0 <= delay <= JITTER_SEC for delay in delays)
    assert max(delays) - min(delays) > 0.8 * JITTER_SEC


def test_closing_a_client_inside_a_block_is_harmless(daemon: DaemonProcess) -> None:
    client = connect(daemon, "a")
    with client.gpu():
        client.close()
    with pytest.raises(ClientRefused, match="closed"):
        client.acquire()


def test_pids_are_real(daemon: DaemonProcess) -> None:
    with connect(daemon, "a"):
        [row] = daemon.control.ask("GET", "/v1/clients")["clients"]
        assert row["pid"] == os.getpid()


def test_a_client_that_finds_no_room_and_has_no_limits_runs_ungated(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with (
        running(tmp_path, bounds={"clients_per_pod": 1}) as daemon,
        connect(daemon, "full") as first,
        first.gpu(),
        Client(gpu_key(), sock_dir=str(daemon.sock_dir), pod="full") as second,
        second.gpu(),
    ):
        assert second.session.refusal == "too_many_in_pod"
        assert second.reserve(1 << 40)
    assert any("(too_many_in_pod): it runs ungated, and asks again" in line for line in caplog.messages)


def test_a_client_that_finds_no_room_waits_until_there_is(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with running(tmp_path, bounds={"clients_per_pod": 1}) as daemon:
        daemon.set_quota("full", memory_bytes=100)
        first = connect(daemon, "full")
        with Client(gpu_key(), sock_dir=str(daemon.sock_dir), pod="full") as second:
            daemon.wait_words("reason=too_many_in_pod")
            assert second.reserve(101) is False, "the limit of its pod"
            first.close()
            with second.gpu():
                assert second.session.phase is Phase.READY
    told = [line for line in caplog.messages if "has no room" in line]
    assert told == [NO_ROOM % ("too_many_in_pod", "waits")]


def test_reserve_says_no_with_the_reason_also_before_it_is_connected() -> None:
    """To a GPU that the daemon does not know, and to more than the GPU has."""
    known = ["--gpus", f"{gpu_key()}=16Gi"]
    with (
        tempfile.TemporaryDirectory(prefix="nvshare-test-") as name,
        running(Path(name), arguments=known) as daemon,
    ):
        sock_dir = str(daemon.sock_dir)
        with (
            Client(gpu_key(7), sock_dir=sock_dir) as stranger,
            pytest.raises(ClientRefused, match="unknown_gpu"),
        ):
            stranger.reserve(1 << 30)
        with Client(gpu_key(), sock_dir=sock_dir) as client:
            assert not client.reserve(101 << 30)
            assert "101 GiB asked, 0 B used, and the GPU has 16 GiB" in client.refusal
            assert client.reserve(15 << 30)

        async def ask() -> None:
            async with AsyncClient(gpu_key(), sock_dir=sock_dir) as client:
                assert not await client.reserve(101 << 30)
                assert "the GPU has 16 GiB" in client.refusal
            async with AsyncClient(gpu_key(7), sock_dir=sock_dir) as client:
                with pytest.raises(ClientRefused, match="unknown_gpu"):
                    await client.reserve(1 << 30)

        asyncio.run(asyncio.wait_for(ask(), PATIENCE_SEC))
