"""What is made up in a PromQL expression: metrics, labels or recording rules that do not exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from nvshare.metrics.scheduler import SCHEDULER

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus"
SUFFIXES = ("", "_bucket", "_sum", "_count")
OF_PROMETHEUS = {"instance", "job", "alertname", "alertstate"}

_NAME = re.compile(r"\bnvshare_[a-z_0-9]+")
_RECORDED = re.compile(r"\bnvshare:[a-z_0-9:]+")
_SELECTOR = re.compile(r"\b(nvshare_[a-z_0-9]+)\{([^}]*)\}")
_MATCHED = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right) \(([^)]*)\)")
_IN_LEGEND = re.compile(r"\{\{(\w+)\}\}")


def rules(file: str) -> list[dict[str, Any]]:
    content = yaml.safe_load((RULES / file).read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def _labels_of(name: str) -> set[str]:
    metric = SCHEDULER.metric_of_sample(name)
    assert metric is not None
    return {*metric.labels, *OF_PROMETHEUS, *(("le",) if name.endswith("_bucket") else ())}


def made_up(expr: str, legend: str = "") -> list[str]:
    """Each name in it that nothing stands behind."""
    names = set(_NAME.findall(expr))
    found = sorted(name for name in names if SCHEDULER.metric_of_sample(name) is None)
    recorded = {rule["record"] for rule in rules("recording-rules.yml")}
    found += sorted(set(_RECORDED.findall(expr)) - recorded)
    if found:
        return found
    for name, selector in _SELECTOR.findall(expr):
        found += sorted(set(_MATCHED.findall(selector)) - _labels_of(name))
    known = OF_PROMETHEUS.union(*map(_labels_of, names))
    listed = {label.strip() for labels in _LABELS.findall(expr) for label in labels.split(",")} - {""}
    return found + sorted((listed | set(_IN_LEGEND.findall(legend))) - known)
