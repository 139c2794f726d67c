"""What `pip install .` installs: the libraries in C are part of it, and it runs where nothing else is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

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


def test_without_a_compiler_it_says_what_is_missing(tmp_path: Path) -> None:
    source = copy_of_the_repository(tmp_path / "source")
    result = subprocess.run(
        [sys.executable, "setup.py", "build"],
        cwd=source,
        env={**os.environ, "CC": "no-such-compiler", "PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
    )
    assert result.returncode != 0
    assert (
        "to build them no-such-compiler is missing; on Debian and Ubuntu: apt-get install gcc"
        in result.stderr
    )


@pytest.mark.verify
def test_a_wheel_runs_in_a_fresh_environment(tmp_path: Path) -> None:
    source = copy_of_the_repository(tmp_path / "source")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(source)]
    subprocess.run(build, check=True, timeout=PATIENCE_SEC)
    [wheel] = tmp_path.glob("*.whl")
    assert "-py3-none-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as content:
        assert {name for name in content.namelist() if ".so" in name} == LIBRARIES
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

    assert "SIMULATED GPUs (t4:1)" in nvshare("up", "--sim", "t4:1", "--detach")
    try:
        preloaded = nvshare("run", "--", "sh", "-c", "echo $LD_PRELOAD $LD_LIBRARY_PATH")
        assert preloaded == f"{site}/nvshare/lib/libnvshare.so {site}/nvshare/lib/simgpu\n"
        workload = ("--", python, "-m", "nvshare.workloads", "w2", "--scale", "0.002")
        assert "\nPASS\n" in nvshare("run", "--gpu-core-limit", "50", *workload)
    finally:
        nvshare("down")
