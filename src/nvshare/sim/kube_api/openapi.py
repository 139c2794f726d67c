"""OpenAPI as far as kubectl asks for it: that a kind exists, and that fields are validated by the server.

No schema says which fields a kind has; kubectl then merges by the types it was built with.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Final

from nvshare.sim.kube_api.answers import Answer
from nvshare.sim.kube_api.errors import Json
from nvshare.sim.kube_api.resources import RESOURCES, Resource
from nvshare.sim.kube_api.store import encode

_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_QUERY: Final = ("dryRun", "fieldManager", "fieldValidation", "force")
_METHODS: Final = {"create": "post", "delete": "delete", "get": "get", "patch": "patch", "update": "put"}
_INFO: Final = {"title": "Kubernetes", "version": "simulated"}


def openapi_page(path: str, accept: str) -> Answer | None:
    if path == "/openapi/v2":
        if "protobuf" in accept:
            return Answer(200, _document_v2(), _PROTOBUF)
        return Answer(200, encode({"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}))
    if path == "/openapi/v3":
        paths = {
            name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={_hash(text)}"}
            for name, text in _documents_v3().items()
        }
        return Answer(200, encode({"paths": paths}))
    text = _documents_v3().get(path.removeprefix("/openapi/v3/"))
    return None if text is None else Answer(200, text)


def _hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32].upper()


def _text_field(number: int, text: bytes) -> bytes:
    """One field of a protobuf message; shorter than 128 bytes."""
    return bytes((number << 3 | 2, len(text))) + text


def _document_v2() -> bytes:
    """Without definitions: clients that still validate against these skip kinds they do not find."""
    info = _text_field(1, _INFO["title"].encode()) + _text_field(2, _INFO["version"].encode())
    return _text_field(1, b"2.0") + _text_field(2, info)


@cache
def _documents_v3() -> dict[str, bytes]:
    groups = sorted({(row.group, row.version) for row in RESOURCES})
    return {
        f"apis/{group}/{version}" if group else f"api/{version}": encode(_document_v3(group, version))
        for group, version in groups
    }


def _document_v3(group: str, version: str) -> Json:
    rows = [row for row in RESOURCES if (row.group, row.version) == (group, version)]
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    paths: Json = {}
    for row in rows:
        collection = (
            f"{base}/namespaces/{{namespace}}/{row.plural}" if row.namespaced else f"{base}/{row.plural}"
        )
        paths[collection] = {"post": _operation(row, "create")}
        single = {
            _METHODS[verb]: _operation(row, verb)
            for verb in row.verbs
            if verb in _METHODS and verb != "create"
        }
        if single:
            paths[f"{collection}/{{name}}"] = single
    schemas = {
        f"{row.api_version.replace('/', '.')}.{row.kind}": {
            "type": "object",
            "x-kubernetes-group-version-kind": [_kind_of(row)],
        }
        for row in rows
    }
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


def _kind_of(row: Resource) -> Json:
    return {"group": row.group, "version": row.version, "kind": row.kind}


def _operation(row: Resource, verb: str) -> Json:
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _QUERY]
    return {
        "operationId": f"{verb}{row.kind}",
        "parameters": parameters if verb in ("create", "patch", "update") else [],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": _kind_of(row),
    }
