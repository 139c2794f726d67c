"""One figure under the several names that HAMi has given it.

1. There are three sets of names: ``seed``, those of HAMi's documentation; ``legacy``, the same names as
   releases have them behind ``--legacy-metrics``, some with other labels; ``current``, those that begin with
   ``hami_``.
2. A name is shown once. If several sets have it, the labels of the seed win.
3. The label ``zone`` is on every legacy and current series, because HAMi's own have it, and on none of the
   seed.
4. An exporter makes the samples of a figure once, with all labels that any set needs, by our words for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Final, NamedTuple

from nvshare.metrics.families import Family, Metric, Sample, Value
from nvshare.metrics.rows import FIXED, Rows

SEED: Final = "seed"
LEGACY: Final = "legacy"
CURRENT: Final = "current"
SETS: Final = (SEED, LEGACY, CURRENT)
ZONE: Final = "zone"
ZONE_VALUE: Final = "vGPU"
_FIELDS: Final = {
    "nodeid": "node",
    "nodename": "node",
    "deviceuuid": "uuid",
    "device_uuid": "uuid",
    "deviceidx": "number",
    "device_index": "number",
    "devicetype": "type",
    "device_type": "type",
    "devicecores": "cores",
    "device_cores": "cores",
    "sharedcontainers": "shared",
    "devicememorylimit": "memory_limit",
    "device_memory_limit": "memory_limit",
    "migname": "mig_name",
    "podnamespace": "namespace",
    "podname": "pod",
    "containeridx": "container_index",
    "ctrname": "container",
    "vdeviceid": "vdevice",
    "vdevice_index": "vdevice",
    "instanceid": "gpu_instance",
    "gpu_instance_id": "gpu_instance",
    "quotanamespace": "namespace",
    "quotaName": "quota",
    "quota_name": "quota",
}
"""What a label means, where the label is not our word for it."""


class Named(NamedTuple):
    """A figure: the labels of its samples in our words, and its metric in each set that has one."""

    fields: tuple[str, ...]
    metrics: dict[str, Metric]
    deprecated: bool = False

    def in_sets(self, chosen: frozenset[str]) -> Iterator[Metric]:
        """Rule 2."""
        shown: set[str] = set()
        for one in SETS:
            metric = self.metrics.get(one)
            if one in chosen and metric is not None and metric.name not in shown:
                shown.add(metric.name)
                yield metric


class Figures:
    """Makes the figures of a port, and the rows of its catalog: of a name that two sets have, the seed's."""

    def __init__(self) -> None:
        self.row = Rows("")
        self._legacy = Rows("")

    def __call__(
        self,
        text: str,
        source: str,
        *,
        seed: tuple[str, str] | None = None,
        legacy: str | None = None,
        current: tuple[str, str] | None = None,
        note: str = "",
        deprecated: bool = False,
    ) -> Named:
        """``seed`` and ``current``: a name, and its labels in one text; ``legacy``: the labels of the seed's
        name where they differ; empty if releases have it no more.
        """
        metrics: dict[str, Metric] = {}
        if seed is not None:
            name, labels = seed[0], tuple(seed[1].split())
            metrics[SEED] = self.row(name, labels, text, source, FIXED, "gauge", note=note)
            if legacy is None or legacy:
                others = tuple(legacy.split()) if legacy else labels
                metrics[LEGACY] = self._legacy(name, (*others, ZONE), text, source, FIXED, "gauge", note=note)
        if current is not None:
            labels = (*current[1].split(), ZONE)
            metrics[CURRENT] = self.row(current[0], labels, text, source, FIXED, "gauge", note=note)
        words = [_FIELDS.get(label, label) for metric in metrics.values() for label in metric.labels]
        return Named(tuple(dict.fromkeys(word for word in words if word != ZONE)), metrics, deprecated)


class NameChoice:
    """Which names are shown."""

    def __init__(self, sets: Iterable[str], deprecated: bool = True) -> None:
        self.sets = frozenset(sets)
        self.deprecated = deprecated
        self._made: dict[str, list[tuple[Metric, Callable[[tuple[str, ...]], tuple[str, ...]]]]] = {}

    def families(self, figure: Named, samples: Callable[[], Iterable[Sample]]) -> Iterator[Family]:
        """``samples`` is called for each name: a large cluster's are not kept."""
        if figure.deprecated and not self.deprecated:
            return
        for metric, pick in self._chosen(figure):
            yield Family(metric, _picked(samples(), pick))

    def _chosen(self, figure: Named) -> list[tuple[Metric, Callable[[tuple[str, ...]], tuple[str, ...]]]]:
        key = next(iter(figure.metrics.values())).name
        if key not in self._made:
            metrics = figure.in_sets(self.sets)
            self._made[key] = [(metric, _picker(figure.fields, metric.labels)) for metric in metrics]
        return self._made[key]


def _picker(fields: tuple[str, ...], labels: tuple[str, ...]) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """The values of a metric's labels out of those of the figure; the zone is the last label, if there is
    one.
    """
    own = [label for label in labels if label != ZONE]
    pick: Callable[[tuple[str, ...]], tuple[str, ...]] = itemgetter(
        *(fields.index(_FIELDS.get(label, label)) for label in own)
    )
    if len(own) == len(labels):
        return pick
    assert labels[-1] == ZONE, labels
    return lambda values: (*pick(values), ZONE_VALUE)


def _picked(
    samples: Iterable[Sample], pick: Callable[[tuple[str, ...]], tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], Value]]:
    for values, value in samples:
        yield pick(values), value


def parse_names(text: str) -> frozenset[str] | None:
    """``all``, or sets with commas between them; None if it is neither."""
    found = frozenset(SETS) if text == "all" else frozenset(text.split(","))
    return found if found <= frozenset(SETS) else None


ACCEPTED_NAMES: Final = f"all, or any of {', '.join(SETS)} with commas between them"
