"""Alert and recording rules: promtool judges them, and nothing in them is made up."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from nvshare.metrics.catalog import CATALOG
from nvshare.metrics.dashboards import panels

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus"
TESTS = Path(__file__).parent / "alerts.yml"
SUFFIXES = ("", "_bucket", "_sum", "_count")


def rules(file: str) -> list[dict[str, Any]]:
    content = yaml.safe_load((RULES / file).read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def known(name: str) -> bool:
    return any(name.removesuffix(suffix) in CATALOG for suffix in SUFFIXES)


def test_rules_do_what_they_should_and_not_what_they_should_not(tmp_path: Path) -> None:
    for file in (*RULES.glob("*-rules.yml"), TESTS):
        shutil.copy(file, tmp_path)
    done = subprocess.run(
        ["promtool", "test", "rules", TESTS.name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_both_ways() -> None:
    asked: dict[str, set[bool]] = {}
    for group in yaml.safe_load(TESTS.read_text())["tests"]:
        for case in group.get("alert_rule_test", []):
            asked.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    assert asked == {rule["alert"]: {True, False} for rule in rules("alert-rules.yml")}


def test_every_alert_has_a_severity_and_a_runbook() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    headings = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    alerts = rules("alert-rules.yml")
    assert headings == [rule["alert"] for rule in alerts]
    for rule in alerts:
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
        assert rule["annotations"]["summary"]


def test_rules_and_dashboards_ask_for_metrics_that_exist() -> None:
    asked = [rule["expr"] for rule in (*rules("alert-rules.yml"), *rules("recording-rules.yml"))]
    asked += [panel.expr for rows in panels().values() for panel in rows]
    names = {name for expr in asked for name in re.findall(r"\bnvshare_[a-z_0-9]+", expr)}
    assert [name for name in sorted(names) if not known(name)] == []
    page = (ROOT / "docs" / "operations.md").read_text()
    written = set(re.findall(r"\bnvshare_[a-z_0-9]+[a-z0-9]", page))
    assert [name for name in sorted(written) if not known(name)] == []


def test_every_metric_has_its_panel() -> None:
    rows = panels()
    shown = {
        name
        for key in ("node", "pod")
        for panel in rows[key]
        for name in re.findall(r"nvshare_\w+", panel.expr)
    }
    assert {name for name in CATALOG if not any(f"{name}{suffix}" in shown for suffix in SUFFIXES)} == set()
    for panel_list in rows.values():
        titles = [panel.title for panel in panel_list]
        assert len(titles) == len(set(titles))
