"""Objects as the tables that kubectl shows."""

from __future__ import annotations

import calendar
import time
from typing import Any, Final

from nvshare.sim.kube_api.errors import Json
from nvshare.sim.kube_api.resources import Resource
from nvshare.sim.kube_api.selectors import value_at
from nvshare.sim.kube_api.store import Stored

AGES: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def table_of(resource: Resource, items: list[Stored], metadata: Json) -> Json:
    headings = ["Name", *(heading for heading, _ in resource.columns), "Age"]
    columns = [
        {
            "name": heading,
            "type": "string",
            "format": "name" if heading == "Name" else "",
            "description": "",
            "priority": 0,
        }
        for heading in headings
    ]
    rows = [
        {
            "cells": [
                stored.fields["metadata"]["name"],
                *(_cell(stored.fields, what) for _, what in resource.columns),
                _age(stored.fields["metadata"]["creationTimestamp"]),
            ],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": stored.fields["metadata"],
            },
        }
        for stored in items
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    }


def _cell(found: Json, what: str) -> Any:
    words = {"ready": _ready, "pod-status": _pod_status, "restarts": _restarts, "node-status": _node_status}
    if what == "involved":
        involved = found.get("involvedObject") or {}
        return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"
    if what in words:
        return words[what](found)
    value = value_at(found, what)
    return "<none>" if value is None else str(value)


def _containers(found: Json) -> list[Json]:
    return list((found.get("status") or {}).get("containerStatuses") or [])


def _ready(found: Json) -> str:
    ready = sum(bool(container.get("ready")) for container in _containers(found))
    return f"{ready}/{len(found['spec']['containers'])}"


def _restarts(found: Json) -> str:
    return str(sum(int(container.get("restartCount", 0)) for container in _containers(found)))


def _pod_status(found: Json) -> str:
    if found["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = found.get("status") or {}
    return str(status.get("reason") or status.get("phase") or "Unknown")


def _node_status(found: Json) -> str:
    conditions = (found.get("status") or {}).get("conditions") or []
    ready = next((item.get("status") for item in conditions if item.get("type") == "Ready"), None)
    word = {"True": "Ready", "False": "NotReady"}.get(str(ready), "Unknown")
    return f"{word},SchedulingDisabled" if found.get("spec", {}).get("unschedulable") else word


def _age(created: str) -> str:
    seconds = max(0, int(time.time()) - calendar.timegm(time.strptime(created, "%Y-%m-%dT%H:%M:%SZ")))
    for length, unit in AGES:
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return "0s"
