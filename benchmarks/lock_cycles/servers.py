"""Starts the contenders and measures what they use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build" / "benchmarks"
INSTALLED: Final = ROOT / "build" / "compiled"  # what `pip install .` gives; `make compiled`
GPUS: Final = 8
MESSAGES_PER_CYCLE: Final = 3
START_SEC: Final = 30


def what_to_build(*programs: str) -> str:
    """How to get the programs of a benchmark that are not there; empty if all are."""
    missing = [BUILD / name for name in programs if not (BUILD / name).exists()]
    if not missing:
        return ""
    names = " ".join(str(path.relative_to(ROOT)) for path in missing)
    return f"not built: {names}; build with: make {names}"


class Server(NamedTuple):
    pid: int
    socket: Path
    control: Path | None


class Figures(NamedTuple):
    """Of one run."""

    cycles_per_sec: float
    handover_p50_us: float
    handover_p99_us: float
    cpu_us_per_message: float


def cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process."""
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns


def rss_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


@contextmanager
def _running(
    command: list[str], socket: Path, control: Path | None, extra: Mapping[str, str]
) -> Iterator[Server]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("NVSHARE_")}
    with subprocess.Popen(command, env={**environment, **extra}, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + START_SEC
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} did not start")
                time.sleep(0.01)
            yield Server(process.pid, socket, control)
        finally:
            process.send_signal(signal.SIGTERM)


@contextmanager
def bare_server(directory: Path) -> Iterator[Server]:
    socket = directory / "bare.sock"
    with _running([str(BUILD / "lock_server"), str(socket)], socket, None, {}) as server:
        yield server


@contextmanager
def daemon(directory: Path, **settings: str) -> Iterator[Server]:
    sock_dir, private_dir = directory / "s", directory / "p"
    command = [sys.executable, "-m", "nvshare", "scheduler"]
    command += ["--sock-dir", str(sock_dir), "--private-dir", str(private_dir)]
    command += [
        "--gpus",
        ",".join(f"GPU-00000000-0000-0000-0000-{number:012}=16Gi" for number in range(GPUS)),
    ]
    socket, control = sock_dir / "scheduler.sock", private_dir / "control.sock"
    with _running(command, socket, control, settings) as server:
        yield server


def measure(server: Server, clients: int, length_ms: int, hold_us: int = 0) -> Figures:
    """One run of the load generator."""
    arguments = (server.socket, clients, GPUS, length_ms, hold_us)
    command = [str(BUILD / "load"), *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as load:
        assert load.stdin is not None
        assert load.stdout is not None
        if load.stdout.readline() != "ready\n":
            raise RuntimeError("the load generator did not start")
        before_ns = cpu_ns(server.pid)
        load.stdin.write("\n")
        cycles, elapsed_ns, p50_ns, p99_ns, _drops = map(int, load.stdout.readline().split())
        used_ns = cpu_ns(server.pid) - before_ns
        load.stdin.close()
        load.wait()
    return Figures(
        cycles / elapsed_ns * 1e9,
        p50_ns / 1e3,
        p99_ns / 1e3,
        used_ns / 1e3 / max(1, cycles * MESSAGES_PER_CYCLE),
    )
