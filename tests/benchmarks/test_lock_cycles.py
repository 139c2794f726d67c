"""The benchmark's own programs: clean under the sanitizers, and they measure what they say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.lock_cycles import servers
from benchmarks.lock_cycles.servers import bare_server, daemon, measure


@pytest.fixture
def sanitized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    sources = Path(servers.__file__).parent
    for name in ("load", "lock_server"):
        flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-fsanitize=address,undefined"]
        flags += ["-fno-sanitize-recover=all"]
        command = ["cc", *flags, "-o", str(tmp_path / name), str(sources / f"{name}.c")]
        subprocess.run(command, check=True)
    monkeypatch.setattr(servers, "BUILD", tmp_path)
    return tmp_path


@pytest.mark.parametrize("clients", [1, 40])
def test_both_servers_give_cycles_to_the_same_load(sanitized: Path, clients: int) -> None:
    with bare_server(sanitized) as bare, daemon(sanitized) as ours:
        for server in (bare, ours):
            figures = measure(server, clients, 100)
            assert figures.cycles_per_sec > 0
            assert figures.cpu_us_per_message > 0
            assert 0 < figures.handover_p50_us <= figures.handover_p99_us
