"""The component monitoring of deploy/kustomize, as far as it is made from other files of deploy."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from nvshare.metrics.dashboards import DASHBOARDS, dashboard_json

ROOT: Final = Path(__file__).resolve().parent.parent
COMPONENT: Final = "deploy/kustomize/components/monitoring"
NAMESPACE: Final = "nvshare-system"
RULES: Final = ("recording-rules", "alert-rules")
_HEAD: Final = "# Made from {} by `make docs`. Do not edit.\n"


class _Dumper(yaml.SafeDumper):
    """Text of several lines stays readable."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _dump(documents: list[dict[str, Any]]) -> str:
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=1_000_000, allow_unicode=True)


def _metadata(name: str, **labels: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": NAMESPACE,
        "labels": {"app.kubernetes.io/part-of": "nvshare", **labels},
    }


def prometheus_rule() -> str:
    groups = []
    for name in RULES:
        groups += yaml.safe_load((ROOT / f"deploy/prometheus/{name}.yml").read_text())["groups"]
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": _metadata("nvshare"),
        "spec": {"groups": groups},
    }
    return _HEAD.format("deploy/prometheus") + _dump([rule])


def grafana_dashboards() -> str:
    maps = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _metadata(f"nvshare-dashboard-{name}", grafana_dashboard="1"),
            "data": {f"nvshare-{name}.json": dashboard_json(dashboard)},
        }
        for name, dashboard in sorted(DASHBOARDS.items())
    ]
    return _HEAD.format("src/nvshare/metrics/dashboards") + _dump(maps)
