"""GPUs as NVML reports them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nvshare.exporters.scheduler import EXPORTERS
from nvshare.exporters.scheduler.view import View
from nvshare.exporters.steps import Families
from nvshare.gpu.reading import GpuReading
from nvshare.metrics.families import Family, Metric, Sample
from nvshare.metrics.scheduler import gpu as c

Figure = Callable[[GpuReading], int | float | None]


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor


_FIGURES: Final[tuple[tuple[Metric, Figure], ...]] = (
    (c.GPU_MEMORY_TOTAL, lambda r: r.total_bytes),
    (c.GPU_MEMORY_USED, lambda r: r.used_bytes),
    (c.GPU_MEMORY_FREE, lambda r: r.free_bytes),
    (c.GPU_UTILIZATION, lambda r: _scaled(r.gpu_percent, 0.01)),
    (c.GPU_MEMORY_UTILIZATION, lambda r: _scaled(r.memory_percent, 0.01)),
    (c.GPU_PROCESSES, lambda r: r.process_count),
    (c.GPU_TEMPERATURE, lambda r: r.celsius),
    (c.GPU_POWER, lambda r: None if r.milliwatts is None else r.milliwatts / 1000),
    (c.GPU_ENERGY, lambda r: None if r.millijoules is None else r.millijoules / 1000),
    (c.GPU_SM_CLOCK, lambda r: None if r.sm_clock_mhz is None else r.sm_clock_mhz * 1_000_000),
    (c.GPU_MEMORY_CLOCK, lambda r: None if r.memory_clock_mhz is None else r.memory_clock_mhz * 1_000_000),
    (c.GPU_ECC_CORRECTED, lambda r: r.ecc_corrected),
    (c.GPU_ECC_UNCORRECTED, lambda r: r.ecc_uncorrected),
)
_OF_LOST_TOO: Final[tuple[tuple[Metric, Figure], ...]] = (
    (c.GPU_XIDS, lambda r: r.xids),
    (c.GPU_LAST_XID, lambda r: None if r.xids is None else r.last_xid),
)
"""Counted here and not by the card: a card that falls off the bus still shows its last XID."""


def families(view: View) -> Families:
    yield Family(c.NVML_UP, [((), int(view.nvml_up))])
    readings = view.readings
    names = [r for r in readings if r.name is not None]
    yield Family(c.GPU_INFO, [((r.uuid, str(r.index), r.name or ""), 1) for r in names])
    yield _family(c.GPU_SIMULATED, lambda r: int(r.simulated), readings)
    for metric, figure in _FIGURES:
        yield _family(metric, figure, readings)
    for metric, figure in _OF_LOST_TOO:
        yield _family(metric, figure, [*readings, *view.last_words])


def _family(metric: Metric, figure: Figure, readings: list[GpuReading]) -> Family:
    samples: list[Sample] = []
    for reading in readings:
        value = figure(reading)
        if value is not None:
            samples.append(((reading.uuid, str(reading.index)), value))
    return Family(metric, samples)


EXPORTERS.register(__name__, lambda: families)
