"""The value objects of metrics: a metric is a row of the catalog, a family is a metric with its samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

Kind = Literal["gauge", "counter", "histogram", "summary"]
Merge = Literal["same", "sum", "any"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the catalog. The unit is the end of the name."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    source: str  # who knows the number: nvml, scheduler, daemon, process
    since: str  # fixed or ours: see catalog/rows.py
    bounds: tuple[float, ...] = ()  # of a histogram's buckets, without +Inf
    merge: Merge = "same"  # how samples that become alike without the debug labels become one
    ratio: bool = False  # written with four decimals, as the earlier nvshare prints ratios
    figure: str = ""  # of the core's GpuFigures that it shows as it is
    note: str = ""  # what a reader may not expect, and why


class Distribution(NamedTuple):
    """The value of a histogram's sample: how many fell into each bucket, the last one without a bound."""

    counts: tuple[int, ...]
    total: float


class Quantiles(NamedTuple):
    """The value of a summary's sample: some quantiles, and how many values there were in all."""

    quantiles: tuple[tuple[float, float], ...]
    total: float
    values: int


Value = int | float | Distribution | Quantiles
Sample = tuple[tuple[str, ...], Value]
"""The values of the metric's labels, in its order, and the number."""


class Family(NamedTuple):
    metric: Metric
    samples: Iterable[Sample]


def with_labels(metric: Metric, labels: tuple[str, ...]) -> Metric:
    """The same metric with other labels."""
    return replace(metric, labels=labels)
