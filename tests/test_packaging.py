"""What `pip install .` installs: a compiled core and the libraries in C. It runs where nothing else is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from nvshare import __version__
from tests.test_repository import ROOT, tracked_files

PATIENCE_SEC = 600
LIBRARIES = {
    "nvshare/lib/libnvshare.so",
    "nvshare/lib/simgpu/libcuda.so.1",
    "nvshare/lib/simgpu/libnvidia-ml.so.1",
}


def copy_of_the_repository(directory: Path) -> Path:
    """Without what was built in it."""
    for path in tracked_files():
        target = directory / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return directory


def build(source: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: text for name, text in os.environ.items() if name != "NVSHARE_COMPILE"}
    return subprocess.run(
        [sys.executable, "setup.py", *command],
        cwd=source,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
    )


def built(source: Path) -> Path:
    [package] = source.glob("build/lib*/nvshare")
    return package


def libraries_in(directory: Path) -> set[str]:
    return {path.name for path in directory.rglob("*.so*")}


def test_without_a_compiler_it_is_plain_and_says_why(tmp_path: Path) -> None:
    source = copy_of_the_repository(tmp_path / "source")
    result = build(source, "build", CC="no-such-compiler", PATH=os.defpath)
    assert result.returncode == 0, result.stderr
    missing = "installed without no-such-compiler; on Debian and Ubuntu: apt-get install gcc"
    assert f"nvshare: its core is left plain Python, which is slower: {missing}" in result.stderr
    assert "to build them no-such-compiler is missing" in result.stderr
    assert missing in (built(source) / "plain_reason.txt").read_text()
    assert libraries_in(built(source).parent) == set()


def test_a_build_that_must_compile_fails_instead(tmp_path: Path) -> None:
    source = copy_of_the_repository(tmp_path / "source")
    result = build(source, "build", CC="no-such-compiler", PATH=os.defpath, NVSHARE_COMPILE="1")
    assert result.returncode != 0
    assert "to build them no-such-compiler is missing; on Debian and Ubuntu: apt-get" in result.stderr


def test_on_request_it_stays_plain(tmp_path: Path) -> None:
    source = copy_of_the_repository(tmp_path / "source")
    stale = source / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for left in ("nvshare/core/scheduler.cpython-311.so", "1234__mypyc.cpython-311.so"):
        (stale / left).parent.mkdir(parents=True, exist_ok=True)
        (stale / left).touch()
    result = build(source, "bdist_wheel", NVSHARE_COMPILE="0")
    assert result.returncode == 0, result.stderr
    [wheel] = source.glob("dist/*.whl")
    assert "-py3-none-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as content:
        assert {name for name in content.namelist() if ".so" in name} == LIBRARIES
        assert b"NVSHARE_COMPILE=0" in content.read("nvshare/plain_reason.txt")


def test_an_editable_installation_stays_plain(tmp_path: Path) -> None:
    """Even if somebody insists: here it would fail, since mypyc cannot be loaded."""
    source = copy_of_the_repository(tmp_path / "source")
    (tmp_path / "mypyc").mkdir()
    (tmp_path / "mypyc" / "__init__.py").write_text('raise ImportError("not here")')
    insisting = {"NVSHARE_COMPILE": "1", "PYTHONPATH": str(tmp_path)}
    result = build(source, "editable_wheel", "--dist-dir", str(tmp_path), **insisting)
    assert result.returncode == 0, result.stderr
    assert libraries_in(source) == set()
    assert not (source / "src" / "nvshare" / "plain_reason.txt").exists()


def test_a_wish_that_nobody_understands_is_refused(tmp_path: Path) -> None:
    source = copy_of_the_repository(tmp_path / "source")
    result = build(source, "--version", NVSHARE_COMPILE="yes")
    assert result.returncode != 0
    assert "NVSHARE_COMPILE='yes' is not accepted; accepted: 0, 1, or not set" in result.stderr


@pytest.mark.verify
def test_what_fails_to_compile_leaves_nothing_compiled_behind(tmp_path: Path) -> None:
    """The libraries can be built, and so can the first parts of the core."""
    source = copy_of_the_repository(tmp_path / "source")
    compiler = tmp_path / "fails-at-last"
    compiler.write_text('#!/bin/sh\ncase "$*" in *-shared*__native_*) exit 1;; esac\nexec cc "$@"\n')
    compiler.chmod(0o755)
    result = build(source, "build", CC=str(compiler))
    assert result.returncode == 0, result.stderr
    assert "which is slower: the C compiler failed: " in result.stderr
    assert {
        f"nvshare/{path.relative_to(built(source))}" for path in built(source).rglob("*.so*")
    } == LIBRARIES
    assert list(built(source).parent.glob("*.so")) == []


@pytest.mark.verify
def test_a_wheel_runs_in_a_fresh_environment(tmp_path: Path) -> None:
    source = copy_of_the_repository(tmp_path / "source")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(source)]
    subprocess.run(build, check=True, timeout=PATIENCE_SEC)
    [wheel] = tmp_path.glob("*.whl")
    tag = sys.implementation.cache_tag.replace("cpython-", "cp")
    assert f"-{tag}-{tag}-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as content:
        assert {name for name in content.namelist() if ".so" in name} > LIBRARIES
    fresh = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(fresh)], check=True)
    python = str(fresh / "bin" / "python")
    subprocess.run([*pip, "--python", python, "install", "--no-deps", str(wheel)], check=True)
    # Dependencies as they are here; a path in a .pth file does not bring our editable installation along.
    [site] = fresh.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def nvshare(*arguments: str) -> str:
        environment = {
            "PATH": f"{fresh}/bin:{os.environ['PATH']}",
            "NVSHARE_SOCK_DIR": str(tmp_path / "s"),
            "NVSHARE_PRIVATE_DIR": str(tmp_path / "p"),
        }
        result = subprocess.run(
            [str(fresh / "bin" / "nvshare"), *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SEC,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert nvshare("--version") == f"nvshare {__version__}, compiled core\n"
    assert "SIMULATED GPUs (t4:1)" in nvshare("up", "--sim", "t4:1", "--detach")
    try:
        preloaded = nvshare("run", "--", "sh", "-c", "echo $LD_PRELOAD $LD_LIBRARY_PATH")
        assert preloaded == f"{site}/nvshare/lib/libnvshare.so {site}/nvshare/lib/simgpu\n"
        workload = ("--", python, "-m", "nvshare.workloads", "w2", "--scale", "0.002")
        assert "\nPASS\n" in nvshare("run", "--gpu-core-limit", "50", *workload)
        assert f"{__version__}, compiled core" in nvshare("ctl", "status")
    finally:
        nvshare("down")
