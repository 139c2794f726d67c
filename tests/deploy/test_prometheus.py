"""A real Prometheus scrapes a node under load: it has nothing to complain of, and all it is asked for."""

from __future__ import annotations

import math
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nvshare.metrics.dashboards import DASHBOARDS
from nvshare.metrics.dashboards.model import Dashboard, Query
from tests.deploy.servers import Prometheus, prometheus, wait_for
from tests.exporters.node import MetricsNode, metrics_node

SEED_QUERIES = (
    "nvshare_gpu_memory_used_bytes / nvshare_gpu_memory_total_bytes",
    "max_over_time(nvshare_client_memory_need_estimated_bytes[10m])",
    "nvshare_client_core_window_usage_ms / nvshare_client_core_window_limit_ms",
    "avg_over_time(nvshare_client_throttled[5m])",
)
# What promtool finds, and why it stays: these names are the seeds'.
EXCEPTIONS = {
    'nvshare_gpu_process_count non-histogram and non-summary metrics should not have "_count" suffix',
    'nvshare_client_core_window_limit_ms use base unit "seconds" instead of "milliseconds"',
    'nvshare_client_core_window_usage_ms use base unit "seconds" instead of "milliseconds"',
    'nvshare_client_quota_debt_ms use base unit "seconds" instead of "milliseconds"',
    "nvshare_client_core_window_limit_ms metric names should not contain abbreviated units",
    "nvshare_client_core_window_usage_ms metric names should not contain abbreviated units",
    "nvshare_client_quota_debt_ms metric names should not contain abbreviated units",
}
WINDOWS = {"$__rate_interval": "1m", "$__range": "1m"}  # all there is, however slow the machine
PICKED = {"namespace": "default", "pod": "limited"}


@contextmanager
def busy_node(place: Path) -> Iterator[MetricsNode]:
    with metrics_node(place) as node:
        node.daemon.set_quota("limited", core_percent=30, memory_bytes=1 << 30)
        node.daemon.set_quota("other", core_percent=40)
        for name in ("limited", "other", "free"):
            node.pod(name)
        node.outsider()
        yield node


def check_scrapes(server: Prometheus, seconds: int) -> None:
    """``up`` 1 throughout, and never an error."""
    window = f"[{seconds}s]"
    assert server.numbers(f'min_over_time(up{{job="nvshare"}}{window})') == [1]
    [count] = server.numbers(f'count_over_time(up{{job="nvshare"}}{window})')
    assert count >= seconds / 2 * 0.8
    [target] = server.targets()
    assert (target["health"], target["lastError"]) == ("up", "")


def check_queries(server: Prometheus) -> None:
    for query in SEED_QUERIES:
        assert server.numbers(query), query
    info = server.query('nvshare_client_info{pod="limited"}')
    assert info[0]["metric"]["namespace"] == "default", "honor_labels keeps ours"
    assert not any(label.startswith("exported_") for label in info[0]["metric"])
    assert server.query('up{namespace="nvshare-system"}'), "and the target keeps its own"


def filled_in(text: str, picked: dict[str, str]) -> str:
    values = WINDOWS | {f"${name}": value for name, value in picked.items()}
    for variable in sorted(values, key=len, reverse=True):
        text = text.replace(variable, values[variable])
    return text


def values_of(server: Prometheus, query: str, regex: str) -> list[str]:
    """What Grafana offers for a variable."""
    kind, _, rest = query.removesuffix(")").partition("(")
    if kind == "query_result":
        pattern = re.compile(regex.strip("/").replace("(?<", "(?P<"))
        found = (pattern.search(str_of(row["metric"])) for row in server.query(rest))
        return [match["value"] for match in found if match]
    assert kind == "label_values"
    series, _, label = rest.rpartition(", ")
    return sorted({row["metric"][label] for row in server.query(series)})


def str_of(metric: dict[str, str]) -> str:
    """A series as Grafana writes it for a variable's regular expression: labels as Prometheus sorts them."""
    labels = ",".join(f'{label}="{metric[label]}"' for label in metric if label != "__name__")
    return f"{metric.get('__name__', '')}{{{labels}}} 1 1"


def picked_of(server: Prometheus, dashboard: Dashboard) -> dict[str, str]:
    """What a reader picks at the top: ours, or the first there is, or all."""
    picked: dict[str, str] = {}
    for variable in dashboard.variables:
        offered = values_of(server, filled_in(variable.query, picked), variable.regex)
        assert offered, variable.name
        wanted = PICKED.get(variable.name, offered[0])
        assert wanted in offered
        picked[variable.name] = ".*" if variable.several else wanted
    return picked


def check_panels(server: Prometheus) -> None:
    """Every panel of every dashboard shows something, and a number where there is one."""
    dead, empty, not_numbers = [], [], []
    for name, dashboard in DASHBOARDS.items():
        picked = picked_of(server, dashboard)
        for panel in dashboard.panels():
            answers = {query: server.query(filled_in(query.expr, picked)) for query in panel.asked()}
            if not any(answers.values()):
                dead.append(f"{name}: {panel.title}")
            empty += [
                f"{panel.title}: {query.expr}" for query in answers if not (answers[query] or query.quiet)
            ]
            numbers = [float(row["value"][1]) for rows in answers.values() for row in rows]
            not_numbers += [panel.title for number in numbers if not math.isfinite(number)]
            check_labels(answers, {label.name for label in panel.labels})
    assert (dead, empty, not_numbers) == ([], [], [])


def check_labels(answers: dict[Query, list[dict[str, Any]]], row: set[str]) -> None:
    """A legend has what it is made of and tells its series apart; columns of a table have the same rows."""
    for query, found in answers.items():
        wanted = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
        for one in found:
            assert wanted <= set(one["metric"]), query
            assert not row or set(one["metric"]) == row, query
        drawn = [tuple(one["metric"].get(label) for label in sorted(wanted)) for one in found]
        assert row or len(drawn) == len(set(drawn)), query


def check_alert(node: MetricsNode, server: Prometheus) -> None:
    """From the fault over the rule to the alertmanager, and back."""

    def firing() -> list[str]:
        return [
            a["labels"]["source"] for a in server.alerts() if a["labels"]["alertname"] == "NvshareSourceDown"
        ]

    assert firing() == []
    node.sim.fault("nvml-down")
    wait_for(lambda: "nvml" in firing())
    node.sim.fault("nvml-up")
    wait_for(lambda: not firing())


def check_lint(node: MetricsNode) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=node.scrape().text,
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = {line for line in (done.stdout + done.stderr).splitlines() if line.strip()}
    assert complaints <= EXCEPTIONS


def test_a_short_while(place: Path) -> None:
    with busy_node(place) as node, prometheus(place, node.port) as server:
        # A machine that stands still for two seconds is no failure: eight scrapes, however long they take.
        wait_for(lambda: server.numbers('sum_over_time(up{job="nvshare"}[5m])') >= [8.0])
        check_queries(server)
        check_panels(server)
        check_lint(node)
        check_alert(node, server)


@pytest.mark.verify
def test_two_minutes_under_load(place: Path) -> None:
    with busy_node(place) as node, prometheus(place, node.port) as server:
        wait_for(lambda: server.numbers('up{job="nvshare"}') == [1.0])
        time.sleep(120)  # the two minutes
        check_scrapes(server, 118)
        check_queries(server)
        check_panels(server)
        check_lint(node)
        check_alert(node, server)
        assert not re.search(r"level=(error|warn).*scrape", (place / "prometheus/prometheus.log").read_text())
