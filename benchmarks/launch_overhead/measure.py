"""One profile: a program that launches, on a node, with or without a quota on the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.launch_overhead.callgrind import instructions
from tests.interposer.harness import Node

LAUNCHES = 20_000


@dataclass(frozen=True, slots=True)
class PerLaunch:
    own: float
    c_library: float
    driver: float

    @property
    def total(self) -> float:
        """On top of the call: without the driver's own work for the library's markers."""
        return self.own + self.c_library


def launch_instructions(
    node: Node, limited: bool, launches: int = LAUNCHES, two_streams: bool = False
) -> PerLaunch:
    pod = "limited" if limited else "free"
    node.set_quota("limited", core_percent=50)
    profile = Path(node.directory) / f"callgrind.{pod}"
    node.run(
        "valgrind",
        "--tool=callgrind",
        "--toggle-collect=launch_many",
        f"--callgrind-out-file={profile}",
        node.program("launches"),
        str(launches),
        *(("two",) if two_streams else ()),
        pod=pod,
    )
    found = instructions(profile, "libnvshare.so", "libcuda.so")
    return PerLaunch(*(found[part] / launches for part in ("own", "c_library", "driver")))
