"""Dashboards: Grafana understands them, they ask for nothing made up, and a person can read them."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest

from nvshare.metrics.dashboards import DASHBOARDS, dashboard_json
from nvshare.metrics.dashboards.model import Dashboard
from tests.deploy.expressions import made_up
from tests.deploy.grafana_types import faults

MOST_PANELS = 16
OF_GRAFANA = {"__rate_interval", "__range", "__url_time_range", "__data", "datasource"}

every_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=lambda one: one.name)


def content_of(dashboard: Dashboard) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(dashboard_json(dashboard))
    return content


def a_panel(content: dict[str, Any], title: str) -> dict[str, Any]:
    [panel] = [panel for panel in content["panels"] if panel["title"] == title]
    assert isinstance(panel, dict)
    return panel


@every_dashboard
def test_grafana_understands_all_of_it(dashboard: Dashboard) -> None:
    assert faults(content_of(dashboard)) == []


def test_what_grafana_would_not_understand_is_found() -> None:
    def after(title: str, *path: str | int, value: object) -> list[str]:
        content = content_of(DASHBOARDS["node"])
        place: Any = a_panel(content, title)
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        return faults(content)

    line, table = "Quota against got", "Pods on this GPU"
    override = ("fieldConfig", "overrides", 0, "properties", 0)
    assert after(line, "fieldConfig", "defaults", "unti", value="s")
    assert after(line, "fieldConfig", "defaults", "unit", value="seconds")
    assert after(line, "fieldConfig", "defaults", "custom", "drawStyle", value="lines")
    assert after(line, *override, value={"id": "custom.lineStile", "value": {"fill": "dash"}})
    assert after(line, *override, value={"id": "custom.lineStyle", "value": {"fill": "dashes"}})
    assert after(line, "gridPos", "x", value="12")
    assert after(line, "targets", 0, "legend", value="pod")
    assert after(line, "options", "legend", "displayMode", value="row")
    assert after(table, "transformations", 0, "option", value={})


@every_dashboard
def test_nothing_asked_for_is_made_up(dashboard: Dashboard) -> None:
    asked = [query for panel in dashboard.panels() for query in panel.asked()]
    rows = {label.name for panel in dashboard.panels() for label in panel.labels}
    assert [fault for query in asked for fault in made_up(query.expr, query.legend)] == []
    assert [fault for one in dashboard.variables for fault in made_up(one.query)] == []
    assert made_up("nvshare_client_info", "".join(f"{{{{{name}}}}}" for name in rows)) == []


@pytest.mark.parametrize(
    ("expr", "legend", "fault"),
    [
        ("nvshare_gpu_power_wats", "", "nvshare_gpu_power_wats"),
        ("nvshare_gpu_power_watts_sum", "", "nvshare_gpu_power_watts_sum"),
        ("nvshare_scheduler_handover_seconds", "", "nvshare_scheduler_handover_seconds"),
        ("nvshare:gpu_time:ratio", "", "nvshare:gpu_time:ratio"),
        ('nvshare_gpu_power_watts{pod="a"}', "", "pod"),
        ("sum by (node) (nvshare_gpu_power_watts)", "", "node"),
        ("nvshare_gpu_power_watts", "{{gpu}}", "gpu"),
        ("nvshare_gpu_power_watts * on (uuid) group_left (gpu_name) nvshare_gpu_info", "", "uuid"),
    ],
)
def test_what_is_made_up_is_found(expr: str, legend: str, fault: str) -> None:
    assert made_up(expr, legend) == [fault]


@every_dashboard
def test_every_variable_that_is_used_can_be_picked_before(dashboard: Dashboard) -> None:
    known = set(OF_GRAFANA)
    for variable in dashboard.variables:
        assert set(re.findall(r"\$(\w+)", variable.query)) <= known
        known.add(variable.name)
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(content_of(dashboard)["panels"])))
    assert used <= known
    assert {variable.name for variable in dashboard.variables} <= used
    assert "instance" in used


@every_dashboard
def test_a_person_can_read_it(dashboard: Dashboard) -> None:
    assert dashboard.question.endswith("?")
    assert content_of(dashboard)["description"] == dashboard.question
    panels = dashboard.panels()
    assert len(panels) <= MOST_PANELS
    titles = [panel.title for panel in panels]
    assert len(titles) == len(set(titles))
    for panel in panels:
        assert re.fullmatch(r"[A-Z][\w ,'%-]{2,40}", panel.title)
        assert panel.help.endswith(".")
        assert all(query.legend for query in panel.queries) or len(panel.queries) == 1
    legends = [query.legend for panel in panels for query in panel.queries]
    if dashboard.name != "daemon":  # which calls sources by the names they have
        assert not [legend for legend in legends if "uuid" in legend]


@every_dashboard
def test_panels_lie_beside_and_below_each_other(dashboard: Dashboard) -> None:
    places = [panel["gridPos"] for panel in content_of(dashboard)["panels"]]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y


def test_dashboards_that_are_linked_exist() -> None:
    files = {f"nvshare-{name}" for name in DASHBOARDS}
    for dashboard in DASHBOARDS.values():
        content = content_of(dashboard)
        assert content["uid"] in files
        for uid, parameters in re.findall(r'"/d/([\w-]+)\?([^"]*)"', json.dumps(content)):
            [target] = [one for one in DASHBOARDS.values() if f"nvshare-{one.name}" == uid]
            given = set(re.findall(r"var-(\w+)=", parameters))
            assert given <= {variable.name for variable in target.variables}


def test_simulated_gpus_are_called_so() -> None:
    for name in ("node", "pod", "fleet"):
        assert "nvshare_gpu_simulated" in dashboard_json(DASHBOARDS[name])
        assert "imulated" in dashboard_json(DASHBOARDS[name])
