"""Every way a program finds the driver's functions leads to the library, and nothing else does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.interposer.harness import BUILD, LIBRARY, Node

OURS, DRIVER, NOTHING = "libnvshare.so", "libcuda.so.1", "nothing"
EXPECTED = {
    "dlsym@GLIBC_2.2.5": f"{OURS} cuLaunchKernel",
    "dlsym@GLIBC_2.17": f"{OURS} cuLaunchKernel",
    "dlsym@GLIBC_2.34": f"{OURS} cuLaunchKernel",
    "cuMemGetInfo_v2 by handle": f"{OURS} cuMemGetInfo_v2",
    "cuDeviceGetName by handle": f"{DRIVER} cuDeviceGetName",
    "cuLaunchKernel by default": f"{OURS} cuLaunchKernel",
    "cuNoSuchThing by handle": NOTHING,
    "cuLaunchKernel in libc": NOTHING,
    # cuGetProcAddress: name, version, flags -> result, status
    "cuLaunchKernel 12000 0 -> 0 0": f"{OURS} cuLaunchKernel",
    "cuLaunchKernel 12000 2 -> 0 0": f"{OURS} cuLaunchKernel_ptsz",
    "cuMemcpy 12000 2 -> 0 0": f"{OURS} cuMemcpy_ptds",
    "cuMemAlloc 12000 0 -> 0 0": f"{OURS} cuMemAlloc_v2",
    "cuMemPrefetchAsync 11000 0 -> 0 0": f"{OURS} cuMemPrefetchAsync",
    "cuMemPrefetchAsync 12020 0 -> 0 0": f"{OURS} cuMemPrefetchAsync_v2",
    "cuCtxCreate 11000 0 -> 0 0": f"{OURS} cuCtxCreate_v2",
    "cuCtxCreate 12050 0 -> 0 0": f"{OURS} cuCtxCreate_v4",
    "cuDeviceGetName 12000 0 -> 0 0": f"{DRIVER} cuDeviceGetName",
    "cuNoSuchThing 12000 0 -> 0 1": NOTHING,
    "cuGetProcAddress 12000 0 -> 0 0": f"{OURS} cuGetProcAddress_v2",
}


def looked_up(out: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in out.splitlines())


def test_each_name_is_found_where_it_should(node: Node) -> None:
    found = looked_up(node.run(node.program("lookup"))[0])
    assert found.pop("getpid in libc").startswith("libc.so.6")
    assert found == EXPECTED


def test_switched_off_it_is_not_there(node: Node) -> None:
    found = looked_up(node.run(node.program("lookup"), NVSHARE_DISABLE="1")[0])
    by_default = "cuLaunchKernel by default"  # the loader's answer, which passes everything on
    assert {what for what, where in found.items() if OURS in where} == {by_default}
    out, err = node.run(
        node.program("exceed"), str(64 << 20), NVSHARE_DISABLE="1", NVSHARE_GPU_MEMORY_LIMIT="1Mi"
    )
    assert (out, err) == ("allocated\n", "")
    assert node.daemon.counters()["messages_received"].get("REGISTER", 0) == 0


def test_loading_does_nothing(node: Node) -> None:
    status, err = node.run("cat", "/proc/self/status")
    assert "Threads:\t1\n" in status
    descriptors, _ = node.run("ls", "/proc/self/fd")
    assert len(descriptors.split()) == 4, "three, and the directory itself"
    assert err == ""
    assert node.daemon.counters()["messages_received"].get("REGISTER", 0) == 0


@pytest.mark.parametrize("build", ["interposer", "interposer-O0", "interposer-address", "interposer-thread"])
@pytest.mark.parametrize("first", ["ours", "other"])
def test_another_preloaded_library_finds_the_next_one(node: Node, build: str, first: str) -> None:
    """It asks for RTLD_NEXT, for a name of ours and for one of the C library's, before us or after us."""
    libraries = [str(BUILD / build / "libnvshare.so"), str(BUILD / "interposer" / "libother.so")]
    if first == "other":
        libraries.reverse()
    # The driver and the program are not built with the sanitizer, so what it says of them means nothing.
    quiet = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "report_bugs=0"}
    sanitizer = {"interposer-address": "asan", "interposer-thread": "tsan"}.get(build)
    if sanitizer:
        libraries.insert(0, _run_time(f"lib{sanitizer}.so"))
    out, err = node.run(node.program("plain", "simgpu"), LD_PRELOAD=" ".join(libraries), **quiet)
    assert out.endswith("PASS\n")
    assert "other: 1 puts, 23 launches" in err
    node.daemon.wait_words("client registered")


def _run_time(name: str) -> str:
    command = ["cc", f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    "name", ["NVSHARE_MANAGED", "NVSHARE_ENABLE_SINGLE_OVERSUB", "NVSHARE_DEBUG", "NVSHARE_DISABLE"]
)
def test_a_bad_switch_is_named_and_the_program_runs(node: Node, name: str) -> None:
    out, err = node.run(node.program("exceed"), "4096", **{name: "maybe"})
    assert out == "allocated\n"
    assert err.count("\n") == 1
    assert f"{name}='maybe' is not accepted; accepted: 0, 1, false, true" in err


def test_a_program_without_a_driver_gets_a_message(make_node: Callable[..., Node]) -> None:
    node = make_node()
    code = "import ctypes; print(ctypes.CDLL(None).cuLaunchKernel(*[None] * 11))"
    out, _ = node.run(*node.python("-c", code), LD_LIBRARY_PATH="", LD_PRELOAD=str(LIBRARY))
    assert out == "801\n", "CUDA_ERROR_NOT_SUPPORTED"


NEWEST_AND_OLDEST = [
    "cuLaunch",
    "cuLaunchGrid",
    "cuLaunchGridAsync",
    "cuLaunchCooperativeKernelMultiDevice",
    "cuMemcpyWithAttributesAsync",
    "cuMemcpy3DWithAttributesAsync",
    "cuMemDiscardAndPrefetchBatchAsync",
]


@pytest.mark.parametrize("name", NEWEST_AND_OLDEST)
def test_what_few_programs_call_is_gated_too(node: Node, name: str) -> None:
    out, _ = node.run(node.program("legacy"), name, pod="gated")
    assert out == "801\n", "the simulated driver does not support it"
    assert node.daemon.counters()["messages_received"]["REQ_LOCK"] == 1


def test_what_is_captured_is_not_gated_whichever_function_begins_it(node: Node) -> None:
    out, _ = node.run(node.program("legacy"), "captures", pod="capturing")
    assert out == "captured\n"
    assert node.daemon.counters()["messages_received"].get("REQ_LOCK", 0) == 0


@pytest.mark.parametrize(("afterwards", "requests"), [([], 0), (["afterwards"], 1)])
def test_what_is_captured_for_graphics_is_not_gated(node: Node, afterwards: list[str], requests: int) -> None:
    preloaded = f"{LIBRARY} {node.program('libgraphics.so')}"
    node.run(node.program("legacy"), "graphics", *afterwards, pod="graphics", LD_PRELOAD=preloaded)
    assert node.daemon.counters()["messages_received"].get("REQ_LOCK", 0) == requests


def test_what_a_detached_context_had_is_free_again(node: Node) -> None:
    assert node.run(node.program("legacy"), "detach", pod="detaching")[0] == "detached\n"


@pytest.mark.parametrize(("version", "flags"), [("10000", ""), ("11000", ""), ("12000", "renaming: 1\n")])
def test_a_name_that_became_another_functions_beside_another_library(
    node: Node, version: str, flags: str
) -> None:
    """The driver's answer is then no address that the library knows, and the two have other parameters."""
    preloaded = f"{LIBRARY} {node.program('librenaming.so')}"
    out, err = node.run(node.program("instantiate"), version, LD_PRELOAD=preloaded)
    assert out == "PASS\n"
    assert err == flags
