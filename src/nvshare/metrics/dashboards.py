"""Grafana dashboards, made from the catalog: a panel a metric, so none is forgotten or asks for what is not.

A gauge is shown as it is, a counter as its rate, a histogram as its 99th percentile, an info as a table. The
fleet's panels are sums over nodes.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any, Final, NamedTuple

from nvshare.metrics.catalog import CATALOG, SUBJECTS, clients, daemon, gpus, pods, scheduler, subject_of
from nvshare.metrics.exposition import unit_of
from nvshare.metrics.families import Metric

_UNITS: Final = {
    "bytes": "bytes",
    "seconds": "s",
    "ratio": "percentunit",
    "celsius": "celsius",
    "watts": "watt",
    "joules": "joule",
    "hertz": "hertz",
    "percent": "percent",
    "ms": "ms",
}
_RATE_UNITS: Final = {"seconds": "percentunit", "joules": "watt", "bytes": "Bps"}
_WIDTH: Final = 12
_HEIGHT: Final = 8
_INSTANCE: Final = 'instance=~"$instance"'
_POD: Final = 'namespace=~"$namespace",pod=~"$pod"'


class Panel(NamedTuple):
    title: str
    expr: str
    legend: str
    unit: str
    help: str
    table: bool = False
    subject: str = ""


def _title(metric: Metric) -> str:
    words = metric.name.removeprefix("nvshare_").removesuffix("_total").removesuffix("_info").split("_")
    unit = unit_of(metric)
    if unit and words[-1] == unit and len(words) > 1:
        words = words[:-1]
    if words[0] == "gpu":
        words[0] = "GPU"
    text = " ".join(words).replace("client ", "process ").replace("pod gpu ", "pod ")
    return text[0].upper() + text[1:]


def _panel(metric: Metric, selector: str) -> Panel:
    """How one metric is shown."""
    name, unit = metric.name, unit_of(metric)
    shown = _UNITS.get(unit, "short")
    if metric.kind == "counter":
        expr = f"rate({name}{{{selector}}}[$__rate_interval])"
        shown = _RATE_UNITS.get(unit, "short")
    elif metric.kind == "histogram":
        labels = ", ".join(("instance", *metric.labels, "le"))
        rate = f"rate({name}_bucket{{{selector}}}[$__rate_interval])"
        expr = f"histogram_quantile(0.99, sum by ({labels}) ({rate}))"
    else:
        expr = f"{name}{{{selector}}}"
    if name.endswith("_timestamp_seconds"):
        expr, shown = f"time() - {expr}", "s"
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels if label != "gpu_index")
    table, subject = name.endswith("_info"), subject_of(metric)
    return Panel(_title(metric), expr, legend or "{{instance}}", shown, metric.help, table, subject)


def _of_pods(metric: Metric) -> bool:
    return "pod" in metric.labels


def _node_panels() -> list[Panel]:
    return [_panel(metric, _INSTANCE) for metric in CATALOG.values() if not _of_pods(metric)]


def _pod_panels() -> list[Panel]:
    return [_panel(metric, f"{_INSTANCE},{_POD}") for metric in CATALOG.values() if _of_pods(metric)]


def _rate(metric: Metric) -> str:
    return f"rate({metric.name}[$__rate_interval])"


def _fleet_panels() -> list[Panel]:
    """Few enough to see at a glance."""
    return [*_fleet_sizes(), *_fleet_gpus(), *_fleet_tenants(), *_fleet_health()]


def _shown(title: str, metric: Metric, expr: str, legend: str, unit: str = "short") -> Panel:
    """With the help of the metric it is about."""
    return Panel(title, expr, legend, unit, metric.help)


def _fleet_sizes() -> list[Panel]:
    down = f"count({daemon.SOURCE_UP.name} == 0) or vector(0)"
    return [
        _shown("Nodes", daemon.BUILD_INFO, f"count({daemon.BUILD_INFO.name})", "nodes"),
        _shown("GPUs", gpus.GPU_INFO, f"count({gpus.GPU_INFO.name})", "GPUs"),
        _shown("Processes that share", daemon.CLIENTS, f"sum({daemon.CLIENTS.name})", "processes"),
        _shown("Sources down", daemon.SOURCE_UP, down, "down"),
    ]


def _fleet_gpus() -> list[Panel]:
    used, total = (f"sum by (instance) ({m.name})" for m in (gpus.GPU_MEMORY_USED, gpus.GPU_MEMORY_TOTAL))
    busy = f"avg by (instance) ({gpus.GPU_UTILIZATION.name})"
    return [
        _shown("GPU memory used", gpus.GPU_MEMORY_USED, f"{used} / {total}", "{{instance}}", "percentunit"),
        _shown("GPU utilization", gpus.GPU_UTILIZATION, busy, "{{instance}}", "percentunit"),
    ]


def _fleet_tenants() -> list[Panel]:
    occupied, throttled = _rate(pods.POD_OCCUPIED), _rate(pods.POD_THROTTLED)
    by_namespace = f"sum by (namespace) ({occupied})"
    memory = f"sum by (namespace) ({clients.CLIENT_ALLOCATED.name})"
    most = f"topk(10, sum by (namespace, pod) ({occupied}))"
    held_back = f"topk(10, sum by (namespace, pod) ({throttled}))"
    pod = "{{namespace}}/{{pod}}"
    return [
        _shown("GPU time by namespace", pods.POD_OCCUPIED, by_namespace, "{{namespace}}"),
        _shown("GPU memory by namespace", clients.CLIENT_ALLOCATED, memory, "{{namespace}}", "bytes"),
        _shown("Pods with the most GPU time", pods.POD_OCCUPIED, most, pod),
        _shown("Pods held back by their quota the most", pods.POD_THROTTLED, held_back, pod, "percentunit"),
    ]


def _fleet_health() -> list[Panel]:
    waiting = f"sum by (instance) ({scheduler.REQUESTING.name} + {scheduler.WAITING.name})"
    power = f"sum by (instance) ({gpus.GPU_POWER.name})"
    xids = f"sum by (instance) ({_rate(gpus.GPU_XIDS)})"
    return [
        _shown("Processes that wait", scheduler.WAITING, waiting, "{{instance}}"),
        _shown("Power", gpus.GPU_POWER, power, "{{instance}}", "watt"),
        _shown("XID errors", gpus.GPU_XIDS, xids, "{{instance}}"),
    ]


def panels() -> dict[str, list[Panel]]:
    """By dashboard."""
    return {"node": _node_panels(), "pod": _pod_panels(), "fleet": _fleet_panels()}


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


_VARIABLES: Final = {
    "node": [_variable("instance", "Node", "label_values(nvshare_build_info, instance)")],
    "pod": [
        _variable("instance", "Node", "label_values(nvshare_build_info, instance)"),
        _variable(
            "namespace", "Namespace", "label_values(nvshare_pod_last_seen_timestamp_seconds, namespace)"
        ),
        _variable(
            "pod",
            "Pod",
            'label_values(nvshare_pod_last_seen_timestamp_seconds{namespace=~"$namespace"}, pod)',
        ),
    ],
    "fleet": [],
}
_TITLES: Final = {"node": "nvshare: node", "pod": "nvshare: pods", "fleet": "nvshare: fleet"}


def _panel_json(number: int, column: int, y: int, panel: Panel) -> dict[str, Any]:
    target = {
        "refId": "A",
        "expr": panel.expr,
        "legendFormat": panel.legend,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        **({"format": "table", "instant": True} if panel.table else {}),
    }
    return {
        "id": number,
        "title": panel.title,
        "description": panel.help,
        "type": "table" if panel.table else "timeseries",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": column * _WIDTH, "y": y, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [target],
    }


def _laid_out(rows: list[Panel]) -> list[dict[str, Any]]:
    """Two beside each other, under a heading for each subject."""
    found: list[dict[str, Any]] = []
    y = 0
    for subject, members in groupby(sorted(rows, key=_place), key=lambda panel: panel.subject):
        if subject:
            place = {"x": 0, "y": y, "w": 2 * _WIDTH, "h": 1}
            heading = {"type": "row", "title": subject, "collapsed": False, "panels": [], "gridPos": place}
            found.append({"id": len(found) + 1, **heading})
            y += 1
        for number, panel in enumerate(members):
            y += _HEIGHT if number and number % 2 == 0 else 0
            found.append(_panel_json(len(found) + 1, number % 2, y, panel))
        y += _HEIGHT
    return found


def _place(panel: Panel) -> int:
    return list(SUBJECTS).index(panel.subject) if panel.subject else 0


def dashboard(name: str) -> str:
    """One dashboard as Grafana imports it."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    content = {
        "uid": f"nvshare-{name}",
        "title": _TITLES[name],
        "tags": ["nvshare", "gpu"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, *_VARIABLES[name]]},
        "panels": _laid_out(panels()[name]),
    }
    return json.dumps(content, indent=1) + "\n"
