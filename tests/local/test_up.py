"""`nvshare up` and `nvshare down`."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from contextlib import ExitStack
from urllib.request import urlopen

import pytest

from nvshare.local.state import read_state
from nvshare.local.supervisor import RESTARTS_PER_MINUTE
from tests.local.harness import NVSHARE, Place, gone, place, read_line, wait_until
from tests.node.harness import PATIENCE_SEC


def test_a_detached_node_is_ready_when_the_command_returns_and_down_ends_it(bare: Place) -> None:
    up = bare.nvshare("up", "--sim", "t4:2", "--detach")
    assert up.returncode == 0, up.stderr
    assert "SIMULATED GPUs (t4:2)" in up.stdout
    pid = bare.state().pid
    assert f"pid {pid}" in up.stdout
    assert [gpu["index"] for gpu in bare.control.ask("GET", "/v1/gpus")["gpus"]] == [0, 1]
    daemon_pid = bare.control.ask("GET", "/v1/status")["pid"]
    down = bare.nvshare("down")
    assert (down.returncode, down.stdout) == (0, f"node ended (pid {pid})\n")
    assert gone(pid)
    assert gone(daemon_pid)
    assert sorted(path.name for path in bare.private_dir.iterdir()) == ["checkpoint", "token"]
    assert list(bare.sock_dir.iterdir()) == []


def test_simulated_gpus_are_the_same_when_the_node_is_up_again(bare: Place) -> None:
    """So that programs which went on meanwhile find theirs."""
    uuids = []
    for _ in range(2):
        assert bare.nvshare("up", "--sim", "t4:2", "--detach").returncode == 0
        uuids.append([gpu["gpu"] for gpu in bare.control.ask("GET", "/v1/gpus")["gpus"]])
        assert bare.nvshare("down").returncode == 0
    assert uuids[0] == uuids[1]
    assert len(set(uuids[0])) == 2
    with place() as other:
        assert other.nvshare("up", "--sim", "t4:2", "--detach").returncode == 0
        others = {gpu["gpu"] for gpu in other.control.ask("GET", "/v1/gpus")["gpus"]}
        assert other.nvshare("down").returncode == 0
    assert not others & {*uuids[0]}, "another node has other GPUs"


def test_nodes_that_start_together_have_a_port_for_metrics_each() -> None:
    """They all look for the first free one; whoever is too late takes another."""
    with ExitStack() as stack:
        places = [stack.enter_context(place()) for _ in range(3)]
        said_nothing = {"NVSHARE_METRICS_ENABLE": ""}
        ups = [found.start(*NVSHARE, "up", "--sim", "t4:1", **said_nothing) for found in places]
        urls = set()
        for up in ups:
            while not (line := read_line(up)).startswith("metrics: "):
                assert line, up.communicate()[1]
            urls.add(line.split()[1])
        assert len(urls) == 3
        for url in urls:
            with urlopen(url, timeout=PATIENCE_SEC) as answer:
                assert b"\nnvshare_" in answer.read()


def test_nvshare_sim_finds_the_cards_of_the_node(bare: Place) -> None:
    assert bare.nvshare("up", "--sim", "t4:2", "--detach").returncode == 0
    try:
        simulated = bare.state().simulated
        assert simulated is not None
        elsewhere = {"XDG_RUNTIME_DIR": str(bare.directory)}  # where cards would be without a node
        status = bare.nvshare("sim", "status", **elsewhere)
        assert (status.returncode, status.stderr) == (0, "")
        assert f"simulated GPUs in {simulated.directory} (t4:2)" in status.stdout
        assert bare.nvshare("sim", "fault", "lost", "1", **elsewhere).returncode == 0
        assert [card.lost for card in bare.cards()] == [0, 1]
        assert not (bare.directory / "nvshare-sim").exists()
    finally:
        assert bare.nvshare("down").returncode == 0


def test_down_without_a_node(bare: Place) -> None:
    down = bare.nvshare("down")
    assert down.returncode == 3
    assert "no node is up" in down.stderr


def test_a_second_node_names_the_first(bare: Place) -> None:
    assert bare.nvshare("up", "--sim", "t4:1", "--detach").returncode == 0
    try:
        for extra in ((), ("--detach",)):
            second = bare.nvshare("up", "--sim", "t4:1", *extra)
            assert second.returncode == 4
            assert f"pid {bare.state().pid} is up already" in second.stderr
            assert "nvshare down" in second.stderr
    finally:
        assert bare.nvshare("down").returncode == 0


def test_a_daemon_that_has_the_directory_is_named(bare: Place) -> None:
    daemon = bare.start(*NVSHARE, "scheduler")
    assert daemon.stderr is not None
    while "daemon started" not in daemon.stderr.readline():
        pass
    up = bare.nvshare("up", "--sim", "t4:1")
    assert up.returncode == 4
    said = (
        f"Error: the daemon did not start: {bare.private_dir} is in use by the daemon with pid {daemon.pid}\n"
    )
    assert up.stderr == said, "without the time and level of its log"


def test_cards_that_do_not_exist_are_bad_input(bare: Place) -> None:
    for extra in ((), ("--detach",)):
        for cards in ("t5:1", ""):
            up = bare.nvshare("up", "--sim", cards, *extra)
            assert up.returncode == 2
            assert f"no simulated GPUs: unknown card '{cards.partition(':')[0]}'" in up.stderr
    assert not (bare.private_dir / "node").exists()


def test_a_bad_setting_is_named(bare: Place) -> None:
    up = bare.nvshare("up", NVSHARE_COMPUTE_WINDOW_MS="soon")
    assert up.returncode == 2
    assert "NVSHARE_COMPUTE_WINDOW_MS='soon'" in up.stderr


def test_without_a_gpu_it_says_that_the_gpus_are_simulated(bare: Place) -> None:
    up = bare.start(*NVSHARE, "up")
    assert read_line(up) == "SIMULATED GPUs (t4:2): no real GPU was found here; nothing here uses a real GPU"
    up.send_signal(signal.SIGINT)
    assert up.stdout is not None
    out = up.stdout.read()
    assert up.wait(PATIENCE_SEC) == 0
    assert out.endswith("node ended\n")
    assert not (bare.private_dir / "node").exists()


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("int nvmlInitWithFlags(unsigned f) { (void)f; return 18; }", "NVML is installed but fails (NVML: "),
        (None, "NVML is installed but cannot be loaded ("),
    ],
    ids=["fails", "broken"],
)
def test_an_nvml_that_fails_is_named(bare: Place, source: str | None, why: str) -> None:
    library = bare.directory / "nvml" / "libnvidia-ml.so.1"
    library.parent.mkdir()
    if source is None:
        library.write_bytes(b"no library")
    else:
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=source, text=True, check=True)
    up = bare.start(*NVSHARE, "up", LD_LIBRARY_PATH=str(library.parent))
    line = read_line(up)
    assert line.startswith(f"SIMULATED GPUs (t4:2): {why}"), line
    assert line.endswith("; nothing here uses a real GPU")
    up.send_signal(signal.SIGINT)
    up.communicate(timeout=PATIENCE_SEC)


def test_a_node_that_was_killed_takes_its_daemon_along_and_makes_room(bare: Place) -> None:
    assert bare.nvshare("up", "--sim", "t4:1", "--detach").returncode == 0
    daemon_pid = bare.control.ask("GET", "/v1/status")["pid"]
    os.kill(bare.state().pid, signal.SIGKILL)
    assert gone(daemon_pid)
    assert bare.nvshare("down").returncode == 3
    assert bare.nvshare("up", "--sim", "t4:1", "--detach").returncode == 0
    assert bare.nvshare("down").returncode == 0


def test_a_daemon_that_dies_is_started_again_but_not_for_ever(bare: Place) -> None:
    up = bare.start(*NVSHARE, "up", "--sim", "t4:1")
    while not read_line(up).startswith("node up"):
        pass
    killed: set[int] = set()
    for _ in range(RESTARTS_PER_MINUTE + 1):
        pid = bare.control.ask("GET", "/v1/status")["pid"]
        killed.add(pid)
        os.kill(pid, signal.SIGKILL)
        if len(killed) <= RESTARTS_PER_MINUTE:
            wait_until(lambda: _daemon_pid(bare) not in {0, *killed}, "a new daemon")
    _, error = up.communicate(timeout=PATIENCE_SEC)
    assert up.returncode == 1
    assert f"ended {RESTARTS_PER_MINUTE + 1} times within a minute" in error
    assert not (bare.private_dir / "node").exists()


def test_a_node_in_the_background_that_failed_is_reported(bare: Place) -> None:
    """Its daemon cannot start again: the directory that it needs is gone and no directory may be there."""
    assert bare.nvshare("up", "--sim", "t4:1", "--detach").returncode == 0
    pid = bare.state().pid
    shutil.rmtree(bare.sock_dir)
    bare.sock_dir.write_text("not a directory")
    os.kill(_daemon_pid(bare), signal.SIGKILL)
    assert gone(pid)
    down = bare.nvshare("down")
    assert down.returncode == 3
    assert "the last one failed: the daemon did not start" in down.stderr
    bare.sock_dir.unlink()
    assert bare.nvshare("up", "--sim", "t4:1", "--detach").returncode == 0
    assert bare.nvshare("down").returncode == 0
    assert "failed" not in bare.nvshare("down").stderr


def _daemon_pid(bare: Place) -> int:
    try:
        return int(bare.control.ask("GET", "/v1/status")["pid"])
    except Exception:
        return 0


def test_a_plain_user_has_a_node_of_his_own(bare: Place) -> None:
    """In $XDG_RUNTIME_DIR. A user namespace makes us a plain user who can still read this Python."""
    runtime = bare.directory / "r"
    runtime.mkdir(mode=0o700)
    become = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    keep = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(runtime)}

    def as_user(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*become, *NVSHARE, *arguments],
            env=keep | extra,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SEC,
        )

    up = as_user("up", "--sim", "t4:1", "--detach")
    assert up.returncode == 0, up.stderr
    state = read_state(runtime / "nvshare-private")
    assert state is not None
    inside = ("nsenter", "--user", "--preserve-credentials", "--target", str(state.pid))
    try:
        assert f"sockets in {runtime}/nvshare\n" in up.stdout
        assert stat.S_IMODE((runtime / "nvshare-private").stat().st_mode) == 0o700
        script = "id -u; grep -c nvshare-run- /proc/self/cgroup; exit 9"
        job = subprocess.run(
            [*inside, *NVSHARE, "run", "--gpu-core-limit", "30", "--", "sh", "-c", script],
            env=keep,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SEC,
        )
        assert (job.returncode, job.stdout) == (9, "1000\n0\n"), job.stderr
    finally:
        os.kill(state.pid, signal.SIGTERM)
        assert gone(state.pid)
    without = as_user("up", "--sim", "t4:1", XDG_RUNTIME_DIR="", NVSHARE_PRIVATE_DIR="/proc/nowhere")
    assert without.returncode == 2
    assert "as a plain user set XDG_RUNTIME_DIR" in without.stderr
