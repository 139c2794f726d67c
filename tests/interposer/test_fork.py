"""Children of a CUDA program: forked, forked twice, or executed; none keeps its parent's connection."""

from __future__ import annotations

import pytest

from tests.interposer.harness import LIBRARY, Node, line_of

NOT_INITIALIZED = 3


@pytest.mark.parametrize("build", ["interposer", "interposer-address"])
def test_a_child_without_exec_has_nothing_of_ours(node: Node, build: str) -> None:
    extra = {"LD_PRELOAD": str(node.program("libnvshare.so", build))}
    if build != "interposer":
        extra |= {
            "LD_LIBRARY_PATH": node.program("", build.replace("interposer", "simgpu")),
            "ASAN_OPTIONS": ASAN,
        }
    out, _ = node.run(node.program("forks", build), "after", **extra)
    assert out.splitlines() == [
        "parent works",
        f"child: 0 sockets, alloc {NOT_INITIALIZED}, launch {NOT_INITIALIZED}",
        "parent again works",
    ]


ASAN = "verify_asan_link_order=0"


def test_a_grandchild_is_a_client_of_its_own(node: Node) -> None:
    out, _ = node.run(node.program("forks"), "double")
    assert out.splitlines() == ["grandchild works", "parent works"]
    node.daemon.wait_log(lambda lines: sum("client gone" in line for line in lines) == 2)
    pids = {
        word
        for line in node.daemon.log
        if "client registered" in line
        for word in line.split()
        if "pid=" in word
    }
    assert len(pids) == 2


def test_an_executed_program_inherits_no_connection(node: Node) -> None:
    out, _ = node.run(node.program("forks"), "exec")
    assert out.splitlines() == ["parent works", "0 sockets"]


def test_a_child_forked_as_the_connection_closes_keeps_its_files(node: Node) -> None:
    child = node.start(
        node.program("steady"), "0", LD_PRELOAD=f"{LIBRARY} {node.program('libclosing.so')}", pod="forking"
    )
    assert line_of(child) == "running"
    node.daemon.kill()
    assert child.stderr is not None
    assert child.stderr.readline() == "closing: the child has the file\n"
    node.finish(child)
