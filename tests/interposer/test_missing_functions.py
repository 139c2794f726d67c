"""The library on drivers that lack a function: programs run as they would without it, and a line says so."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from nvshare.sim.gpu import library_directory
from tests.interposer.harness import LIBRARY, Node
from tests.interposer.test_hook_table import HOOKS, ROOT

DRIVER_CALLS: Final = re.findall(
    r"^DRIVER_CALL\((\w+),",
    (ROOT / "native/interposer/driver_calls.def").read_text(encoding="utf-8"),
    re.MULTILINE,
)
FOR_GATING: Final = (
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
)
SAMPLE: Final = (
    *FOR_GATING,
    "cuEventElapsedTime",
    "cuStreamGetCtx",
    "cuStreamQuery",
    "cuStreamIsCapturing",
    "cuThreadExchangeStreamCaptureMode",
    "cuDeviceGetUuid",
    "cuMemAllocManaged",
    "cuMemFree_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuGetProcAddress_v2",
)
ALL: Final = sorted({*DRIVER_CALLS, *(hook.symbol for hook in HOOKS)} - {*SAMPLE})


def driver_without(symbol: str, directory: Path) -> Path:
    """A directory with the simulated driver in which one function has another name."""
    shutil.copytree(
        library_directory(), directory, ignore=lambda _, names: set(names) - {"libnvidia-ml.so.1"}
    )
    raw = (library_directory() / "libcuda.so.1").read_bytes()
    name = b"\0" + symbol.encode() + b"\0"
    assert raw.count(name) >= 1, "the simulated driver does not have it"
    (directory / "libcuda.so.1").write_bytes(raw.replace(name, name.replace(b"\0cu", b"\0cx")))
    return directory


@pytest.fixture(scope="module")
def limited() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="nvshare-test-") as name:
        node = Node(Path(name), "t4:1")
        node.daemon.start()
        node.set_quota("worker", core_percent=50, memory_bytes=1 << 30)
        yield node
        node.close()


def check(node: Node, symbol: str, directory: Path) -> str:
    """The same answers with the library as without; what the library said."""
    driver = str(driver_without(symbol, directory / "driver"))
    native, _ = node.run(node.program("tolerant"), LD_LIBRARY_PATH=driver, LD_PRELOAD="")
    with_library, said = node.run(
        node.program("tolerant"), pod="worker", LD_LIBRARY_PATH=driver, LD_PRELOAD=str(LIBRARY)
    )
    assert with_library == native
    assert ": 0\n" in native or symbol in ("cuInit", "cuCtxSetCurrent")
    return said


@pytest.mark.parametrize("symbol", SAMPLE)
def test_a_program_runs_as_it_would_without_us(limited: Node, symbol: str, tmp_path: Path) -> None:
    said = check(limited, symbol, tmp_path)
    if symbol in FOR_GATING:
        assert said.count("\n") == 1
        assert f"this driver lacks {symbol}: launches are not gated" in said
    elif symbol != "cuDeviceGetUuid":  # its twin tells the same
        assert "lacks" not in said


@pytest.mark.parametrize("symbol", ALL)
def test_whichever_function_is_missing(limited: Node, symbol: str, tmp_path: Path) -> None:
    if b"\0" + symbol.encode() + b"\0" in (library_directory() / "libcuda.so.1").read_bytes():
        check(limited, symbol, tmp_path)


def test_a_card_without_a_uuid_is_named(limited: Node, tmp_path: Path) -> None:
    first = driver_without("cuDeviceGetUuid", tmp_path / "first")
    raw = (first / "libcuda.so.1").read_bytes()
    (first / "libcuda.so.1").write_bytes(raw.replace(b"\0cuDeviceGetUuid_v2\0", b"\0cxDeviceGetUuid_v2\0"))
    _, said = limited.run(
        limited.program("tolerant"), pod="worker", LD_LIBRARY_PATH=str(first), LD_PRELOAD=str(LIBRARY)
    )
    assert "the driver does not tell the UUID of GPU 0" in said
