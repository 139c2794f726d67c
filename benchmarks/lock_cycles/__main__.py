"""Lock cycles: the daemon beside a bare lock server in C, same frames, same load generator, interleaved.

1. Flat out: every client asks again as soon as it is served. What a message costs, and how many there can be.
   The time of a hand-over is shown but not judged: flat out it is nothing but the inverse of the throughput.
2. Hand-over: each holder keeps the lock for a millisecond, and the daemon serves one at a time as the bare
   server does. How long a GPU stands idle between two holders.

The daemon is the one that `pip install .` gives, as `make compiled` has installed it, or with --checkout that
of the sources. Which core it has, it says itself.

Medians of several runs each. Ratios last from one machine to the next; microseconds do not.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.lock_cycles.servers import (
    INSTALLED,
    ROOT,
    Figures,
    Server,
    bare_server,
    daemon,
    measure,
    rss_bytes,
    what_to_build,
)

CLIENTS: Final = (1, 10, 100, 500)
HANDOVER_MOST: Final = 1.6
THROUGHPUT_LEAST: Final = 0.3
CPU_MOST: Final = 3.5
QUOTA_COST_MOST: Final = 1.3
CALLBACK_P99_MOST_NS: Final = 1_000_000
RSS_MOST_BYTES: Final = 60_000_000
HOLD_US: Final = 1000
QUOTA_PERCENT: Final = 50
HEADER: Final = f"{'clients':>7} {'server':>7} {'cycles/s':>9} {'p50 us':>8} {'p99 us':>8} {'CPU us/msg':>10}"


class Comparison(NamedTuple):
    base: Figures
    mine: Figures
    callback_p99_ns: int
    rss_bytes: int


class ControlConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("daemon")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(str(self._path))


def ask(server: Server, method: str, path: str, body: object = None) -> dict[str, object]:
    assert server.control is not None
    connection = ControlConnection(server.control)
    connection.request(method, path, json.dumps(body) if body is not None else None)
    answer: dict[str, object] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def core_of(installation: str) -> str:
    """Of the daemon that is measured: compiled or plain."""
    with tempfile.TemporaryDirectory() as name, daemon(Path(name), PYTHONPATH=installation) as ours:
        return str(ask(ours, "GET", "/v1/status")["core"])


def median(runs: list[Figures]) -> Figures:
    return Figures(*(statistics.median(column) for column in zip(*runs, strict=True)))


def compare(clients: int, runs: int, length_ms: int, hold_us: int, **settings: str) -> Comparison:
    """Daemon and bare server in turn, under the same load."""
    with (
        tempfile.TemporaryDirectory() as name,
        bare_server(Path(name)) as bare,
        daemon(Path(name), **settings) as ours,
    ):
        found: dict[str, list[Figures]] = {"bare": [], "daemon": []}
        for _ in range(runs):
            found["bare"].append(measure(bare, clients, length_ms, hold_us))
            found["daemon"].append(measure(ours, clients, length_ms, hold_us))
        callbacks = ask(ours, "GET", "/v1/status")["counters"]["callbacks"]  # type: ignore[index]
        return Comparison(
            median(found["bare"]), median(found["daemon"]), callbacks["p99_ns"], rss_bytes(ours.pid)
        )


def _show(clients: int, found: Comparison, say: Callable[[str], None]) -> None:
    for server, row in (("bare", found.base), ("daemon", found.mine)):
        say(
            f"{clients:>7} {server:>7} {row.cycles_per_sec:>9.0f} {row.handover_p50_us:>8.1f}"
            f" {row.handover_p99_us:>8.1f} {row.cpu_us_per_message:>10.2f}"
        )


def flat_out(installation: str, runs: int, length_ms: int, say: Callable[[str], None]) -> list[str]:
    """Cost and rate at each number of clients; what misses its goal."""
    missed: list[str] = []
    say(f"flat out\n{HEADER}")
    for clients in CLIENTS:
        found = compare(clients, runs, length_ms, 0, PYTHONPATH=installation)
        _show(clients, found, say)
        base, mine = found.base, found.mine
        goals = [
            ("CPU per message", mine.cpu_us_per_message / base.cpu_us_per_message, CPU_MOST, False),
            ("callback p99 ms", found.callback_p99_ns / 1e6, CALLBACK_P99_MOST_NS / 1e6, False),
        ]
        if clients >= 100:
            goals.append(("throughput", mine.cycles_per_sec / base.cycles_per_sec, THROUGHPUT_LEAST, True))
        if clients >= 500:
            goals.append(("RSS MB", found.rss_bytes / 1e6, RSS_MOST_BYTES / 1e6, False))
        missed += _judge(clients, goals, say)
    return missed


def hand_over(installation: str, runs: int, length_ms: int, say: Callable[[str], None]) -> list[str]:
    missed: list[str] = []
    settings = {"PYTHONPATH": installation, "NVSHARE_SCHEDULING_MODE": "serial"}
    say(f"hand-over, holds of {HOLD_US / 1000:g} ms\n{HEADER}")
    for clients in CLIENTS:
        found = compare(clients, runs, length_ms, HOLD_US, **settings)
        _show(clients, found, say)
        ratio = found.mine.handover_p50_us / found.base.handover_p50_us
        missed += _judge(clients, [("hand-over p50", ratio, HANDOVER_MOST, False)], say)
    return missed


def _judge(
    clients: int, goals: list[tuple[str, float, float, bool]], say: Callable[[str], None]
) -> list[str]:
    missed = []
    for name, value, goal, at_least in goals:
        met = value >= goal if at_least else value <= goal
        sign = ">=" if at_least else "<="
        say(f"{'':>15} {name} {value:.2f} (goal {sign} {goal}) {'met' if met else 'MISSED'}")
        if not met:
            missed.append(f"{clients} clients: {name} {value:.2f}")
    return missed


def quotas(installation: str, runs: int, length_ms: int, say: Callable[[str], None]) -> list[str]:
    """What a message costs with quotas, with few tenants and with many.

    Both have more quotas than GPU, so that both keep it busy: else one would be measured waiting.
    """
    costs: dict[int, list[float]] = {50: [], 500: []}
    for _ in range(runs):
        for clients, found in costs.items():
            with tempfile.TemporaryDirectory() as name, daemon(Path(name), PYTHONPATH=installation) as ours:
                for number in range(clients):
                    ask(ours, "PUT", f"/v1/quotas/bench/load-{number}", {"core_percent": QUOTA_PERCENT})
                found.append(measure(ours, clients, length_ms).cpu_us_per_message)
    few, many = (statistics.median(found) for found in costs.values())
    say(f"with quotas: {few:.2f} us a message with 50 clients, {many:.2f} with 500")
    return _judge(500, [("cost beside 50 clients", many / few, QUOTA_COST_MOST, False)], say)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--length-ms", type=int, default=1000)
    parser.add_argument(
        "--checkout", action="store_true", help="the sources of this checkout, not an installation"
    )
    arguments = parser.parse_args()
    if not 1 <= arguments.runs <= 100 or not 10 <= arguments.length_ms <= 600_000:
        print("accepted: 1 to 100 runs of 10 to 600000 ms", file=sys.stderr)
        return 2
    unbuilt = what_to_build("load", "lock_server")
    if unbuilt:
        print(unbuilt, file=sys.stderr)
        return 2
    if not arguments.checkout and not INSTALLED.exists():
        print(f"not built: {INSTALLED.relative_to(ROOT)}; build with: make compiled", file=sys.stderr)
        return 2
    installation = str(ROOT / "src" if arguments.checkout else INSTALLED)
    print(f"measured: the {core_of(installation)} core in {Path(installation).relative_to(ROOT)}")
    missed = flat_out(installation, arguments.runs, arguments.length_ms, print)
    missed += hand_over(installation, arguments.runs, arguments.length_ms, print)
    missed += quotas(installation, arguments.runs, arguments.length_ms, print)
    print("all goals met" if not missed else "missed: " + "; ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
