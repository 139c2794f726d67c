"""``nvshare ctl drain``: who is on a GPU stays, nobody new comes, and it lasts."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvshare.cli.ctl_drain import POLL_SEC
from nvshare.client import Client, ClientRefused
from nvshare.wire.dialects import V2
from tests.hostile.strangers import stranger
from tests.node.commands import ctl
from tests.node.harness import PATIENCE_SEC, DaemonProcess, Raw, T, gpu_key, running
from tests.node.test_kill import client_of, read_until

OTHER_GPU = "GPU-6f3c0000-0000-0000-0000-000000000000"
GPUS = f"{gpu_key(0)}=16Gi,{gpu_key(1)}=16Gi"


def drain(daemon: DaemonProcess, gpu: str = "0") -> None:
    daemon.control.ask("PUT", f"/v1/drains/{gpu}")


@pytest.fixture
def two_gpus(open_path: Path) -> Iterator[DaemonProcess]:
    with running(open_path, arguments=["--gpus", GPUS]) as daemon:
        yield daemon


def test_new_clients_are_refused_and_present_ones_continue(two_gpus: DaemonProcess) -> None:
    here = two_gpus.client("web")
    drain(two_gpus)
    assert two_gpus.connect().register("db").data == "gpu_draining"
    with stranger(lambda: Raw(two_gpus.path).register("web"), 0):  # of a pod that is there
        two_gpus.wait_status(lambda status: status["counters"]["refused"].get("gpu_draining") == 2)
    assert two_gpus.connect().register("web").type is T.SCHED_ON, "a second client of who is there"
    assert two_gpus.connect().register("db", gpu_key(1)).type is T.SCHED_ON, "the other GPU is as before"
    here.cycle()
    here.cycle()
    assert two_gpus.counters()["refused"]["gpu_draining"] == 2
    two_gpus.control.ask("DELETE", "/v1/drains/0")
    assert two_gpus.connect().register("db").type is T.SCHED_ON


def test_a_python_client_gets_the_reason(two_gpus: DaemonProcess) -> None:
    drain(two_gpus)
    with (
        Client(gpu_key(), sock_dir=str(two_gpus.sock_dir)) as client,
        pytest.raises(ClientRefused) as refused,
    ):
        client.wait_ready(PATIENCE_SEC)
    assert refused.value.reason == "gpu_draining"


def test_it_lasts_over_a_restart_and_those_that_were_there_resume(open_path: Path) -> None:
    with running(open_path, arguments=["--gpus", GPUS]) as daemon:
        here = daemon.client("web")
        drain(daemon)  # answered when it is on disk, with who is there
        daemon.kill()
        daemon.start()
        assert daemon.connect().register("db").data == "gpu_draining"
        assert daemon.status()["draining_gpus"] == [gpu_key()]
        assert daemon.control.ask("GET", "/v1/drains/0")["count"] == 1, "it is expected back"
        again = daemon.connect()
        assert again.resume(here).type is T.RESUMED
        again.cycle()
        daemon.control.ask("DELETE", f"/v1/drains/{gpu_key()}")
        daemon.kill()
        daemon.start()
        assert daemon.status()["draining_gpus"] == []


def test_a_process_that_lost_its_connection_and_registers_afresh_is_nobody_new(
    two_gpus: DaemonProcess,
) -> None:
    here = two_gpus.client("web")
    drain(two_gpus)
    here.close()
    two_gpus.wait_words("client disconnected")
    assert two_gpus.connect().register("web").type is T.SCHED_ON


@pytest.mark.parametrize("name", ["0", gpu_key(0), OTHER_GPU[:8]])
def test_by_any_of_its_names(open_path: Path, name: str) -> None:
    with running(open_path, arguments=["--gpus", f"{gpu_key(0)}=16Gi,{OTHER_GPU}=16Gi"]) as daemon:
        key = OTHER_GPU if name == OTHER_GPU[:8] else gpu_key(0)
        done = ctl(daemon, "drain", name)
        assert done.returncode == 0, done.stderr
        assert daemon.status()["draining_gpus"] == [key]
        assert ctl(daemon, "undrain", name).returncode == 0
        assert daemon.status()["draining_gpus"] == []


@pytest.mark.parametrize("name", ["7", "all", "0,1", "GPU-none", "default", gpu_key(0)[:-1]])
def test_a_message_that_names_no_gpu_gets_an_error(two_gpus: DaemonProcess, name: str) -> None:
    for verb in ("drain", "undrain"):
        done = ctl(two_gpus, verb, name)
        assert done.returncode == 2
        assert "accepted: an index, a UUID" in done.stderr
    assert two_gpus.status()["draining_gpus"] == []


def test_ctl_waits_until_it_is_empty_and_shows_it(two_gpus: DaemonProcess) -> None:
    command = [sys.executable, "-m", "nvshare", "ctl", "--private-dir", str(two_gpus.private_dir)]
    with stranger(client_of(two_gpus), 0) as pid:
        terminal, inside = pty.openpty()
        environment = dict(os.environ, TERM="xterm", COLUMNS="200")
        with subprocess.Popen(
            [*command, "drain", "0"], stdin=inside, stdout=inside, stderr=inside, env=environment
        ) as process:
            os.close(inside)
            read_until(terminal, f"default/web (pid {pid})".encode())
            assert ", draining" in ctl(two_gpus, "gpus").stdout
            assert gpu_key() in ctl(two_gpus, "status").stdout
            os.kill(pid, signal.SIGKILL)
            read_until(terminal, b"is drained and empty")
            assert process.wait(PATIENCE_SEC) == 0
        os.close(terminal)


def test_ctl_gives_up_in_time_or_does_not_wait(two_gpus: DaemonProcess) -> None:
    here = two_gpus.client("web")
    late = ctl(two_gpus, "drain", "0", "--timeout", "0.1", "--json")
    assert late.returncode == 1
    answer = json.loads(late.stdout)
    assert (answer["draining"], answer["count"]) == (True, 1)
    assert answer["processes"][0]["pid"] == os.getpid()
    soon = ctl(two_gpus, "drain", "0", "--no-wait")
    assert soon.returncode == 0
    assert "1 process is still there" in soon.stdout
    here.cycle()


def test_ctl_outlives_a_restart_of_the_daemon(open_path: Path) -> None:
    command = [sys.executable, "-m", "nvshare", "ctl"]
    with running(open_path, arguments=["--gpus", GPUS]) as daemon, stranger(client_of(daemon), 0) as pid:
        with subprocess.Popen(
            [*command, "--private-dir", str(daemon.private_dir), "drain", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as waiting:
            daemon.wait_words("GPU is drained")
            drain(daemon)  # answered when it is on disk
            daemon.kill()
            with pytest.raises(subprocess.TimeoutExpired):
                waiting.wait(2 * POLL_SEC)
            daemon.start()
            os.kill(pid, signal.SIGKILL)
            out, err = waiting.communicate(timeout=PATIENCE_SEC)
        assert waiting.returncode == 0, err
        assert "is drained and empty" in out


def test_ctl_says_that_the_gpu_stays_drained_when_no_daemon_comes_back(open_path: Path) -> None:
    command = [sys.executable, "-m", "nvshare", "ctl"]
    with running(open_path, arguments=["--gpus", GPUS]) as daemon, stranger(client_of(daemon), 0):
        with subprocess.Popen(
            [*command, "--private-dir", str(daemon.private_dir), "drain", "0", "--timeout", "5"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as waiting:
            daemon.wait_words("GPU is drained")
            drain(daemon)  # it has had its answer by then
            daemon.kill()
            _, err = waiting.communicate(timeout=PATIENCE_SEC)
        assert waiting.returncode == 3
        assert "stays drained; nvshare ctl undrain 0 ends that" in err


def test_older_clients_are_turned_away(two_gpus: DaemonProcess) -> None:
    drain(two_gpus)
    old = Raw(two_gpus.path, V2)
    old.send(T.REGISTER, pod_name="old", pod_namespace="default", gpu_uuid=gpu_key(), host_pid=os.getpid())
    assert old.ended()
    old.close()


def test_what_cannot_be_written_down_holds_and_is_told_to_end_with_the_daemon(open_path: Path) -> None:
    module = "tests.node.run_daemon_on_full_disk"
    with running(open_path, arguments=["--gpus", GPUS], module=module) as daemon:
        for verb, drained in (("drain", [gpu_key(0)]), ("undrain", [])):
            done = ctl(daemon, verb, "0")
            assert done.returncode == 1
            assert "will be forgotten when the daemon ends: [Errno 28] No space left on device" in done.stderr
            assert daemon.status()["draining_gpus"] == drained
        answer = json.loads(ctl(daemon, "drain", "0", "--json").stdout)
        assert answer["not_kept"] == "[Errno 28] No space left on device"
        run = daemon.control.ask("POST", "/v1/runs", {"pid": os.getpid(), "pod": "job"})
        assert "No space left" in run["not_kept"]
