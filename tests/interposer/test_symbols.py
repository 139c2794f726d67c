"""The library's symbol table: what it stands before, what it needs, and that the README says so."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.interposer.harness import BUILD, LIBRARY, Node

NATIVE = Path(__file__).parents[2] / "native" / "interposer"
FLOOR = (2, 17)
HEADING = "## The functions it stands before"


def table() -> list[str]:
    """The symbols of the table of hooks, with their twins for a default stream per thread."""
    symbols = []
    for kind, symbol, rest in re.findall(
        r"^(GATED|FILL|BLOCKING|HANDLED_STREAM|HANDLED|NVML)\((\w+),([^\n]*)",
        (NATIVE / "hooks.def").read_text(),
        re.MULTILINE,
    ):
        symbols.append(symbol)
        if kind not in ("HANDLED", "NVML"):
            symbols.append(f"{symbol}_{re.search(r'pt[sd][sz]', rest)[0]}")  # type: ignore[index]
    return symbols


def dynamic(library: Path, which: str) -> list[str]:
    command = ["nm", "-D", "--with-symbol-versions", which, str(library)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.split()[-1] for line in out.splitlines()]


def test_it_exports_the_table_and_dlsym_and_nothing_else() -> None:
    versions = {"dlsym@GLIBC_2.2.5", "dlsym@GLIBC_2.17", "dlsym@@GLIBC_2.34"}
    nodes = {"GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.34"}
    exported = {name for name in dynamic(LIBRARY, "--defined-only") if name.split("@")[0] not in nodes}
    assert exported == {*table(), *versions}


def test_the_readme_lists_the_table() -> None:
    listed = re.findall(r"`((?:cu|nvml)\w+)`", (NATIVE / "README.md").read_text().split(HEADING)[1])
    assert listed == sorted(table())


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_release_needs_no_newer_glibc(machine: str) -> None:
    needed = dynamic(BUILD / "release" / machine / "libnvshare.so", "--undefined-only")
    versions = {
        tuple(map(int, found[1].split(".")))
        for name in needed
        if (found := re.search(r"@GLIBC_([0-9.]+)", name))
    }
    assert versions, needed
    assert max(versions) <= FLOOR
    exported = set(dynamic(BUILD / "release" / machine / "libnvshare.so", "--defined-only"))
    assert set(table()) <= exported
    oldest = {"dlsym@GLIBC_2.2.5"} if machine == "x86_64" else set()
    assert {*oldest, "dlsym@GLIBC_2.17", "dlsym@@GLIBC_2.34"} <= exported


def test_the_release_runs(node: Node) -> None:
    library = BUILD / "release" / "x86_64" / "libnvshare.so"
    out, _ = node.run(node.program("plain", "simgpu"), LD_PRELOAD=str(library))
    assert out.endswith("PASS\n")
    node.daemon.wait_words("client registered")


def test_the_release_for_aarch64_runs_on_an_emulated_processor(node: Node) -> None:
    release = BUILD / "release"
    node.set_quota("arm", memory_bytes=4 << 30, core_percent=50)
    settings = {
        "LD_LIBRARY_PATH": str(release / "simgpu-aarch64"),
        "LD_PRELOAD": str(release / "aarch64" / "libnvshare.so"),
    }
    told = [word for name, text in settings.items() for word in ("-E", f"{name}={text}")]
    emulated = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", *told)
    clean = {"LD_PRELOAD": "", "LD_LIBRARY_PATH": ""}  # of the emulator itself
    out, _ = node.run(*emulated, str(release / "simgpu-aarch64" / "plain"), pod="arm", **clean)
    assert out.endswith("PASS\n")
    node.daemon.wait_words("client registered")
