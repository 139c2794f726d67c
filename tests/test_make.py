"""What `make` does for a user: it says what it is about to install, and shows a demo without delay."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.test_packaging import PATIENCE_SEC, copy_of_the_repository


def make(where: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("MAKE", "PYTHONPATH"))}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=where,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
    )


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return copy_of_the_repository(tmp_path / "checkout")


@pytest.fixture
def machine_without_compiler(tmp_path: Path) -> Path:
    """The directory of the only programs there are."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "make"):
        (tools / name).symlink_to(shutil.which(name) or name)
    program(tools / "id", "echo 0")
    return tools


def test_root_is_told_what_is_installed_and_why(checkout: Path, machine_without_compiler: Path) -> None:
    program(machine_without_compiler / "apt-get", 'echo "apt-get $*" >&2')
    told = make(checkout, "compiler", PATH=str(machine_without_compiler)).stderr.splitlines()
    assert told[0] == (
        "nvshare: installing gcc libc6-dev with apt-get, to build libnvshare.so and the simulated driver"
    )
    assert told[1].startswith("apt-get update")


def test_anybody_else_is_told_what_is_missing(checkout: Path, machine_without_compiler: Path) -> None:
    program(machine_without_compiler / "apt-get", "echo asked >&2")
    program(machine_without_compiler / "id", "echo 1000")
    done = make(checkout, "compiler", PATH=str(machine_without_compiler))
    assert done.returncode != 0
    assert "on Debian and Ubuntu: apt-get install gcc libc6-dev" in done.stderr
    assert "asked" not in done.stderr


def test_simulated_gpus_need_a_compiler_and_nothing_else(checkout: Path) -> None:
    planned = make(checkout, "-n", "simgpu").stdout
    assert "valgrind" not in planned
    assert "sanitize" not in planned
    assert "valgrind" in make(checkout, "-n", "test-programs").stdout


def test_the_demo_is_compiled_only_if_that_is_there_and_fresh(checkout: Path) -> None:
    program(checkout / ".venv/bin/nvshare", 'echo "with <$PYTHONPATH>"')

    def touch(name: str, later_sec: float) -> None:
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (time.time() + later_sec,) * 2)

    def demo() -> str:
        skipped = ("-o", "compiler", "-o", "simgpu", "-o", "interposer", "-o", "libraries")
        return make(checkout, *skipped, "demo").stdout.strip()

    touch(".venv/.ready", 10)
    assert demo() == "with <>"
    touch("build/compiled/nvshare/build.py", 20)
    touch("build/compiled/.ready", 20)
    assert demo() == f"with <{checkout}/build/compiled>"
    touch("src/nvshare/core/engine.py", 30)
    assert demo() == "with <>"
