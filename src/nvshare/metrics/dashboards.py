"""Grafana dashboards, made from the catalog: a panel a metric, so none is forgotten or asks for what is not.

A gauge is shown as it is, a counter as its rate, a histogram as its 99th percentile, an info as a table. The
fleet's panels are sums over nodes.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any, Final, NamedTuple

from nvshare.metrics import catalog as c
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
    table, subject = name.endswith("_info"), c.subject_of(metric)
    return Panel(_title(metric), expr, legend or "{{instance}}", shown, metric.help, table, subject)


def _of_pods(metric: Metric) -> bool:
    return "pod" in metric.labels


def _node_panels() -> list[Panel]:
    return [_panel(metric, _INSTANCE) for metric in c.CATALOG.values() if not _of_pods(metric)]


def _pod_panels() -> list[Panel]:
    return [_panel(metric, f"{_INSTANCE},{_POD}") for metric in c.CATALOG.values() if _of_pods(metric)]


def _fleet_panels() -> list[Panel]:
    """Few enough to see at a glance."""

    def rate(metric: Metric) -> str:
        return f"rate({metric.name}[$__rate_interval])"

    occupied, allocated = rate(c.POD_OCCUPIED), c.CLIENT_ALLOCATED.name
    return [
        Panel("Nodes", f"count({c.BUILD_INFO.name})", "nodes", "short", c.BUILD_INFO.help),
        Panel("GPUs", f"count({c.GPU_INFO.name})", "GPUs", "short", c.GPU_INFO.help),
        Panel("Processes that share", f"sum({c.CLIENTS.name})", "processes", "short", c.CLIENTS.help),
        Panel(
            "Sources down", f"count({c.SOURCE_UP.name} == 0) or vector(0)", "down", "short", c.SOURCE_UP.help
        ),
        Panel(
            "GPU memory used",
            f"sum by (instance) ({c.GPU_MEMORY_USED.name}) / sum by (instance) ({c.GPU_MEMORY_TOTAL.name})",
            "{{instance}}",
            "percentunit",
            c.GPU_MEMORY_USED.help,
        ),
        Panel(
            "GPU utilization",
            f"avg by (instance) ({c.GPU_UTILIZATION.name})",
            "{{instance}}",
            "percentunit",
            c.GPU_UTILIZATION.help,
        ),
        Panel(
            "GPU time by namespace",
            f"sum by (namespace) ({occupied})",
            "{{namespace}}",
            "short",
            c.POD_OCCUPIED.help,
        ),
        Panel(
            "GPU memory by namespace",
            f"sum by (namespace) ({allocated})",
            "{{namespace}}",
            "bytes",
            c.CLIENT_ALLOCATED.help,
        ),
        Panel(
            "Pods with the most GPU time",
            f"topk(10, sum by (namespace, pod) ({occupied}))",
            "{{namespace}}/{{pod}}",
            "short",
            c.POD_OCCUPIED.help,
        ),
        Panel(
            "Pods held back by their quota the most",
            f"topk(10, sum by (namespace, pod) ({rate(c.POD_THROTTLED)}))",
            "{{namespace}}/{{pod}}",
            "percentunit",
            c.POD_THROTTLED.help,
        ),
        Panel(
            "Processes that wait",
            f"sum by (instance) ({c.REQUESTING.name} + {c.WAITING.name})",
            "{{instance}}",
            "short",
            c.WAITING.help,
        ),
        Panel("Power", f"sum by (instance) ({c.GPU_POWER.name})", "{{instance}}", "watt", c.GPU_POWER.help),
        Panel(
            "XID errors", f"sum by (instance) ({rate(c.GPU_XIDS)})", "{{instance}}", "short", c.GPU_XIDS.help
        ),
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
    return list(c.SUBJECTS).index(panel.subject) if panel.subject else 0


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
