"""What there is to ask for, made from the table of resources: groups, versions, kinds."""

from __future__ import annotations

from typing import Final

from nvshare.sim.kube_api.errors import Json
from nvshare.sim.kube_api.resources import RESOURCES, Resource

SERVER_VERSION: Final = ("1", "32")
_SUBRESOURCE_KINDS: Final = {"eviction": ("policy", "v1", "Eviction"), "binding": ("", "v1", "Binding")}
_SUBRESOURCE_VERBS: Final = {"log": ("get",), "eviction": ("create",), "binding": ("create",)}


def version_page() -> Json:
    major, minor = SERVER_VERSION
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{major}.{minor}.0-nvshare.sim",
        "gitCommit": "0" * 40,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "linux/amd64",
    }


def _group(name: str) -> Json:
    versions = sorted({row.version for row in RESOURCES if row.group == name})
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _entries(row: Resource) -> list[Json]:
    main: Json = {
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        main["shortNames"] = list(row.short_names)
    entries = [main]
    for name in row.subresources:
        group, version, kind = _SUBRESOURCE_KINDS.get(name, ("", "", row.kind))
        entry: Json = {"name": f"{row.plural}/{name}", "singularName": "", "namespaced": row.namespaced}
        if version:
            entry |= {"group": group, "version": version}
        entries.append(
            {**entry, "kind": kind, "verbs": list(_SUBRESOURCE_VERBS.get(name, ("get", "patch", "update")))}
        )
    return entries


def _resource_list(group: str, version: str) -> Json | None:
    rows = [row for row in RESOURCES if (row.group, row.version) == (group, version)]
    if not rows:
        return None
    listed = [entry for row in rows for entry in _entries(row)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": rows[0].api_version,
        "resources": sorted(listed, key=lambda entry: str(entry["name"])),
    }


def discovery_page(path: str) -> Json | None:
    """None if the path is none of discovery."""
    parts = path.split("/")[1:]
    groups = sorted({row.group for row in RESOURCES if row.group})
    if parts == ["version"]:
        return version_page()
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if parts == ["apis"]:
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in groups]}
    if parts[0] == "api" and len(parts) == 2:
        return _resource_list("", parts[1])
    if parts[0] == "apis" and len(parts) == 2 and parts[1] in groups:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1])}
    if parts[0] == "apis" and len(parts) == 3:
        return _resource_list(parts[1], parts[2])
    return None
