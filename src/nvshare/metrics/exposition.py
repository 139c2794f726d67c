"""Families as text: Prometheus 0.0.4 and OpenMetrics 1.0.

Rules:
1. A family without samples prints nothing, not even its HELP.
2. Whole numbers are plain decimals, ratios have four decimals, every other number is the shortest that reads
   back the same; not a number and infinity are written as Prometheus writes them.
3. Label values are escaped once: the text of a label set is kept from scrape to scrape, and what was not used
   in the last scrape is forgotten, so the memory this takes is bounded by what was last shown.
4. One formatting call renders a whole family: this runs on the loop that grants turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from math import isfinite
from typing import Final

from nvshare.metrics.families import Distribution, Family, Metric, Quantiles, Sample, with_labels

OPENMETRICS_END: Final = "# EOF\n"
UNITS: Final = ("bytes", "seconds", "ratio", "celsius", "watts", "joules", "hertz", "percent", "ms")
_WHOLE_MOST: Final = 2.0**63
_FREED_AT_ONCE: Final = 1024


def escape(value: str) -> str:
    """A label's value between its quotes."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def number_text(value: float) -> str:
    if not isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    if value.is_integer() and -_WHOLE_MOST < value < _WHOLE_MOST:
        return str(int(value))
    return repr(value)


def _ratio_text(value: float) -> str:
    return f"{value:.4f}" if isfinite(value) else number_text(value)


@cache
def _bound_texts(bounds: tuple[float, ...]) -> tuple[str, ...]:
    """The last label of each bucket of a histogram with these bounds, as it is written."""
    texts = [*(repr(float(bound)) for bound in bounds), "+Inf"]
    return tuple(f'le="{text}"}} ' for text in texts)


def unit_of(metric: Metric) -> str:
    """The base of the name's end, if it is a unit."""
    last = metric.name.removesuffix("_total").rpartition("_")[2]
    return last if last in UNITS else ""


class Exposition:
    """Renders families of one server; keeps the texts of label sets (rule 3)."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, ...], _Texts] = {}
        self._previous: dict[tuple[str, ...], _Texts] = {}

    def ending_scrape(self) -> Iterator[None]:
        """What the scrape did not use is forgotten, in steps: freeing takes its time too."""
        forgotten, self._previous, self._blocks = self._previous, self._blocks, {}
        for texts in self._previous.values():
            texts.previous = {}  # else each scrape would keep all before it
        for blocks in forgotten.values():
            while blocks:
                for _ in range(min(len(blocks), _FREED_AT_ONCE)):
                    blocks.popitem()
                yield None

    def end_scrape(self) -> None:
        """All steps at once."""
        for _ in self.ending_scrape():
            pass

    def render(self, family: Family, openmetrics: bool = False, goes_on: bool = False) -> str:
        """``goes_on``: the samples before were of the same metric, and its head stands there."""
        metric, samples = family.metric, list(family.samples)
        if not samples:
            return ""
        head = "" if goes_on else _head(metric, openmetrics)
        if metric.kind == "histogram":
            return head + "".join(self._histogram(metric, labels, value) for labels, value in samples)
        if metric.kind == "summary":
            return head + "".join(self._summary(metric, labels, value) for labels, value in samples)
        blocks = self._texts(metric.labels)
        text_of = _ratio_text if metric.ratio else number_text
        flat: list[object] = []
        extend = flat.extend
        for labels, value in samples:
            extend((blocks[labels], value if value.__class__ is int else text_of(value)))  # type: ignore[arg-type]
        return head + (f"{metric.name}%s %s\n" * len(samples)) % tuple(flat)

    def _texts(self, names: tuple[str, ...]) -> _Texts:
        """The texts of all label sets of a family; those of the same names are shared between families."""
        blocks = self._blocks.get(names)
        if blocks is None:
            blocks = self._blocks[names] = _Texts(names, self._previous.get(names, {}))
        return blocks

    def _histogram(self, metric: Metric, labels: tuple[str, ...], value: object) -> str:
        assert isinstance(value, Distribution), (metric.name, value)
        bounds = _bound_texts(metric.bounds)
        assert len(bounds) == len(value.counts), (metric.name, value)
        block = self._texts(metric.labels)[labels]
        before = f"{metric.name}_bucket{block[:-1]}," if block else f"{metric.name}_bucket{{"
        lines = [before + le + str(total) for le, total in zip(bounds, accumulate(value.counts), strict=True)]
        lines.append(f"{metric.name}_sum{block} {number_text(float(value.total))}")
        lines.append(f"{metric.name}_count{block} {sum(value.counts)}\n")
        return "\n".join(lines)

    def _summary(self, metric: Metric, labels: tuple[str, ...], value: object) -> str:
        assert isinstance(value, Quantiles), (metric.name, value)
        block = self._texts(metric.labels)[labels]
        before = f"{metric.name}{block[:-1]}," if block else f"{metric.name}{{"
        lines = [f'{before}quantile="{part!r}"}} {number_text(found)}' for part, found in value.quantiles]
        lines.append(f"{metric.name}_sum{block} {number_text(float(value.total))}")
        lines.append(f"{metric.name}_count{block} {value.values}\n")
        return "\n".join(lines)


class _Texts(dict[tuple[str, ...], str]):
    """Label values -> ``{name="value",...}``, made when first asked for."""

    __slots__ = ("_names", "previous")

    def __init__(self, names: tuple[str, ...], previous: dict[tuple[str, ...], str]) -> None:
        super().__init__()
        self._names = names
        self.previous = previous

    def __missing__(self, values: tuple[str, ...]) -> str:
        text = self.previous.get(values)
        if text is None:
            pairs = zip(self._names, values, strict=True)
            inside = ",".join(f'{name}="{escape(value)}"' for name, value in pairs)
            text = f"{{{inside}}}" if inside else ""
        self[values] = text
        return text


def _help_text(text: str, openmetrics: bool) -> str:
    escaped = text.replace("\\", r"\\").replace("\n", r"\n")
    return escaped.replace('"', r"\"") if openmetrics else escaped


def _head(metric: Metric, openmetrics: bool) -> str:
    name = metric.name
    if openmetrics and metric.kind == "counter":
        name = name.removesuffix("_total")
    head = f"# HELP {name} {_help_text(metric.help, openmetrics)}\n# TYPE {name} {metric.kind}\n"
    if openmetrics and unit_of(metric):
        head += f"# UNIT {name} {unit_of(metric)}\n"
    return head


def merged(metric: Metric, labels: tuple[str, ...], samples: list[Sample]) -> Family:
    """The family with only these labels: samples that become alike become one, by the metric's rule."""
    places = [metric.labels.index(label) for label in labels]
    narrowed = with_labels(metric, labels)
    join: Callable[[float, float], float] = (lambda a, b: a + b) if metric.merge == "sum" else max
    found: dict[tuple[str, ...], float] = {}
    for values, value in samples:
        assert not isinstance(value, Distribution | Quantiles), metric.name
        key = tuple(values[place] for place in places)
        found[key] = join(found[key], value) if key in found else value
    return Family(narrowed, list(found.items()))
