"""What we write, prometheus-client reads back: the oracle of both formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from nvshare.metrics.exposition import OPENMETRICS_END, Exposition, merged, number_text, unit_of
from nvshare.metrics.families import Distribution, Family, Metric, Quantiles, Sample
from nvshare.metrics.scheduler import SCHEDULER
from nvshare.metrics.scheduler.client import CLIENT_INFO, CLIENT_USAGE_RATIO
from nvshare.metrics.scheduler.gpu import GPU_MEMORY_TOTAL
from nvshare.metrics.scheduler.pod import POD_LOCK_WAIT

Parse = Callable[[str], Iterable[Any]]
LABEL = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ['a"b', "a\\b", "a\nb", "\\n", '\\"', "节点", "{}", "a,b=c", "#", " x ", "\t", "%s%d%%", "\x00"]
)
WHOLE = st.integers(0, 2**64)
NUMBER = (
    WHOLE
    | st.floats(min_value=0, allow_nan=False)
    | st.sampled_from([1e-300, 5e-324, 1.7e308, 0.1, 1e16, 2.0**53])
)


def gauge_values() -> st.SearchStrategy[int | float]:
    return NUMBER | st.sampled_from([math.nan, math.inf, -math.inf, -1, -0.5])


@st.composite
def families(draw: st.DrawFn) -> list[Family]:
    found = []
    for metric in draw(st.lists(st.sampled_from(list(SCHEDULER)), min_size=1, max_size=6, unique=True)):
        labels = st.tuples(*(LABEL for _ in metric.labels))
        if metric.kind == "histogram":
            counts = st.tuples(*(st.integers(0, 2**40) for _ in (*metric.bounds, 0)))
            value: st.SearchStrategy[Any] = st.builds(Distribution, counts, st.floats(0, 1e12))
        else:
            value = gauge_values() if metric.kind == "gauge" else NUMBER.filter(math.isfinite)
        samples = draw(st.dictionaries(labels, value, max_size=4))
        found.append(Family(metric, list(samples.items())))
    return found


def expected(family: Family) -> list[tuple[str, dict[str, str], float]]:
    metric = family.metric
    rows: list[tuple[str, dict[str, str], float]] = []
    for values, value in family.samples:
        labels = dict(zip(metric.labels, values, strict=True))
        if isinstance(value, Distribution):
            bounds = [*map(repr, map(float, metric.bounds)), "+Inf"]
            for bound, count in zip(bounds, accumulate(value.counts), strict=True):
                rows.append((f"{metric.name}_bucket", {**labels, "le": bound}, count))
            rows.append((f"{metric.name}_sum", labels, value.total))
            rows.append((f"{metric.name}_count", labels, sum(value.counts)))
        else:
            assert not isinstance(value, Quantiles), "the scheduler has no summaries"
            shown = round(value, 4) if metric.ratio and math.isfinite(value) else value
            rows.append((metric.name, labels, float(shown)))
    return rows


def same(ours: list[tuple[str, dict[str, str], float]], theirs: list[Any]) -> bool:
    def key(row: tuple[str, dict[str, str], float]) -> tuple[str, list[tuple[str, str]]]:
        return row[0], sorted(row[1].items())

    read = [(sample.name, sample.labels, sample.value) for sample in theirs]
    for mine, other in zip(sorted(ours, key=key), sorted(read, key=key), strict=True):
        if key(mine) != key(other):
            return False
        if not (math.isnan(mine[2]) and math.isnan(other[2])) and mine[2] != pytest.approx(
            other[2], rel=1e-15
        ):
            return False
    return True


def check(put_in: list[Family], text: str, parse: Parse) -> None:
    read = {family.name: family for family in parse(text)}
    shown = [family for family in put_in if family.samples]
    assert len(read) == len(shown), "a family without samples prints nothing"
    for family in shown:
        metric = family.metric
        name = metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name
        parsed = read[name]
        assert parsed.type == metric.kind
        assert parsed.documentation == metric.help
        assert same(expected(family), parsed.samples), text


@given(families())
def test_text_reads_back_as_what_was_put_in(put_in: list[Family]) -> None:
    exposition = Exposition()
    for _ in range(2):  # the second time label texts come from the scrape before
        text = "".join(exposition.render(family) for family in put_in)
        check(put_in, text, parse_text)
        exposition.end_scrape()


@given(families())
def test_openmetrics_reads_back_as_what_was_put_in(put_in: list[Family]) -> None:
    exposition = Exposition()
    text = "".join(exposition.render(family, openmetrics=True) for family in put_in) + OPENMETRICS_END
    check(put_in, text, parse_openmetrics)
    read: Parse = parse_openmetrics
    for family in read(text):
        ours = SCHEDULER[family.name if family.name in SCHEDULER else f"{family.name}_total"]
        assert family.unit == unit_of(ours)


def test_the_lines_are_those_of_the_seed() -> None:
    exposition = Exposition()
    gpu = ("GPU-x", "0")
    assert exposition.render(Family(GPU_MEMORY_TOTAL, [(gpu, 17179869184)])).splitlines() == [
        "# HELP nvshare_gpu_memory_total_bytes Memory of the GPU.",
        "# TYPE nvshare_gpu_memory_total_bytes gauge",
        'nvshare_gpu_memory_total_bytes{gpu_uuid="GPU-x",gpu_index="0"} 17179869184',
    ]
    info = exposition.render(Family(CLIENT_INFO, [(("default", "p", "ab", "GPU-x", "0", "12"), 1)]))
    assert info.splitlines()[2] == (
        'nvshare_client_info{namespace="default",pod="p",client_id="ab",gpu_uuid="GPU-x",gpu_index="0",'
        'host_pid="12"} 1'
    )
    ratio = exposition.render(Family(CLIENT_USAGE_RATIO, [(("default", "p", "ab", "GPU-x"), 0.0)]))
    assert ratio.endswith("} 0.0000\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e3, "1000"),
        (2.0**53, "9007199254740992"),
        (0.5, "0.5"),
        (1e300, "1e+300"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number_text(value) == text


def test_what_a_scrape_did_not_use_is_forgotten() -> None:
    exposition = Exposition()
    for number in range(5):
        samples: list[Sample] = [((f"GPU-{number}-{row}", "0"), 1) for row in range(100)]
        exposition.render(Family(GPU_MEMORY_TOTAL, samples))
        exposition.end_scrape()
    assert sum(len(texts) for texts in exposition._previous.values()) == 100
    assert exposition._blocks == {}
    assert all(texts.previous == {} for texts in exposition._previous.values()), "nor kept by a chain"


def test_a_histogram_is_cumulative() -> None:
    counts = (1, 2, 0, 0, 0, 0, 0, 0, 4)
    text = Exposition().render(Family(POD_LOCK_WAIT, [(("n", "p", "g"), Distribution(counts, 1.5))]))
    values = [line.rsplit(" ", 1)[1] for line in text.splitlines()[2:]]
    assert values == ["1", "3", "3", "3", "3", "3", "3", "3", "7", "1.5", "7"]


def test_without_debug_labels_samples_become_one() -> None:
    metric = Metric(
        name="nvshare_x_bytes",
        kind="gauge",
        labels=("pod", "client_id"),
        help="",
        source="",
        since="",
        merge="sum",
    )
    family = merged(metric, ("pod",), [(("a", "1"), 2), (("a", "2"), 3), (("b", "3"), 4)])
    assert family.metric.labels == ("pod",)
    assert family.samples == [(("a",), 5), (("b",), 4)]
    assert Exposition().render(family).splitlines()[2:] == [
        'nvshare_x_bytes{pod="a"} 5',
        'nvshare_x_bytes{pod="b"} 4',
    ]
