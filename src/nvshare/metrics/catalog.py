"""A catalog: every metric that one port serves, one row each, grouped by subject.

The exposition, docs/metrics.md and the completeness test are all made from the rows; dashboards pick metrics
by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from nvshare.metrics.families import Metric
from nvshare.metrics.rows import Rows

_SAMPLE_SUFFIXES: Final = ("_bucket", "_sum", "_count")


class Subject(NamedTuple):
    """One heading of the catalog and the prefixes of its metrics."""

    title: str
    prefixes: tuple[str, ...]


class Catalog:
    """``debug_labels`` identify processes, which come and go: a setting can leave them out."""

    def __init__(
        self,
        subjects: tuple[Subject, ...],
        rows: tuple[Rows, ...],
        debug_labels: frozenset[str] = frozenset(),
    ) -> None:
        self.subjects = subjects
        self.debug_labels = debug_labels
        self._metrics: dict[str, Metric] = {}  # in the order in which they are shown
        for metric in (metric for part in rows for metric in part.all):
            assert metric.name not in self._metrics, f"{metric.name} is defined twice"
            self._metrics[metric.name] = metric

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._metrics.values())

    def __contains__(self, name: str) -> bool:
        return name in self._metrics

    def __getitem__(self, name: str) -> Metric:
        return self._metrics[name]

    def names(self) -> set[str]:
        return set(self._metrics)

    def metric_of_sample(self, name: str) -> Metric | None:
        """The metric that a sample of this name belongs to; a histogram's samples have suffixes."""
        metric = self._metrics.get(name)
        if metric is not None and metric.kind != "histogram":
            return metric
        for suffix in _SAMPLE_SUFFIXES:
            metric = self._metrics.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if metric is not None and metric.kind == "histogram":
                return metric
        return None

    def of_subject(self, subject: Subject) -> list[Metric]:
        return [metric for metric in self if self._subject_of(metric) is subject]

    def _subject_of(self, metric: Metric) -> Subject:
        """The first one whose prefix fits."""
        return next(one for one in self.subjects if metric.name.startswith(one.prefixes))
