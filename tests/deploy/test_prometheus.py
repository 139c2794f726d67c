"""A real Prometheus scrapes a node under load: it has nothing to complain of, and all it is asked for."""

from __future__ import annotations

import math
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nvshare.metrics.dashboards import panels
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
VARIABLES = {"$__rate_interval": "20s", "$instance": ".*", "$namespace": ".*", "$pod": ".*"}


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


def check_panels(server: Prometheus) -> None:
    """Every panel of every dashboard shows something, and a number where there is one."""
    empty, without_number = [], []
    for name, rows in panels().items():
        for panel in rows:
            expr = panel.expr
            for variable, value in VARIABLES.items():
                expr = expr.replace(variable, value)
            numbers = server.numbers(expr)
            if not numbers:
                empty.append(f"{name}: {panel.title}: {expr}")
            elif all(map(math.isnan, numbers)):
                without_number.append(panel.title)
    assert empty == []
    # The quantile of nothing is not a number: no quota was changed in the last moments.
    assert set(without_number) <= {"Scheduler quota change to effect"}


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
