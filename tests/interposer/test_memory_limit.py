"""Memory limits: each kind to the byte, and many at once; the driver's own count is the referee."""

from __future__ import annotations

import re
import select
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nvshare.sim.gpu import ProcessStatus
from tests.interposer.harness import LIBRARY, Node, line_of, tell

MIB = 1 << 20
LIMIT = 128 * MIB
KINDS = re.findall(
    r'^    \{"([^"]+)", ',
    (Path(__file__).parents[2] / "native/interposer/tests/limit.c").read_text(),
    re.MULTILINE,
)


def drivers_bytes(row: ProcessStatus) -> int:
    """What the driver counts for a process, beside its context."""
    return row.device_bytes + row.pool_bytes + row.created_bytes + row.array_bytes + row.managed_bytes


@pytest.mark.parametrize("managed", ["1", "0"])
@pytest.mark.parametrize("source", ["environment", "daemon"])
def test_every_kind_is_refused_at_the_limit_to_the_byte(node: Node, managed: str, source: str) -> None:
    extra = {"NVSHARE_MANAGED": managed}
    if source == "environment":
        extra["NVSHARE_GPU_MEMORY_LIMIT"] = "128Mi"
    else:
        node.set_quota("limited", memory_bytes=LIMIT)
    out, err = node.run(node.program("limit"), str(LIMIT), pod="limited", **extra)
    assert out.splitlines() == [*KINDS, "PASS"]
    assert "Memory allocation rejected: 2 bytes asked, 134217727 of 134217728 bytes used" in err
    origin = "from NVSHARE_GPU_MEMORY_LIMIT" if source == "environment" else "set by `nvshare ctl quota set`"
    assert f"; the limit is {origin}" in err
    assert len(KINDS) == 12


def test_without_a_daemon_the_environments_limit_holds(make_node: Callable[..., Node]) -> None:
    node = make_node()
    out, err = node.run(node.program("limit"), str(LIMIT), NVSHARE_GPU_MEMORY_LIMIT="128Mi")
    assert out.splitlines() == [*KINDS, "PASS"]
    assert "Memory allocation rejected" in err
    assert "; the limit is from NVSHARE_GPU_MEMORY_LIMIT" in err


@pytest.mark.parametrize("managed", ["1", "0"])
@pytest.mark.parametrize("rounds", [150, pytest.param(3000, marks=pytest.mark.verify)])
def test_threads_and_processes_of_a_pod_never_exceed_it_and_lose_no_byte(
    node: Node, rounds: int, managed: str
) -> None:
    node.set_quota("greedy", memory_bytes=512 * MIB)
    children = [
        node.start(*command, str(512 * MIB), pod="greedy", NVSHARE_MANAGED=managed)
        for command in ((node.program("grab"), str(seed), "8", str(rounds)) for seed in range(4))
    ]
    most_bytes, samples = 0, 0
    waiting = list(children)
    while waiting:
        most_bytes = max(most_bytes, sum(drivers_bytes(row) for row in node.card().processes))
        samples += 1
        waiting = [child for child in waiting if not _has_line(child)]
    figures = [re.fullmatch(r"granted (\d+) refused (\d+)", line_of(child)) for child in children]
    assert all(figures)
    assert sum(int(found[2]) for found in figures if found) > 0, "they did come to the limit"
    assert 256 * MIB < most_bytes <= 512 * MIB, f"in {samples} looks"
    assert [drivers_bytes(row) for row in node.card().processes] == [0, 0, 0, 0]
    node.daemon.wait_status(lambda _: all(client["used_bytes"] == 0 for client in node.clients()))
    for child in children[1:]:
        tell(child)
        node.finish(child)
    tell(children[0], "all")
    assert line_of(children[0]) == "all", "nothing was lost: the whole limit is there again"
    node.finish(children[0])


def _has_line(child: subprocess.Popen[str]) -> bool:
    assert child.stdout is not None
    return bool(select.select([child.stdout], [], [], 0.002)[0])


def test_the_program_sees_its_part(node: Node) -> None:
    node.set_quota("small", memory_bytes=LIMIT)
    out, _ = node.run(node.program("view"), pod="small")
    total, free, device_total, nvml_total, nvml_used, nvml_free = map(int, out.split())
    assert (total, free, device_total) == (LIMIT, LIMIT - 32 * MIB, LIMIT)
    assert (nvml_total, nvml_used, nvml_free) == (LIMIT, 32 * MIB, LIMIT - 32 * MIB)


def test_what_another_process_of_the_pod_has_is_not_free(node: Node) -> None:
    """Of 128 MiB two processes have 32 each, then one has 96: what is shown is what can be had."""
    node.set_quota("pair", memory_bytes=LIMIT)
    first = node.start(node.program("view"), pod="pair")
    assert _seen(first) == (LIMIT, LIMIT - 32 * MIB)
    second = node.start(node.program("view"), pod="pair")
    assert _seen(second) == (LIMIT, LIMIT - 64 * MIB)
    tell(first)
    assert _seen(first) == (LIMIT, LIMIT - 64 * MIB)
    node.finish(second)
    third = node.start(node.program("exceed"), str(64 * MIB), "wait", pod="pair")
    assert line_of(third) == "allocated"
    tell(first)
    assert _seen(first) == (LIMIT, LIMIT - 96 * MIB)
    node.set_quota("pair", memory_bytes=LIMIT // 2)
    node.daemon.wait_status(lambda _: node.daemon.counters()["messages_sent"].get("UPDATE_LIMIT", 0) > 0)
    tell(first)
    assert _seen(first) == (LIMIT // 2, 0), "more is used than the limit is now"
    tell(third)
    node.finish(third)
    node.finish(first)


def _seen(child: subprocess.Popen[str]) -> tuple[int, int]:
    """Total and free bytes, in which the driver's call and NVML's agree."""
    total, free, _, nvml_total, nvml_used, nvml_free = map(int, line_of(child).split())
    assert (nvml_total, nvml_free) == (total, free)
    assert nvml_used >= total - free
    return total, free


def test_each_card_has_its_own_size(make_node: Callable[..., Node]) -> None:
    """Also after another was used; and a limit between the two sizes holds on the larger."""
    node = make_node("t4:1,a800:1")
    node.daemon.start()
    sizes = [node.card(index).total_bytes for index in range(2)]
    for limit_bytes, told in ((None, {}), (20 << 30, {"NVSHARE_GPU_MEMORY_LIMIT": "20Gi"})):
        out, _ = node.run(*node.python("-c", SIZES), pod="mixed", **told)
        assert list(map(int, out.split())) == [min(size, limit_bytes or size) for size in sizes] * 2
    assert sizes[0] < 20 << 30 < sizes[1]


def test_a_pools_memory_counts_on_the_pools_gpu(make_node: Callable[..., Node]) -> None:
    node = make_node("t4:2")
    node.daemon.start()
    node.set_quota("pooled", memory_bytes=LIMIT)
    out, _ = node.run(node.program("pools"), pod="pooled")
    assert out.split() == ["0", str(48 * MIB), "0", str(80 * MIB), "0", "0"], (
        "used on GPU 0, 1, after each step"
    )


def test_a_release_that_fails_takes_no_user_off(node: Node) -> None:
    preloaded = f"{LIBRARY} {node.program('librefusing.so')}"
    out, _ = node.run(node.program("pools"), "release", pod="created", LD_PRELOAD=preloaded)
    assert out.split() == [str(2 * MIB), str(2 * MIB), "0"]


SIZES = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
size, free, ctx = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
def show():
    for device in range(2):
        assert cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device) == 0
        print(size.value)
assert cuda.cuInit(0) == 0
show()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0) == 0 and cuda.cuCtxSetCurrent(ctx) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(size)) == 0
show()
"""


def test_nvml_alone_shows_the_environments_limit(make_node: Callable[..., Node]) -> None:
    """Before any CUDA call; nothing is started for that."""
    node = make_node()
    node.daemon.start()
    for told, total_bytes in (
        ({}, node.card().total_bytes),
        ({"NVSHARE_GPU_MEMORY_LIMIT": "64Mi"}, 64 * MIB),
    ):
        out, _ = node.run(node.program("view"), "nvml", **told)
        total, used, free = map(int, out.split())
        assert total == total_bytes
        assert used == 0 or not told
        assert free == total - used or not told
    assert node.daemon.counters()["messages_received"].get("REGISTER", 0) == 0


@pytest.mark.parametrize(("managed", "seen_bytes"), [("1", 6 << 30), ("0", 4 << 30)])
def test_native_memory_that_others_have_is_not_free(node: Node, managed: str, seen_bytes: int) -> None:
    """Somebody has 12 of the 16 GiB; a limit of 6 does not make 6 of the rest."""
    other = node.start(node.program("exceed"), str(12 << 30), "wait", pod="other", NVSHARE_MANAGED="0")
    assert line_of(other) == "allocated"
    extra = {"NVSHARE_MANAGED": managed, "NVSHARE_GPU_MEMORY_LIMIT": "6Gi"}
    total, free, _, nvml_total, nvml_used, nvml_free = map(
        int, node.run(node.program("view"), pod="small", **extra)[0].split()
    )
    assert total == nvml_total == 6 << 30
    assert nvml_used == 32 * MIB
    if managed == "1":
        assert free == nvml_free == seen_bytes - 32 * MIB
    else:
        assert seen_bytes - 512 * MIB < free <= seen_bytes - 32 * MIB, "contexts take their part"
        assert free == nvml_free
    tell(other)
    node.finish(other)


@pytest.mark.parametrize(("value", "succeeds"), [("1", True), ("0", False), ("", False), (None, False)])
def test_one_process_exceeds_the_card_only_if_allowed(node: Node, value: str | None, succeeds: bool) -> None:
    extra = {} if value is None else {"NVSHARE_ENABLE_SINGLE_OVERSUB": value}
    child = node.start(node.program("exceed"), str(20 << 30), pod="big", **extra)
    out, err = child.communicate(timeout=120)
    assert out == ("allocated\n" if succeeds else "out of memory\n")
    assert ("exceeded physical GPU memory capacity" in err) is not succeeds


def test_native_memory_stays_native_on_request(node: Node) -> None:
    for managed, field in (("1", "managed_bytes"), ("0", "device_bytes")):
        child = node.start(node.program("exceed"), str(64 * MIB), "wait", NVSHARE_MANAGED=managed)
        assert line_of(child) == "allocated"
        row = node.process(child.pid)
        assert row is not None
        assert getattr(row, field) == 64 * MIB == drivers_bytes(row)
        tell(child)
        node.finish(child)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("64Mi", 64 * MIB),
        ("1.5K", 1500),
        ("100", 100),
        ("0.0001K", None),
        ("4X", None),
        ("-1", None),
        ("9e9", None),
    ],
)
def test_a_bad_limit_is_named_and_the_program_runs(node: Node, text: str, limit: int | None) -> None:
    out, err = node.run(node.program("view"), "total", NVSHARE_GPU_MEMORY_LIMIT=text)
    assert int(out) == (limit if limit is not None else node.card().total_bytes)
    assert (f"NVSHARE_GPU_MEMORY_LIMIT='{text}' is not accepted" in err) is (limit is None)
    assert ("too small for any program; did you mean" in err) is (limit in (100, 1500))


def test_what_a_reset_frees_is_free_again(node: Node) -> None:
    """Runtimes ask for the functions without a number: 900 MiB a round, of 2 GiB."""
    node.set_quota("resetting", memory_bytes=2 << 30)
    assert node.run(node.program("reset"), str(900 << 20), "5", pod="resetting")[0] == "PASS\n"
