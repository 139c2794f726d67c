"""Alert and recording rules: promtool judges them, and nothing in them is made up."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import yaml

from nvshare.metrics.scheduler import SCHEDULER
from tests.deploy.expressions import ROOT, RULES, made_up, rules

TESTS = Path(__file__).parent / "alerts.yml"
BASE = "https://nvshare.example/docs"


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
        assert rule["annotations"]["runbook_url"] == f"{BASE}/operations.md#{rule['alert'].lower()}"
        assert rule["annotations"]["summary"]


def test_the_page_says_how_to_set_the_base_of_runbooks() -> None:
    """Its command leaves no placeholder."""
    page = (ROOT / "docs" / "operations.md").read_text()
    command = re.compile(r"^sed -i '(s,([^,]+),([^,]+),)' my-alert-rules.yml$", re.MULTILINE)
    [(expression, before, after)] = command.findall(page)
    assert before == BASE
    file = str(RULES / "alert-rules.yml")
    changed = subprocess.run(["sed", expression, file], capture_output=True, text=True, check=True).stdout
    left = [line for line in changed.splitlines() if BASE in line and not line.startswith("#")]
    assert left == []
    assert changed.count(f"{after}/operations.md#") == len(rules("alert-rules.yml"))


def test_rules_ask_for_what_exists() -> None:
    asked = [rule["expr"] for rule in (*rules("alert-rules.yml"), *rules("recording-rules.yml"))]
    assert [fault for expr in asked for fault in made_up(expr)] == []
    page = (ROOT / "docs" / "operations.md").read_text()
    written = set(re.findall(r"\bnvshare_[a-z_0-9]+[a-z0-9]", page))
    known = SCHEDULER.names()
    unknown = [n for n in sorted(written) if n not in known and SCHEDULER.metric_of_sample(n) is None]
    assert unknown == []
