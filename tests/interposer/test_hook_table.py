"""The table of hooks against NVIDIA's own list of functions, and against what CUDA runtimes ask for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.interposer.nvidia_headers import Listed, count_parameters, listed_functions

ROOT: Final = Path(__file__).resolve().parents[2]
REQUESTS: Final = Path(__file__).with_name("runtime_requests.txt")
ADDRESSES_OF_64_BITS: Final = 3020

MATTERS: Final = re.compile(
    r"Alloc|Free|Launch|Memcpy|Memset|Prefetch|Decompress|Capture|Reset|CtxCreate|CtxDestroy|CtxDetach"
    r"|PrimaryCtxRelease|Set(?=Current)|PushCurrent|PopCurrent|StreamDestroy|Synchronize|Instantiate|ExecDestroy"
    r"|ArrayCreate|ArrayDestroy|Array3DCreate|MemCreate|MemRelease|MemMap$|MemUnmap|PoolCreate|PoolDestroy"
    r"|TotalMem|MemGetInfo|GetProcAddress|GreenCtx"
)
"""Functions that allocate, free, launch, wait, capture, reset, change contexts or tell sizes."""

LEFT_ALONE: Final = {
    "cuCtxFromGreenCtx": "tells which context a green one has; the library calls it itself",
    "cuCtxResetPersistingL2Cache": "a property of the cache: neither memory nor work",
    "cuGraphAddMemAllocNode": "counted when the graph is instantiated",
    "cuGraphAddMemFreeNode": "the graph's memory counts until the executable graph is destroyed",
    "cuGraphAddMemcpyNode": "runs when the graph is launched",
    "cuGraphAddMemsetNode": "runs when the graph is launched",
    "cuGraphExecMemcpyNodeSetParams": "runs when the graph is launched",
    "cuGraphExecMemsetNodeSetParams": "runs when the graph is launched",
    "cuGraphMemAllocNodeGetParams": "reads a description",
    "cuGraphMemFreeNodeGetParams": "reads a description",
    "cuGraphMemcpyNodeGetParams": "reads a description",
    "cuGraphMemcpyNodeSetParams": "runs when the graph is launched",
    "cuGraphMemsetNodeGetParams": "reads a description",
    "cuGraphMemsetNodeSetParams": "runs when the graph is launched",
    "cuGreenCtxCreate": "makes no stream and no memory; its streams are known from their first launch",
    "cuGreenCtxGetId": "reads a number; not in the header of CUDA 12",
    "cuGreenCtxGetDevResource": "reads a description",
    "cuGreenCtxRecordEvent": "an event is no work",
    "cuGreenCtxStreamCreate": "a stream is known from its first launch",
    "cuGreenCtxWaitEvent": "waiting for an event is no work",
    "cuLaunchHostFunc": "host functions are work for the processor, not for the GPU",
    "cuMemAddressFree": "addresses without memory behind them",
    "cuMemAllocHost": "memory of the host",
    "cuMemFreeHost": "memory of the host",
    "cuMemGetAllocationGranularity": "a constant of the card",
    "cuMemGetAllocationPropertiesFromHandle": "reads a description",
    "cuMemHostAlloc": "memory of the host",
    "cuStreamGetCaptureInfo": "asks whether a stream captures",
    "cuStreamGetGreenCtx": "asks which context a stream has",
    "cuStreamUpdateCaptureDependencies": "changes what is captured, not whether",
    "cuThreadExchangeStreamCaptureMode": "changes what a thread may call, not what is captured",
}
"""Each with the reason."""

FOUND_BY_ADDRESS: Final = {("cuGraphInstantiateWithParams", "ptsz")}
"""Its twin has no name of its own in the table: the address that the driver answers with is enough."""


class Hook(NamedTuple):
    symbol: str
    name: str
    since: int
    variant: str
    parameters: int


def hooks() -> list[Hook]:
    text = (ROOT / "native/interposer/hooks.def").read_text(encoding="utf-8")
    text = text.replace("DIMENSIONS", "int, int, int, int, int, int, int")
    rows = []
    pattern = r'^([A-Z_]+)\((\w+),(?: (\w+),)? "(\w+)", (\d+),(?: (ptsz|ptds),)?([^;]*?)\n(?=[A-Z#/\n]|\Z)'
    found = re.findall(pattern, text, re.MULTILINE | re.DOTALL)
    for kind, symbol, _twin, name, since, variant, rest in found:
        lists = re.findall(r"\(([^()]*)\)", rest)  # a GATED row has its stream before them
        parameters = count_parameters(lists[-2 if kind == "GATED" else 0])
        rows.append(Hook(symbol, name, int(since), "", parameters))
        if kind in ("GATED", "FILL", "BLOCKING", "HANDLED_STREAM"):
            rows.append(Hook(f"{symbol}_{variant}", name, max(int(since), 7000), variant, parameters))
    by_symbol = {hook.symbol: hook for hook in rows}
    for symbol, name, since in re.findall(r'^RENAMED\((\w+), "(\w+)", (\d+)\)', text, re.MULTILINE):
        rows.append(by_symbol[symbol]._replace(name=name, since=int(since)))
    return rows


HOOKS: Final = hooks()
NAMES: Final = {hook.name for hook in HOOKS}


def chosen(name: str, version: int, variant: str) -> Hook | None:
    """As ``by_name`` of hooks.c chooses."""
    known = [hook for hook in HOOKS if hook.name == name and hook.since <= version]
    known = [hook for hook in known if not hook.variant or hook.variant == variant]
    return max(known, key=lambda hook: (hook.since, bool(hook.variant)), default=None)


def for_32_bits(row: Listed) -> bool:
    """The first version took 32-bit addresses, which cannot name memory of a 64-bit program."""
    versions = {other.since for other in listed_functions() if other.name == row.name}
    is_old = row.since < ADDRESSES_OF_64_BITS and ADDRESSES_OF_64_BITS in versions
    return is_old and not row.name.startswith("cuCtx")


def test_the_table_is_read_whole() -> None:
    rows = (ROOT / "native/interposer/hooks.def").read_text(encoding="utf-8").splitlines()
    written = sum(bool(re.match(r"(GATED|FILL|BLOCKING|HANDLED|HANDLED_STREAM)\(cu", row)) for row in rows)
    assert len({hook.symbol.removesuffix("_ptsz").removesuffix("_ptds") for hook in HOOKS}) >= written - 1


@pytest.mark.parametrize("row", [row for row in listed_functions() if row.name in NAMES], ids=str)
def test_every_version_of_what_is_hooked_is_hooked(row: Listed) -> None:
    if for_32_bits(row) or (row.name, row.variant) in FOUND_BY_ADDRESS:
        return
    hook = chosen(row.name, row.since, row.variant)
    assert hook is not None, "no row of hooks.def is as old"
    assert hook.parameters == row.parameters, f"{hook.symbol} has other parameters"
    assert hook.variant == row.variant


def test_nothing_that_matters_is_left_out_without_a_reason() -> None:
    matter = {row.name for row in listed_functions() if MATTERS.search(row.name)}
    assert sorted(matter - NAMES - LEFT_ALONE.keys()) == []
    assert sorted(LEFT_ALONE.keys() & NAMES) == [], "hooked after all"
    requested = {line.split()[0] for line in REQUESTS.read_text(encoding="utf-8").splitlines()}
    assert sorted(LEFT_ALONE.keys() - matter - requested) == [], "no reason is needed"


def test_what_runtimes_ask_for_is_hooked_in_that_version() -> None:
    lines = REQUESTS.read_text(encoding="utf-8").splitlines()[1:]
    asked = [(name, int(version)) for name, version in map(str.split, lines)]
    assert len(asked) > 400
    matter = [(name, version) for name, version in asked if name in NAMES]
    assert len(matter) > 80
    assert [row for row in matter if chosen(*row, "") is None] == []
    left_out = {name for name, _ in asked if MATTERS.search(name)} - NAMES - LEFT_ALONE.keys()
    assert sorted(left_out) == []
