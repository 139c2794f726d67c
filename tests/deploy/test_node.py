"""End to end on doubles: the DaemonSets run, pods get parts of a card by their annotations, daemons are
killed.

Two W2 with 30 and 60 percent, while the plugin is killed and upgraded and the scheduler is killed: both end
with PASS, and get their shares before and after. ``make verify`` runs it with the image root, for longer.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvshare.sim.containers import Container
from tests.deploy.manifests import ROOT
from tests.deploy.node_of_daemon_sets import IMAGE, NODE, DaemonSetNode, daemon_set_node
from tests.exporters.node import Sample
from tests.noise import ahead_of_others, despite_noise
from tests.plugin.harness import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start containers"),
]
W2 = tuple(ROOT / f"tests/manifests/nvshare-pytorch-small-pod-{number}.yaml" for number in (1, 2))
QUOTAS = (30.0, 60.0)
WINDOW_SEC = 3.0


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="nvn") as name:
        yield Path(name)


def start_both(node: DaemonSetNode, scale: str) -> list[Container]:
    started = [
        node.run(manifest, "--scale", scale, gpu_core_limit=f"{quota:g}")
        for manifest, quota in zip(W2, QUOTAS, strict=True)
    ]
    wait_until(
        lambda: {row.labels["pod"] for row in clients(node)} == {path.stem for path in W2}, "both clients"
    )
    return started


def clients(node: DaemonSetNode) -> list[Sample]:
    return node.scheduler.scrape().of("nvshare_client_info")


def upgrade_plugin(node: DaemonSetNode) -> None:
    """Killed, and replaced by one that brings another library."""
    library = node.on_host("/var/run/nvshare/libnvshare.so")
    newer = node.on_host("/var/lib/nvshare/newer.so")
    newer.write_bytes(library.read_bytes() + b"\0")
    inode = library.stat().st_ino
    node.plugin.kill()
    node.plugin.start(NVSHARE_LIBRARY="/var/lib/nvshare/newer.so")
    wait_until(lambda: library.stat().st_ino != inode, "the newer library is there")


def assert_passed(container: Container) -> None:
    out, errors = container.process.communicate(timeout=600)
    assert container.process.returncode == 0, out + errors
    assert "\nPASS\n" in f"\n{out}", out + errors


def assert_node_says_so(node: DaemonSetNode) -> None:
    """In its annotation, written by a plugin that may do nothing else."""
    rows = json.loads(node.api.get("nodes", NODE)["metadata"]["annotations"]["nvshare.com/node-gpus"])
    held = [name for row in rows for name in row["allocations"]]
    assert sorted(held) == sorted(f"default/{path.stem}" for path in W2)


def test_daemons_are_killed_and_programs_pass(place: Path) -> None:
    with daemon_set_node(place, built=False) as node:
        started = start_both(node, scale="0.008")
        wait_until(lambda: _annotated(node), "the node's annotation")
        assert_node_says_so(node)
        upgrade_plugin(node)
        node.scheduler.kill()
        node.scheduler.start()
        for container in started:
            assert_passed(container)


def test_an_image_with_a_library_of_its_own_keeps_it(place: Path) -> None:
    """With NVSHARE_PRELOAD=file the loader's file is mounted, and the image's LD_PRELOAD stays."""
    with daemon_set_node(place, built=False) as node:
        node.plugin.kill()
        node.plugin.start(NVSHARE_PRELOAD="file")
        own = ROOT / "build/simgpu/libcuda.so.1"
        container = node.run(
            W2[0], image_environment={"LD_PRELOAD": str(own)}, command=["/bin/cat", "/proc/self/maps"]
        )
        out, errors = container.process.communicate(timeout=60)
        assert "/run/nvshare/libnvshare.so" in out, errors
        assert str(own) in out


def _annotated(node: DaemonSetNode) -> bool:
    annotations: dict[str, str] = node.api.get("nodes", NODE)["metadata"].get("annotations", {})
    return annotations.get("nvshare.com/node-gpus", "").count("default/") == 2


@pytest.mark.verify
def test_shares_hold_before_and_after_with_the_image(place: Path) -> None:
    assert (IMAGE / ".ready").exists(), "make image-root"
    with ahead_of_others(), daemon_set_node(place, built=True) as node:
        started = start_both(node, scale="0.1")

        def have_their_shares() -> None:
            for share, quota in zip(node.shares(started, WINDOW_SEC), QUOTAS, strict=True):
                assert abs(share - quota) <= 2, (share, quota)

        despite_noise(have_their_shares)
        upgrade_plugin(node)
        despite_noise(have_their_shares)
        node.scheduler.kill()
        node.scheduler.start()
        despite_noise(have_their_shares)
        assert_node_says_so(node)
        for container in started:
            assert_passed(container)
