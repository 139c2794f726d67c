"""A dashboard as Grafana imports it. Tests read the result back with Grafana's own types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from nvshare.metrics.dashboards.model import Dashboard, Mapped, Panel, Query, Section, Variable

Json = dict[str, Any]

_COLUMNS: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_ON_TIME_RANGE: Final = 2  # when a variable is asked for again
_BY_NAME: Final = 1  # how its values are sorted
_LABEL_VALUES, _QUERY_RESULT = 1, 3  # Grafana's numbers for kinds of queries of a variable
_TAG: Final = "nvshare"


def dashboard_json(dashboard: Dashboard) -> str:
    content = {
        "uid": f"nvshare-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.question,
        "tags": [_TAG, "gpu"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [_link_to_the_others()],
        "templating": {"list": [_data_source(), *map(_variable, dashboard.variables)]},
        "panels": list(_laid_out(dashboard.sections)),
    }
    return json.dumps(content, indent=1) + "\n"


def _link_to_the_others() -> Json:
    return {
        "type": "dashboards",
        "title": "nvshare",
        "icon": "external link",
        "tooltip": "",
        "tags": [_TAG],
        "asDropdown": False,
        "targetBlank": False,
        "includeVars": True,
        "keepTime": True,
    }


def _data_source() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(variable: Variable) -> Json:
    kind = _QUERY_RESULT if variable.query.startswith("query_result(") else _LABEL_VALUES
    found: Json = {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": variable.query, "refId": variable.name, "qryType": kind},
        "refresh": _ON_TIME_RANGE,
        "sort": _BY_NAME,
        "multi": variable.several,
        "includeAll": variable.several,
    }
    if variable.several:
        found |= {"allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    if variable.regex:
        found["regex"] = variable.regex
    return found


def _laid_out(sections: tuple[Section, ...]) -> Iterator[Json]:
    """Beside each other as long as there is room, under the heading of their section."""
    number, y = 1, 0
    for section in sections:
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        heading = {"type": "row", "title": section.title, "collapsed": False, "panels": [], "gridPos": place}
        yield {"id": number, **heading}
        number, y, x, height = number + 1, y + 1, 0, 0
        for panel in section.panels:
            if x + panel.width > _COLUMNS:
                x, y, height = 0, y + height, 0
            yield _panel(number, panel, {"x": x, "y": y, "w": panel.width, "h": panel.height})
            number, x, height = number + 1, x + panel.width, max(height, panel.height)
        y += height


def _panel(number: int, panel: Panel, place: dict[str, int]) -> Json:
    found: Json = {
        "id": number,
        "title": panel.title,
        "description": panel.help,
        "type": panel.kind,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": list(_overrides(panel))},
        "options": _OPTIONS[panel.kind] | ({"textMode": "name"} if panel.names_only else {}),
        "targets": [_target(panel, i, query) for i, query in enumerate(panel.asked())],
    }
    if panel.kind == "table":
        found["transformations"] = _joined(panel)
    return found


def _ref(number: int) -> str:
    return chr(ord("A") + number)


def _target(panel: Panel, number: int, query: Query) -> Json:
    found: Json = {"refId": _ref(number), "datasource": _SOURCE, "expr": query.expr}
    if panel.kind == "table":
        return found | {"format": "table", "instant": True, "range": False}
    found["legendFormat"] = query.legend
    return found | ({"instant": True, "range": False} if panel.kind == "stat" else {})


_LEGEND: Final = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
_OPTIONS: Final[dict[str, Json]] = {
    "timeseries": {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
    "state-timeline": {
        "legend": {**_LEGEND, "showLegend": False},
        "tooltip": {"mode": "multi", "sort": "none"},
        "showValue": "never",
        "mergeValues": True,
        "rowHeight": 0.8,
    },
    "stat": {
        "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
        "textMode": "auto",
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
}


def _defaults(panel: Panel) -> Json:
    found: Json = {"unit": panel.unit}
    if panel.kind == "timeseries":
        found |= {"min": 0, "color": {"mode": "palette-classic-by-name"}, "custom": _drawn(panel)}
    elif panel.kind == "stat" and not panel.steps and not panel.mapped:
        found["color"] = {"mode": "fixed", "fixedColor": "text"}
    if panel.decimals is not None:
        found["decimals"] = panel.decimals
    if panel.empty:
        found["noValue"] = panel.empty
    if panel.mapped:
        found["mappings"] = _mappings(panel.mapped)
    if panel.steps:
        steps = [{"value": None if i == 0 else value, "color": c} for i, (value, c) in enumerate(panel.steps)]
        found |= {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}
    return found


def _mappings(mapped: tuple[Mapped, ...]) -> list[Json]:
    options = {
        str(value): {"text": text, "color": colour, "index": index}
        for index, (value, text, colour) in enumerate(mapped)
    }
    return [{"type": "value", "options": options}]


def _drawn(panel: Panel) -> Json:
    found: Json = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never"}
    if panel.axis_to is not None:
        found["axisSoftMax"] = panel.axis_to
    if panel.stacked:
        found |= {"fillOpacity": 40, "stacking": {"mode": "normal", "group": "A"}}
    return found


def _override(matcher: str, value: str, **properties: object) -> Json:
    found = [{"id": name.replace("__", "."), "value": given} for name, given in properties.items()]
    return {"matcher": {"id": matcher, "options": value}, "properties": found}


def _overrides(panel: Panel) -> Iterator[Json]:
    if panel.dashed:
        style = {"fill": "dash", "dash": [8, 6]}
        alone = {"mode": "none", "group": "A"}
        yield _override(
            "byRegexp",
            f"/{panel.dashed}/",
            custom__lineStyle=style,
            custom__lineWidth=2,
            custom__fillOpacity=0,
            custom__stacking=alone,
        )
    if panel.right:
        yield _override(
            "byRegexp", f"/{panel.right.series}/", unit=panel.right.unit, custom__axisPlacement="right"
        )
    for column in panel.columns:
        properties: Json = {"unit": column.unit}
        if column.gauge:
            cell = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
            properties |= {"min": 0, "max": 1, "custom.cellOptions": cell}
        if column.mapped:
            properties["mappings"] = _mappings(column.mapped)
        yield _override("byName", column.title, **properties)
    for label in panel.labels:
        if label.link:
            yield _override("byName", label.title, links=[{"title": "Open its dashboard", "url": label.link}])


def _joined(panel: Panel) -> list[Json]:
    """The answers side by side, a row for each combination of labels, and only what has a title."""
    titles = {label.name: label.title for label in panel.labels}
    titles |= {f"Value #{_ref(i)}": column.title for i, column in enumerate(panel.columns)}
    order = {name: index for index, name in enumerate(titles)}
    organized = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": titles}
    return [{"id": "merge", "options": {}}, {"id": "organize", "options": organized}]
