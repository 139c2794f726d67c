"""With NVSHARE_COMPILE=1 what every message passes through is compiled by mypyc: the core, the wire format,
the daemon's connections. Without, the same code is plain Python.

Plain is the default, so that what a developer edits is what runs. Compiled is several times faster
(`make bench` shows both) and made for installations: NVSHARE_COMPILE=1 pip install --no-build-isolation .

The two libraries in C are always built and shipped with the package, in nvshare/lib: the one that programs
are started with, and the simulated driver. An editable installation has none and uses the repository's build.
"""

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError

NODE_MODULES = ("connection.py", "counters.py", "fair_queue.py", "hub.py", "stream.py", "telling.py")
NOT_COMPILED = ("__init__.py", "document.py")  # the second makes a page of docs

extensions = []
if os.environ.get("NVSHARE_COMPILE") == "1":
    from mypyc.build import mypycify

    modules = [
        path for folder in ("core", "wire") for path in sorted(Path("src/nvshare", folder).rglob("*.py"))
    ]
    modules += [Path("src/nvshare/node", name) for name in NODE_MODULES]
    hot = [str(path) for path in modules if path.name not in NOT_COMPILED]
    extensions = mypycify([*hot, "--strict"], opt_level="3")
    for extension in extensions:
        # What a library exports may be replaced at run time, so the compiler inlines no call of it. Python
        # looks up one function, which stays exported; the small methods of the books become part of callers.
        extension.extra_compile_args.append("-fvisibility=hidden")


# directory in native/ -> what to ship, and where in nvshare/lib
LIBRARIES = {
    "interposer": (("libnvshare.so",), "."),
    "simgpu": (("libcuda.so.1", "libnvidia-ml.so.1"), "simgpu"),
}
BUILD_TOOLS = ("make", os.environ.get("CC", "cc").split()[0], "nm", "awk")


def build_libraries(work: Path, lib: Path) -> None:
    missing = [tool for tool in BUILD_TOOLS if shutil.which(tool) is None]
    if missing:
        raise CompileError(
            f"nvshare has two small libraries in C, and to build them {', '.join(missing)} is missing;"
            " on Debian and Ubuntu: apt-get install gcc libc6-dev make binutils"
        )
    environment = {name: text for name, text in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    for name, (files, folder) in LIBRARIES.items():
        out = (work / name).resolve()
        subprocess.run(["make", "-s", "-C", f"native/{name}", f"OUT={out}"], env=environment, check=True)
        target = lib / folder
        target.mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copy(out / file, target / file)


class BuildWithLibraries(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            work = Path(self.get_finalized_command("build").build_temp)
            build_libraries(work, Path(self.build_lib) / "nvshare" / "lib")


class PlatformDistribution(Distribution):
    """What it holds is of one platform, compiled core or not."""

    def has_ext_modules(self) -> bool:
        return True


class WheelOfAnyPython(bdist_wheel):
    """The libraries are of one platform and of no version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        return (python, abi, platform) if extensions else ("py3", "none", platform)


setup(
    ext_modules=extensions,
    distclass=PlatformDistribution,
    cmdclass={"build_py": BuildWithLibraries, "bdist_wheel": WheelOfAnyPython},
)
