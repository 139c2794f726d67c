"""The Dockerfile: what it says, and with ``make verify`` what its stages make when they are run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from nvshare import __version__
from tests.deploy.manifests import ROOT
from tests.deploy.node_of_daemon_sets import IMAGE
from tools.build_image_root import DOCKERFILE, DockerfileError, instructions, stages

PORTS: Final = [9402, 9394, 31993, 8080]
OVER_MACHINE: Final = """
image=$1 user=$2 python=$3
shift 3
mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work none /mnt/root
mkdir -p /mnt/root/opt/nvshare && mount --bind "$image/root/opt/nvshare" /mnt/root/opt/nvshare
mount -t proc proc /mnt/root/proc && mount --rbind /dev /mnt/root/dev
while [ "$python" != / ]; do chmod a+x "/mnt/root$python"; python=$(dirname "$python"); done
mount -o remount,ro none /mnt/root
exec chroot --userspec="$user" /mnt/root "$@"
"""
"""The machine's interpreter stands for that of the image's base, so every user has to reach it."""


def steps(stage: str) -> list[tuple[str, str]]:
    [found] = [one for one in stages(DOCKERFILE.read_text()) if one.name == stage]
    return found.steps


def test_targets_and_the_default_one() -> None:
    names = [stage.name for stage in stages(DOCKERFILE.read_text())]
    assert names == ["build", "runtime", "workloads", "scheduler"], "without --target the last one is made"
    assert ("CMD", '["scheduler"]') in steps("scheduler")


def test_dockerfile_scheduler_is_the_same() -> None:
    other = ROOT / "Dockerfile.scheduler"
    assert other.is_symlink()
    assert other.resolve() == DOCKERFILE


def test_ports_are_exposed() -> None:
    [exposed] = [rest for keyword, rest in steps("runtime") if keyword == "EXPOSE"]
    assert [int(port) for port in exposed.split()] == PORTS


def test_programs_run_without_rights() -> None:
    assert ("USER", "65532:65532") in steps("workloads")


def test_what_it_copies_is_there_and_in_the_context() -> None:
    """.dockerignore lets through what the build needs, and nothing else."""
    copied = {source for keyword, rest in steps("build") if keyword == "COPY" for source in rest.split()[:-1]}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == allowed
    assert all((ROOT / source).exists() for source in copied)


def test_what_cannot_be_read_is_an_error() -> None:
    assert instructions("RUN a \\\n # no\n && b\n") == [("RUN", "a   && b")]
    with pytest.raises(DockerfileError, match="RUN before the first FROM"):
        stages("RUN true\n")


def settings(target: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((IMAGE / f"{target}.json").read_text())
    return found


def run(target: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Its entry point, as a container without a network would run it: read-only, with its own user."""
    image = settings(target)
    user = image["user"] or "0:0"
    command = [*image["entrypoint"], *(arguments or image["command"])]
    unshared = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-ec", OVER_MACHINE, "sh"]
    environment = {**image["env"], "HOME": "/"}
    return subprocess.run(
        [*unshared, str(IMAGE), user, sys.base_prefix, *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


made = [
    pytest.mark.verify,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run the stages"),
    pytest.mark.usefixtures("image"),
]


@pytest.fixture
def image() -> Path:
    assert (IMAGE / ".ready").exists(), "make image-root"
    return IMAGE / "root/opt/nvshare"


class TestImageRoot:
    pytestmark = made

    def test_its_core_is_compiled(self) -> None:
        assert run("scheduler", "--version").stdout == f"nvshare {__version__}, compiled core\n"

    @pytest.mark.parametrize("command", ["scheduler", "device-plugin"])
    def test_each_daemon_starts(self, command: str) -> None:
        done = run("scheduler", command, "--print-config")
        assert done.returncode == 0, done.stderr
        assert "NVSHARE_SOCK_DIR" in done.stdout

    def test_workloads_run_as_nobody(self) -> None:
        done = run("workloads", "--help")
        assert done.returncode == 0, done.stderr
        assert "{w1,w2,w3,w4,w5}" in done.stdout

    @pytest.mark.parametrize(
        "name", ["lib/libnvshare.so", "lib/simgpu/libcuda.so.1", "lib/simgpu/libnvidia-ml.so.1"]
    )
    def test_libraries_ask_for_no_glibc_after_2_17(self, image: Path, name: str) -> None:
        [library] = image.glob(f"lib/python*/site-packages/nvshare/{name}")
        symbols = subprocess.run(
            ["objdump", "-T", library], capture_output=True, text=True, check=True
        ).stdout
        needed = re.findall(r"\*UND\*.*GLIBC_([0-9.]+)", symbols)  # it defines later ones itself
        versions = {tuple(map(int, found.split("."))) for found in needed}
        assert max(versions) <= (2, 17)
        assert versions

    def test_the_simulated_driver_is_where_the_manifests_say(self, image: Path) -> None:
        target = (image / "simgpu").readlink()
        assert (IMAGE / "root" / target.relative_to("/") / "libcuda.so.1").is_file()

    def test_it_has_no_tools_of_the_build(self, image: Path) -> None:
        packages = {
            path.name.split("-")[0].lower() for path in image.glob("lib/python*/site-packages/*.dist-info")
        }
        assert "nvshare" in packages
        assert not packages & {"pip", "setuptools", "mypy", "grpcio_tools", "grpcio", "ziglang", "pytest"}
