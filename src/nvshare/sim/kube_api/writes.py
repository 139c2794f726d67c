"""Requests that change objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import yaml

from nvshare.sim.kube_api import managed_fields
from nvshare.sim.kube_api.answers import Answer, json_answer
from nvshare.sim.kube_api.defaults import check_shape
from nvshare.sim.kube_api.errors import ApiError, Json, bad_request, success
from nvshare.sim.kube_api.objects import Objects, Writer, timestamp
from nvshare.sim.kube_api.patches import json_patch, merge_patch, strategic_merge
from nvshare.sim.kube_api.protobuf import CONTENT_TYPE
from nvshare.sim.kube_api.requests import Request, Target
from nvshare.sim.kube_api.selectors import matcher
from nvshare.sim.kube_api.store import Store, Stored, decode
from nvshare.sim.kube_api.views import object_text

APPLY: Final = "application/apply-patch+yaml"
_PATCHES: Final[dict[str, Callable[[Json, Any], Any]]] = {
    "application/merge-patch+json": merge_patch,
    "application/strategic-merge-patch+json": strategic_merge,
    "application/json-patch+json": json_patch,
}
_BODIES: Final = ("", "application/json", "application/yaml", CONTENT_TYPE)


def writer_of(request: Request, target: Target) -> Writer:
    dry = request.query.get("dryRun", "")
    if dry not in ("", "All"):
        raise bad_request(f'dryRun: Unsupported value: "{dry}": supported values: "All"')
    agent = request.headers.get("user-agent", "unknown").partition("/")[0]
    return Writer(
        manager=request.query.get("fieldManager") or agent,
        dry_run=dry == "All",
        subresource=target.subresource,
    )


def body_of(request: Request) -> Json:
    """An object, as JSON or YAML."""
    if request.content_type not in _BODIES:
        raise ApiError(
            415,
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json, application/yaml",
        )
    return _yaml(request.body) if request.content_type.endswith("yaml") else request.json()


def _yaml(body: bytes) -> Json:
    try:
        found = yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {error}") from None
    if not isinstance(found, dict):
        raise bad_request(f"the body is a {type(found).__name__}; an object is accepted")
    return found


def object_answer(target: Target, stored: Stored, status: int = 200) -> Answer:
    return Answer(status, object_text(target.resource, stored) + b"\n")


class Writes:
    def __init__(self, store: Store, objects: Objects) -> None:
        self._store = store
        self._objects = objects

    def create(self, request: Request, target: Target) -> Answer:
        writer = writer_of(request, target)
        stored = self._objects.create(target.resource, target.namespace, body_of(request), writer)
        return object_answer(target, stored, 201)

    def update(self, request: Request, target: Target) -> Answer:
        writer = writer_of(request, target)
        stored = self._objects.replace(target.resource, target.key, body_of(request), writer)
        return object_answer(target, stored)

    def patch(self, request: Request, target: Target) -> Answer:
        if request.content_type == APPLY:
            return self._apply(request, target)
        change = _PATCHES.get(request.content_type)
        if change is None:
            accepted = ", ".join((*_PATCHES, APPLY))
            raise ApiError(
                415,
                "the body of the request was in an unknown format - "
                f"accepted media types include: {accepted}",
            )
        patch = self._patch_body(request)
        before = self._objects.read(target.resource, target.key)
        patched = change(before.fields, patch)
        if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
            raise bad_request("the patch leaves no object")
        stored = self._objects.replace(target.resource, target.key, patched, writer_of(request, target))
        return object_answer(target, stored)

    @staticmethod
    def _patch_body(request: Request) -> Any:
        try:
            return decode(request.body)
        except ValueError as error:
            raise bad_request(f"error decoding patch: {error}") from None

    def _apply(self, request: Request, target: Target) -> Answer:
        """Server-side: what this manager no longer applies goes, unless others have set it too."""
        writer, resource = writer_of(request, target), target.resource
        if not request.query.get("fieldManager"):
            raise bad_request(
                "PatchOptions.meta.k8s.io: fieldManager: Required value: is required for apply patch"
            )
        given = _yaml(request.body)
        check_shape(given)
        metadata = dict(given.get("metadata") or {})
        if metadata.get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        wanted = {"metadata": metadata} | {
            name: value for name, value in given.items() if name not in ("kind", "apiVersion", "metadata")
        }
        applied = managed_fields.own_fields(wanted)
        if self._store.get(resource, target.key) is None:
            return self._apply_new(target, wanted, applied, writer)
        before = self._objects.read(resource, target.key).fields
        merged = strategic_merge(before, wanted)
        changed = managed_fields.changed_fields(before, merged) or {}
        force = request.flag("force")
        if not force:
            managed_fields.check_conflicts(before["metadata"], writer.manager, changed)
        former = managed_fields.formerly_applied(before["metadata"], writer.manager)
        others = managed_fields.others_fields(before["metadata"], writer.manager)
        dropped = managed_fields.without(managed_fields.without(former, applied), others)
        merged = managed_fields.remove_fields(merged, dropped) if dropped else merged
        merged["metadata"] = dict(merged["metadata"])
        if merged != before or former != applied:
            managed_fields.record_apply(
                merged["metadata"], writer.manager, resource.api_version, applied, timestamp(), force=force
            )
        return object_answer(target, self._objects.put_applied(resource, target.key, merged, writer))

    def _apply_new(
        self, target: Target, wanted: Json, applied: managed_fields.Fields, writer: Writer
    ) -> Answer:
        named = {**wanted, "metadata": {**wanted["metadata"], "name": target.name}}
        stored = self._objects.create(target.resource, target.namespace, named, writer)
        if not writer.dry_run:
            fields = {**stored.fields, "metadata": {**stored.fields["metadata"]}}
            fields["metadata"].pop("managedFields", None)
            managed_fields.record_apply(
                fields["metadata"],
                writer.manager,
                target.resource.api_version,
                applied,
                timestamp(),
                force=True,
            )
            stored = self._objects.put_applied(target.resource, target.key, fields, writer)
        return object_answer(target, stored, 201)

    def delete(self, request: Request, target: Target) -> Answer:
        options = request.json() if request.body else {}
        grace = options.get("gracePeriodSeconds", request.query.get("gracePeriodSeconds"))
        policy = options.get("propagationPolicy", request.query.get("propagationPolicy", ""))
        writer = writer_of(request, target)
        if options.get("dryRun"):
            writer = Writer(manager=writer.manager, dry_run=True)
        stored, gone = self._objects.delete(
            target.resource,
            target.key,
            writer,
            grace_sec=_number(grace),
            orphan=policy == "Orphan",
            preconditions=options.get("preconditions"),
        )
        if not gone or target.resource.plural in ("pods", "namespaces"):
            return object_answer(target, stored)
        details = {
            "name": target.name,
            "kind": target.resource.plural,
            "uid": stored.fields["metadata"]["uid"],
        }
        if target.resource.group:
            details["group"] = target.resource.group
        return json_answer(success(details=details))

    def delete_collection(self, request: Request, target: Target) -> Answer:
        query = request.query
        matches = matcher(
            target.resource, query.get("fieldSelector", ""), query.get("labelSelector", ""), target.namespace
        )
        options = request.json() if request.body else {}
        grace = _number(options.get("gracePeriodSeconds", query.get("gracePeriodSeconds")))
        for key, stored in self._store.all(target.resource):
            if matches(stored.fields) and self._store.get(target.resource, key) is not None:
                self._objects.delete(target.resource, key, writer_of(request, target), grace_sec=grace)
        return json_answer(success())


def _number(given: Any) -> int | None:
    try:
        return None if given is None else int(given)
    except (TypeError, ValueError):
        raise bad_request(f"gracePeriodSeconds is {given!r}; a whole number is accepted") from None
