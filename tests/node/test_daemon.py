"""Operating the daemon: directories, signals, settings, control, and what it says."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from nvshare.wire.dialects import ORIGINAL, V2
from tests.node.commands import T, ctl, nvshare
from tests.node.harness import PATIENCE_SEC, DaemonProcess, gpu_key, running


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_modes_are_those_the_seeds_have(daemon: DaemonProcess) -> None:
    assert mode(daemon.sock_dir) == 0o711
    assert mode(daemon.path) == 0o722
    assert mode(daemon.private_dir) == 0o700
    assert mode(daemon.private_dir / "control.sock") == 0o600
    assert mode(daemon.private_dir / "token") == 0o600
    assert os.listdir(daemon.sock_dir) == ["scheduler.sock"]


@pytest.mark.parametrize("shared", ["sock", "private"])
def test_a_second_daemon_says_who_has_the_directory(
    daemon: DaemonProcess, tmp_path: Path, shared: str
) -> None:
    sock_dir = daemon.sock_dir if shared == "sock" else tmp_path / "s"
    private_dir = daemon.private_dir if shared == "private" else tmp_path / "p"
    second = nvshare("scheduler", "--sock-dir", str(sock_dir), "--private-dir", str(private_dir))
    assert second.returncode == 4
    assert f"pid {daemon.pid}" in second.stderr
    daemon.client("still-served").cycle()


def run_delay_ns(pid: int) -> int:
    """How long a process was ready to run and the machine had no processor for it: no doing of its own."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])


def own_time_to_end_sec(daemon: DaemonProcess) -> float:
    """From SIGTERM to its end, without what the machine kept from it."""
    assert daemon.process is not None
    ended = os.pidfd_open(daemon.pid)
    try:
        before_ns, start_ns = run_delay_ns(daemon.pid), time.monotonic_ns()
        daemon.process.send_signal(signal.SIGTERM)
        assert select.select([ended], [], [], PATIENCE_SEC)[0]
        took_ns = time.monotonic_ns() - start_ns
        return (took_ns - (run_delay_ns(daemon.pid) - before_ns)) / 1e9  # it is not reaped yet
    finally:
        os.close(ended)


def test_sigterm_ends_it_within_2_s(open_path: Path) -> None:
    with running(open_path) as daemon:
        clients = [daemon.client(f"c{number}") for number in range(20)]
        clients[0].lock()
        with socket.socket(socket.AF_UNIX) as idle:
            idle.connect(str(daemon.control.path))
            daemon.connect()
            assert own_time_to_end_sec(daemon) < 2
        assert daemon.stop() == 0
        assert not daemon.path.exists()
        assert all(client.ended() for client in clients)


def test_sigterm_ends_it_within_2_s_though_its_disk_hangs(open_path: Path) -> None:
    """Who waits for the disk then is not waited for either."""
    with running(open_path, module="tests.node.run_daemon_on_hung_disk") as daemon:
        client = daemon.client("a")

        def register() -> None:
            with contextlib.suppress(Exception):
                daemon.control.ask("POST", "/v1/runs", {"pid": os.getpid(), "pod": "job"})

        waiting = threading.Thread(target=register)
        waiting.start()
        daemon.wait_status(lambda status: status["checkpoint_current"] is False)
        client.cycle()
        assert own_time_to_end_sec(daemon) < 2
        waiting.join(PATIENCE_SEC)
        assert daemon.stop() == 0
        assert any("the last checkpoint is not on disk yet" in line for line in daemon.log)


def test_sighup_reloads_and_keeps_the_old_settings_if_the_file_is_bad(open_path: Path) -> None:
    file = open_path / "config.yaml"
    file.write_text("log: info\n")
    with running(open_path, arguments=["--config", str(file)]) as daemon:
        file.write_text("log: info\nswitch_time_fixed: 77\nswitch_time_mode: fixed\nmetrics_addr: '1234'\n")
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.wait_words("settings reloaded")
        assert any("needs a restart" in line and "NVSHARE_METRICS_ADDR" in line for line in daemon.log)
        daemon.client()
        [gpu] = daemon.control.ask("GET", "/v1/gpus")["gpus"]
        assert gpu["slice_ns"] == 77 * 10**9
        file.write_text("switch_time_fixed: 0\n")
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.wait_words("settings not reloaded")
        [gpu] = daemon.control.ask("GET", "/v1/gpus")["gpus"]
        assert gpu["slice_ns"] == 77 * 10**9


@pytest.mark.parametrize(
    ("line", "field", "before", "after"),
    [
        ("unlimited_min_percent: 40", "unlimited_min_percent", 5, 40),
        ("scheduling_mode: serial", "scheduling_mode", "auto", "serial"),
        ("compute_window_ms: 500", "compute_window_ns", 2_000_000_000, 500_000_000),
    ],
)
def test_sighup_changes_what_the_core_goes_by(
    open_path: Path, line: str, field: str, before: object, after: object
) -> None:
    file = open_path / "config.yaml"
    file.write_text("log: info\n")
    with running(open_path, arguments=["--config", str(file)]) as daemon:
        client = daemon.client("a")
        assert daemon.status()["settings"][field] == before
        file.write_text(line + "\n")
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.wait_words("settings reloaded")
        assert daemon.status()["settings"][field] == after
        name, value = line.split(": ")
        [told] = [text for text in daemon.log if "settings reloaded" in text]
        assert f"NVSHARE_{name.upper()}={value}" in told
        assert not any("needs a restart" in text for text in daemon.log)
        client.cycle()


def test_sighup_moves_no_sockets(open_path: Path) -> None:
    """What needs a restart stays as it is until then, in what is shown and in what the end cleans up."""
    file, elsewhere = open_path / "config.yaml", open_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("scheduler.sock", "control.sock"):
        (elsewhere / name).write_text("another daemon's")
    file.write_text(f"sock_dir: {open_path}/s\nprivate_dir: {open_path}/p\n")
    with running(open_path, directories=["--config", str(file)]) as daemon:
        file.write_text(f"sock_dir: {elsewhere}\nprivate_dir: {elsewhere}\n")
        for times in (1, 2):
            os.kill(daemon.pid, signal.SIGHUP)
            daemon.wait_words("settings reloaded", times)
            for variable in ("NVSHARE_SOCK_DIR", "NVSHARE_PRIVATE_DIR"):
                told = [line for line in daemon.log if "needs a restart" in line and variable in line]
                assert len(told) == times, "each time, while it is not so"
        status = daemon.status()
        assert (status["sock_dir"], status["private_dir"]) == (f"{open_path}/s", f"{open_path}/p")
        assert daemon.stop() == 0
        assert not daemon.path.exists()
        assert not daemon.control.path.exists()
        assert sorted(os.listdir(elsewhere)) == ["control.sock", "scheduler.sock"]


def test_a_settings_file_that_hangs_delays_nobody(open_path: Path) -> None:
    file = open_path / "config.yaml"
    file.write_text("log: info\n")
    with running(open_path, arguments=["--config", str(file)]) as daemon:
        file.unlink()
        os.mkfifo(file)  # opening it waits for who writes
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.client("served").cycle()
        with file.open("w") as writer:
            writer.write("log: debug\n")
        daemon.wait_words("settings reloaded")
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.client("served").cycle()
        assert daemon.stop() == 0, "nor is its end"


def test_json_logs_are_json(open_path: Path) -> None:
    with running(open_path, environment={"NVSHARE_LOG_FORMAT": "json"}) as daemon:
        daemon.client("a")
        daemon.wait_words("client registered")
        lines = [json.loads(line) for line in daemon.log]
        assert [line["pod"] for line in lines if line["event"] == "client registered"] == ["default/a"]


def test_one_line_a_tenant_event_and_none_a_cycle(daemon: DaemonProcess) -> None:
    client = daemon.client("quiet")
    daemon.wait_words("client registered")
    lines = len(daemon.log)
    for _ in range(200):
        client.cycle()
    client.round_trip()
    client.close()
    daemon.wait_words("client disconnected")
    assert len(daemon.log) == lines + 1


def test_limits_change_with_the_words_that_tools_look_for(daemon: DaemonProcess) -> None:
    client = daemon.client("web", dialect=V2)
    assert ctl(daemon, "quota", "set", "web", "--memory", "4Gi", "--core", "30").returncode == 0
    assert client.expect(T.UPDATE_LIMIT).memory_limit_bytes == 4 << 30
    assert client.expect(T.UPDATE_CORE_LIMIT).core_limit_percent == 30
    for words in (
        "Memory limit changed for pod default/web",
        "Sending UPDATE_LIMIT",
        "Compute limit changed for pod default/web",
        "Sending UPDATE_CORE_LIMIT",
    ):
        daemon.wait_words(words)
    assert ctl(daemon, "quota", "set", "web", "--core", "40").returncode == 0
    limits = daemon.control.ask("GET", "/v1/quotas/web")["limits"]
    assert (limits["memory_bytes"], limits["core_percent"]) == (4 << 30, 40), "what is not named stays"
    assert ctl(daemon, "quota", "unset", "web").returncode == 0
    assert client.expect(T.UPDATE_LIMIT).memory_limit_bytes == 0


def test_the_log_says_what_is_sent_and_to_which_client(daemon: DaemonProcess) -> None:
    """Two that must be told their part of the limit, and one that knows no such message."""
    told = [daemon.client("web", dialect=V2) for _ in range(2)]
    daemon.client("web", dialect=ORIGINAL)
    daemon.set_quota("web", memory_bytes=6 << 30, core_percent=30)
    sent = {f"{one.client_id:016x}": one.expect(T.UPDATE_LIMIT).memory_limit_bytes for one in told}
    assert set(sent.values()) == {2 << 30}
    daemon.client("afterwards")
    daemon.wait_words("pod=default/afterwards")
    lines = [line for line in daemon.log if "UPDATE_LIMIT" in line or "UPDATE_CORE_LIMIT" in line]
    assert len(lines) == 4, lines
    for client, amount in sent.items():
        assert len([line for line in lines if client in line and f"bytes={amount}" in line]) == 1
    changed = next(place for place, line in enumerate(daemon.log) if "Memory limit changed" in line)
    assert changed < daemon.log.index(lines[0]), "why, then what"
    daemon.set_quota("web", memory_bytes=6 << 30)
    for one in told:
        one.cycle()
        assert not [message for message in one.heard if message.type is T.UPDATE_LIMIT]


def test_a_run_is_the_pod_of_its_children(daemon: DaemonProcess) -> None:
    body = {"pid": os.getpid(), "pod": "job", "core_percent": 25, "memory_bytes": 1 << 30}
    assert daemon.control.ask("POST", "/v1/runs", body)["limits"]["core_source"] == "run"
    client = daemon.client()
    assert client.client_id
    [row] = daemon.control.ask("GET", "/v1/clients")["clients"]
    assert (row["pod"], row["core_percent"], row["memory_limit_bytes"]) == ("default/job", 25, 1 << 30)


def test_a_run_that_ended_leaves_no_limits(daemon: DaemonProcess) -> None:
    with subprocess.Popen(["sleep", "1000"]) as run:
        daemon.control.ask("POST", "/v1/runs", {"pid": run.pid, "pod": "job", "core_percent": 25})
        assert daemon.control.ask("GET", "/v1/quotas/job")["limits"]["core_percent"] == 25
        assert daemon.stop() == 0
        daemon.start()
        assert daemon.control.ask("GET", "/v1/quotas/job")["limits"]["core_percent"] == 25
        run.kill()
    daemon.wait_words("Compute limit changed for pod default/job source=none")
    assert daemon.control.ask("GET", "/v1/quotas/job")["limits"]["core_percent"] == 100


def test_known_gpus_are_the_only_ones(open_path: Path) -> None:
    gpus = f"{gpu_key(0)}=16Gi,{gpu_key(1)}=8Gi"
    with running(open_path, arguments=["--gpus", gpus]) as daemon:
        assert daemon.connect().register(gpu=gpu_key(2)).data == "unknown_gpu"
        assert daemon.connect().register(gpu="all").data == "several_gpus"
        daemon.client("a", "1")
        daemon.client("b", f"{gpu_key(0)},{gpu_key(1)}", V2)
        rows = {row["pod"]: row["gpu"] for row in daemon.control.ask("GET", "/v1/clients")["clients"]}
        assert rows == {"default/a": gpu_key(1), "default/b": gpu_key(0)}
        totals = [gpu["total_bytes"] for gpu in daemon.control.ask("GET", "/v1/gpus")["gpus"]]
        assert totals == [16 << 30, 8 << 30]


def test_nvml_that_is_not_there_is_an_error_if_it_was_asked_for(tmp_path: Path) -> None:
    result = nvshare(
        "scheduler", "--sock-dir", str(tmp_path), "--private-dir", str(tmp_path / "p"), "--gpus", "nvml"
    )
    assert result.returncode == 2
    assert "NVML" in result.stderr


def test_print_config_and_bad_values() -> None:
    shown = nvshare("scheduler", "--print-config", "--gpus", f"{gpu_key()}=1Gi", NVSHARE_LOG="error")
    assert shown.returncode == 0
    assert "NVSHARE_LOG                        error  (environment)" in shown.stdout
    for variable, value in (
        ("NVSHARE_METRICS_ADDR", "x:y"),
        ("NVSHARE_METRICS_ADDR", "a..b:9402"),
        ("NVSHARE_COMPUTE_WINDOW_MS", "499"),
    ):
        result = nvshare("scheduler", "--print-config", **{variable: value})
        assert result.returncode == 2
        assert f"{variable}={value!r}" in result.stderr


WALL_CLOCK_THAT_JUMPS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

/* The wall clock jumps a day forth and back at every call; every other clock goes as ever. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    static int calls;
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += (calls++ % 3 - 1) * 86400;
    return result;
}
"""


def test_steps_of_the_wall_clock_change_nothing(open_path: Path) -> None:
    source, library = open_path / "clock.c", open_path / "clock.so"
    source.write_text(WALL_CLOCK_THAT_JUMPS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    with running(open_path, environment={"LD_PRELOAD": str(library)}) as daemon:
        for pod in ("a", "b"):
            daemon.set_quota(pod, core_percent=45)
        first, second = daemon.client("a"), daemon.client("b")
        first.lock()
        start_ns = time.monotonic_ns()
        for _ in range(5):
            second.send(T.REQ_LOCK)
            first.expect(T.DROP_LOCK)
            first.send(T.LOCK_RELEASED)
            second.expect(T.LOCK_OK)
            first, second = second, first
        assert time.monotonic_ns() - start_ns < 20_000_000_000, "five turns, none longer than a few seconds"
        days = {line[:10] for line in daemon.log if line[:2] == "20"}
        assert len(days) > 1, "the clock did jump"


def test_work_of_programs_that_went_idle_is_counted_without_metrics(daemon: DaemonProcess) -> None:
    """Nobody samples the GPU and nobody says anything more: the daemon counts by itself."""
    clients = [daemon.client(pod) for pod in ("one", "other")]
    for client in clients:
        client.lock()
    time.sleep(0.1)  # they work
    for client in clients:
        client.send(T.TURN_ENDED, arguments=(40_000_000, 0, 1_000_000, 0, 0, 40_000_000))
        client.round_trip()

    def counted_ns() -> list[int]:
        found = [daemon.control.ask("GET", f"/v1/tenants/{pod}")["tenants"] for pod in ("one", "other")]
        return [tenant["gpu_time_ns"] for [tenant] in found]

    deadline = time.monotonic() + PATIENCE_SEC
    while 0 in counted_ns():
        assert time.monotonic() < deadline, "never counted"
        time.sleep(0.05)
    assert 40_000_000 <= sum(counted_ns()) <= 80_000_000
