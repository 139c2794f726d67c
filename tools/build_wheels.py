"""Build wheels with a compiled core for every version of Python found here, x86-64 and aarch64, in dist/.

zig compiles for glibc 2.17, as `make release-libs` does, so they are manylinux2014. For aarch64 the headers
are those of the Python found here: sizes, byte order and layouts are the same on both.
What cannot be built is listed, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
VERSIONS: Final = ("3.11", "3.12", "3.13")
MACHINES: Final = ("x86_64", "aarch64")
GLIBC: Final = (2, 17)
SOURCES: Final = (
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "README.zh-CN.md",
    "CHANGELOG.md",
    "LICENSE",
    "src",
    "native",
)
WHERE: Final = (
    "import sys, sysconfig; print(sys.executable); print(sysconfig.get_path('include') + '/Python.h')"
)


class WheelError(Exception):
    """A wheel could not be built, or is not what it says."""


class Target(NamedTuple):
    version: str
    machine: str

    @property
    def digits(self) -> str:
        return self.version.replace(".", "")

    @property
    def suffix(self) -> str:
        return f".cpython-{self.digits}-{self.machine}-linux-gnu.so"

    @property
    def platform(self) -> str:
        return f"manylinux2014_{self.machine}"


def interpreter(version: str) -> str:
    """The path of one that can run and has its headers. A name in PATH alone may be a shim that runs none."""
    candidates = [f"python{version}"]
    pyenv = os.environ.get("PYENV_ROOT") or str(Path.home() / ".pyenv")
    installed = Path(pyenv).glob(f"versions/{version}.*/bin/python{version}")
    candidates += [str(path) for path in sorted(installed)]
    for name in candidates:
        if shutil.which(name) is None:
            continue
        found = subprocess.run([name, "-c", WHERE], capture_output=True, text=True)
        path, _, header = found.stdout.strip().partition("\n")
        if found.returncode == 0 and Path(header).exists():
            return path
    raise WheelError(f"no python{version} with its headers is here")


@contextmanager
def copy_of_the_sources() -> Iterator[Path]:
    """So that nothing of another build gets in, and nothing of this one stays."""
    with tempfile.TemporaryDirectory(prefix="nvshare-wheel-") as name:
        for source in SOURCES:
            path, target = ROOT / source, Path(name) / source
            if path.is_dir():
                shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                shutil.copy(path, target)
        yield Path(name)


def build(target: Target, python: str, out: Path) -> Path:
    glibc = ".".join(map(str, GLIBC))
    compiler = f"{sys.executable} -m ziglang cc -target {target.machine}-linux-gnu.{glibc}"
    environment = {
        **os.environ,
        "NVSHARE_COMPILE": "1",
        "CC": compiler,
        "LDSHARED": f"{compiler} -shared -s",  # that of a Python may name a directory of this machine
        "SETUPTOOLS_EXT_SUFFIX": target.suffix,
        "TARGET": target.machine,
    }
    option = f"--build-option=--plat-name={target.platform}"
    with copy_of_the_sources() as sources:
        command = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "wheel"]
        command += ["--quiet", "--no-deps", "--wheel-dir", str(sources / "dist")]
        command += [f"--config-settings={option}", str(sources)]
        built = subprocess.run(command, env=environment, capture_output=True, text=True)
        if built.returncode:
            raise WheelError("\n".join(built.stderr.splitlines()[-20:]))
        [wheel] = (sources / "dist").glob("*.whl")
        check(wheel, target)
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, out / wheel.name))


def check(wheel: Path, target: Target) -> None:
    """It is named for its target, and what it holds is of that machine and needs no newer glibc."""
    if not wheel.name.endswith(f"-cp{target.digits}-cp{target.digits}-{target.platform}.whl"):
        raise WheelError(f"{wheel.name} is not named for {target.version} on {target.platform}")
    with zipfile.ZipFile(wheel) as content, tempfile.TemporaryDirectory() as name:
        libraries = [entry for entry in content.namelist() if ".so" in Path(entry).name]
        if f"nvshare/core/scheduler{target.suffix}" not in libraries:
            raise WheelError(f"{wheel.name} has no compiled core for {target.suffix}")
        for entry in libraries:
            _check_library(content.extract(entry, name), entry, target)


def _check_library(path: str, entry: str, target: Target) -> None:
    def read(option: str) -> str:
        command = ["readelf", "--wide", option, path]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    machine = {"x86_64": "X86-64", "aarch64": "AArch64"}[target.machine]
    if machine not in read("--file-header"):
        raise WheelError(f"{entry} is not for {target.machine}")
    if "RUNPATH" in (dynamic := read("--dynamic")) or "RPATH" in dynamic:
        raise WheelError(f"{entry} looks for libraries in a directory of this machine")
    _, _, needed = read("--version-info").partition("Version needs section")
    versions = [tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", needed)]
    if max(versions, default=GLIBC) > GLIBC:
        raise WheelError(f"{entry} needs glibc {'.'.join(map(str, max(versions)))}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", choices=VERSIONS, help="only this version")
    parser.add_argument("--machine", action="append", choices=MACHINES, help="only for this one")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    failed = 0
    for version in arguments.python or VERSIONS:
        for machine in arguments.machine or MACHINES:
            target = Target(version, machine)
            try:
                wheel = build(target, interpreter(version), arguments.out)
                print(f"built {wheel.name}, {wheel.stat().st_size // 1024} KiB", flush=True)
            except WheelError as error:
                failed += 1
                print(f"not built: Python {version}, {target.platform}: {error}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
