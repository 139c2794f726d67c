"""A wheel that is not what its name says is not shipped."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from tools.build_wheels import Target, WheelError, check, interpreter

TARGET = Target("3.11", "x86_64")
NAME = "nvshare-0.1.0-cp311-cp311-manylinux2014_x86_64.whl"
CORE = "nvshare/core/scheduler.cpython-311-x86_64-linux-gnu.so"
OLD = "void nothing(void) {}"  # needs nothing of glibc
NEW = "#include <sys/random.h>\nint draw(char *at) { return (int)getrandom(at, 1, 0); }"  # since 2.25


def wheel(tmp_path: Path, name: str = NAME, entry: str = CORE, code: str = OLD, *flags: str) -> Path:
    source, library, path = tmp_path / "part.c", tmp_path / "part.so", tmp_path / name
    source.write_text(code)
    command = ["cc", "-shared", "-fPIC", "-nostartfiles", str(source), "-o", str(library), *flags]
    subprocess.run(command, check=True)
    with zipfile.ZipFile(path, "w") as content:
        content.write(library, entry)
    return path


def test_a_good_one_passes(tmp_path: Path) -> None:
    check(wheel(tmp_path), TARGET)


def test_a_wrong_name(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match=r"py3-none-linux_x86_64\.whl is not named for 3\.11"):
        check(wheel(tmp_path, "nvshare-0.1.0-py3-none-linux_x86_64.whl"), TARGET)


def test_a_plain_core(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="no compiled core"):
        check(wheel(tmp_path, entry="nvshare/lib/libnvshare.so"), TARGET)


def test_a_newer_glibc(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match=r"needs glibc 2\.25"):
        check(wheel(tmp_path, NAME, CORE, NEW), TARGET)


def test_a_directory_of_this_machine(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="looks for libraries in a directory of this machine"):
        check(wheel(tmp_path, NAME, CORE, OLD, "-Wl,-rpath,/opt/python/lib"), TARGET)


def test_another_machine(tmp_path: Path) -> None:
    name, core = NAME.replace("x86_64", "aarch64"), CORE.replace("x86_64", "aarch64")
    with pytest.raises(WheelError, match="is not for aarch64"):
        check(wheel(tmp_path, name, core), Target("3.11", "aarch64"))


def test_a_version_that_is_not_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WheelError, match=r"no python3\.13 with its headers is here"):
        interpreter("3.13")
