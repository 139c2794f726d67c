"""What every message passes through is compiled by mypyc: core, wire format, the daemon's connections.
The same code runs as plain Python, several times slower (`make bench` shows both).

NVSHARE_COMPILE decides: `1` compiles or fails, `0` leaves it plain, and without it what cannot be compiled
here is left plain, with a line that says why. That line also stays in the package, since pip shows nothing of
a build: `nvshare --version` tells it. An editable installation is plain, so that what a developer edits is
what runs.

The two libraries in C are shipped in nvshare/lib: the one that programs are started with, and the simulated
driver. An editable installation has none and uses the repository's build.

The messages of the kubelet's interfaces are made from their .proto files by protoc, which grpcio-tools
brings: in what is built, and for an editable installation beside the .proto files.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import BaseError, CCompilerError, CompileError, OptionError

DAEMON_MODULES = (
    "node/connection.py",
    "node/counters.py",
    "node/dispatcher.py",
    "node/effect_frames.py",
    "node/fair_queue.py",
    "node/buffered_socket.py",
    "runtime/durations.py",
)
NOT_COMPILED = ("__init__.py", "document.py")  # the second makes a page of docs
PLAIN_REASON = Path("nvshare", "plain_reason.txt")  # read by nvshare/build.py

WISH = os.environ.get("NVSHARE_COMPILE", "")
if WISH not in ("", "0", "1"):
    raise OptionError(f"NVSHARE_COMPILE={WISH!r} is not accepted; accepted: 0, 1, or not set")


def core_extensions() -> list[Extension]:
    from mypyc.build import mypycify

    modules = [
        path for folder in ("core", "wire") for path in sorted(Path("src/nvshare", folder).rglob("*.py"))
    ]
    modules += [Path("src/nvshare", name) for name in DAEMON_MODULES]
    hot = [str(path) for path in modules if path.name not in NOT_COMPILED]
    # Silent, because what the hot parts only name may import packages that are not there when they are built.
    extensions: list[Extension] = mypycify([*hot, "--strict", "--follow-imports=silent"], opt_level="3")
    for extension in extensions:
        # What a library exports may be replaced at run time, so the compiler inlines no call of it. Python
        # looks up one function, which stays exported; the small methods of the books become part of callers.
        extension.extra_compile_args.append("-fvisibility=hidden")
    return extensions


# directory in native/ -> what to ship, and where in nvshare/lib
LIBRARIES = {
    "interposer": (("libnvshare.so",), "."),
    "simgpu": (("libcuda.so.1", "libnvidia-ml.so.1"), "simgpu"),
}
COMPILER = os.environ.get("CC", "cc").split()[0]
BUILD_TOOLS = ("make", COMPILER, "nm", "awk")
INSTALL_TOOLS = "on Debian and Ubuntu: apt-get install gcc libc6-dev make binutils"


def missing_tools() -> list[str]:
    return [tool for tool in BUILD_TOOLS if shutil.which(tool) is None]


def why_not_compiled() -> str:
    """Why the core cannot be compiled here, as far as can be seen before it is tried."""
    if WISH == "0":
        return "installed with NVSHARE_COMPILE=0"
    if missing_tools():
        return f"installed without {', '.join(missing_tools())}; {INSTALL_TOOLS}"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "installed without Python.h; on Debian and Ubuntu: apt-get install python3-dev"
    return ""


def build_libraries(work: Path, lib: Path) -> None:
    missing = missing_tools()
    if missing:
        complaint = (
            f"nvshare has two small libraries in C, and to build them {', '.join(missing)} is missing;"
            f" {INSTALL_TOOLS}"
        )
        if WISH == "1":
            raise CompileError(complaint)
        print(f"nvshare: {complaint}; without them it cannot run programs", file=sys.stderr)
        return
    environment = {name: text for name, text in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    for name, (files, folder) in LIBRARIES.items():
        out = (work / name).resolve()
        subprocess.run(["make", "-s", "-C", f"native/{name}", f"OUT={out}"], env=environment, check=True)
        target = lib / folder
        target.mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copy(out / file, target / file)


def make_messages(root: Path) -> None:
    """``*_pb2.py`` from the .proto files below ``root``, beside them; ``*_pb2.pyi`` for type checkers."""
    from grpc_tools import protoc

    names = [str(path.relative_to(root)) for path in sorted(root.rglob("*.proto"))]
    outputs = [f"--{kind}_out={root}" for kind in ("python", "pyi")]
    if protoc.main(["protoc", f"-I{root}", *outputs, *names]) != 0:
        raise CompileError(f"protoc cannot make Python of {', '.join(names)}")


class BuildWithLibraries(build_py):
    def run(self) -> None:
        if self.editable_mode:
            super().run()
            make_messages(Path("src"))
            return
        package = Path(self.build_lib) / "nvshare"
        shutil.rmtree(package, ignore_errors=True)  # an earlier build may have had other extensions
        for shared in Path(self.build_lib).glob("*__mypyc.*.so"):
            shared.unlink()
        super().run()
        make_messages(Path(self.build_lib))
        work = Path(self.get_finalized_command("build").build_temp)
        build_libraries(work, package / "lib")


class BuildCore(build_ext):
    """Compiles the core when it is its turn, so that asking for metadata does not."""

    def run(self) -> None:
        if self.editable_mode or self.inplace:
            return
        reason = why_not_compiled()
        if not reason:
            reason = self._compile()
        if reason:
            if WISH == "1":
                raise CompileError(f"NVSHARE_COMPILE=1, but the core cannot be compiled: {reason}")
            print(f"nvshare: its core is left plain Python, which is slower: {reason}", file=sys.stderr)
            (Path(self.build_lib) / PLAIN_REASON).write_text(reason + "\n")

    def _compile(self) -> str:
        """Why it could not be done; empty if it was."""
        try:
            self.distribution.ext_modules = core_extensions()
            self.distribution.reinitialize_command(self)  # so that it sees them
            self.ensure_finalized()
            super().run()
        except ImportError as error:
            reason = f"installed without mypyc ({error})"
        except SystemExit:  # how mypyc ends when it finds a mistake in the code
            reason = "mypyc failed"
        except (BaseError, CCompilerError, OSError, subprocess.SubprocessError) as error:
            reason = "the C compiler failed: " + " ".join(str(error).split())[:200]
        else:
            return ""
        for extension in self.extensions or []:
            Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
        self.distribution.ext_modules = self.extensions = []
        return reason


class PlatformDistribution(Distribution):
    """What it holds is of one platform, compiled core or not."""

    def has_ext_modules(self) -> bool:
        return True


class WheelOfAnyPython(bdist_wheel):
    """The libraries are of one platform and of no version of Python; a compiled core is."""

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        return (python, abi, platform) if self.distribution.ext_modules else ("py3", "none", platform)


setup(
    distclass=PlatformDistribution,
    cmdclass={"build_py": BuildWithLibraries, "build_ext": BuildCore, "bdist_wheel": WheelOfAnyPython},
)
