"""What becomes of an object that is written: names, times, owners of fields, deletion."""

from __future__ import annotations

import secrets
import string
import time
import uuid
from dataclasses import dataclass
from typing import Final

from nvshare.sim.kube_api import managed_fields
from nvshare.sim.kube_api.defaults import check, check_update, fill_in
from nvshare.sim.kube_api.errors import (
    ApiError,
    Json,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
)
from nvshare.sim.kube_api.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS, Resource
from nvshare.sim.kube_api.store import Key, Store, Stored, encode

_SUFFIX: Final = string.ascii_lowercase + string.digits
_SERVERS_OWN: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_DROPPED_WHEN_EMPTY: Final = ("annotations", "labels", "finalizers", "ownerReferences", "managedFields")
DEFAULT_GRACE_SEC: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """On whose behalf, and how. ``trusted`` is the double's own user, who may set what the server sets."""

    manager: str = "nvshare-sim"
    trusted: bool = False
    dry_run: bool = False
    subresource: str = ""


TRUSTED: Final = Writer(trusted=True)


def timestamp(later_sec: float = 0) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + later_sec))


class Objects:
    """Every write goes through here, whoever it comes from."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, resource: Resource, key: Key) -> Stored:
        found = self._store.get(resource, key)
        if found is None:
            raise not_found(resource.plural, key[1], resource.group)
        return found

    def create(self, resource: Resource, namespace: str, given: Json, writer: Writer) -> Stored:
        fields = _checked(resource, given)
        metadata = fields["metadata"]
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and isinstance(metadata.get("generateName"), str):
            metadata["name"] = metadata["generateName"] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
        if resource.namespaced:
            metadata["namespace"] = _agreed(metadata.get("namespace"), namespace)
        check(resource, fields)
        key = (metadata.get("namespace", ""), metadata["name"])
        if resource.namespaced:
            self._check_namespace(resource, key)
        if self._store.get(resource, key) is not None:
            raise already_exists(resource.plural, key[1], resource.group)
        uid = metadata.get("uid") if writer.trusted else None
        for name in (*_SERVERS_OWN, "managedFields"):
            metadata.pop(name, None)
        metadata |= {"uid": uid or str(uuid.uuid4()), "creationTimestamp": timestamp()}
        if not writer.trusted:
            self._record(resource, metadata, managed_fields.own_fields(fields), writer)
        filled = fill_in(resource, fields)
        if writer.trusted and "status" in fields:
            filled["status"] = {**filled["status"], **fields["status"]}
        stored = self._put(resource, key, filled, writer)
        if resource is NAMESPACES and not writer.dry_run:  # as a controller does, which pods wait for
            self.create(SERVICE_ACCOUNTS, key[1], {"metadata": {"name": "default"}}, TRUSTED)
        return stored

    def replace(self, resource: Resource, key: Key, given: Json, writer: Writer) -> Stored:
        """A whole new state. The version in it, if any, must be the present one."""
        before = self.read(resource, key)
        fields = self._of_old(resource, before, _checked(resource, given), key)
        if not writer.trusted:
            fields = _within(resource, before.fields, fields, writer.subresource)
            check(resource, fields)
            check_update(resource, before.fields, fields)
        if fields == before.fields:
            return before  # a write that changes nothing makes no event
        if not writer.trusted:
            changed = managed_fields.changed_fields(_own(before.fields), _own(fields))
            managed_fields.forget_removed(fields["metadata"], managed_fields.own_fields(fields))
            self._record(resource, fields["metadata"], changed, writer)
        if fields.get("spec") != before.fields.get("spec") and "generation" in fields["metadata"]:
            fields["metadata"]["generation"] += 1
        return self._put(resource, key, fields, writer)

    @staticmethod
    def _of_old(resource: Resource, before: Stored, fields: Json, key: Key) -> Json:
        """Checked against the present object, of which some things stay."""
        metadata, old = fields["metadata"], before.fields["metadata"]
        if metadata.get("name", key[1]) != key[1] or metadata.get("namespace", key[0]) != key[0]:
            raise bad_request(
                f"the name of the object ({metadata.get('name')}) does not match that of the URL ({key[1]})"
            )
        for name in ("resourceVersion", "uid"):
            if metadata.get(name) and metadata[name] != old[name]:
                raise conflict(resource.plural, key[1], resource.group)
        for name in _DROPPED_WHEN_EMPTY:
            if name in metadata and not metadata[name]:
                del metadata[name]
        for name in ("name", "namespace", "generation", "resourceVersion", *_SERVERS_OWN):
            if name in old:
                metadata[name] = old[name]
        return fields

    def put_applied(self, resource: Resource, key: Key, fields: Json, writer: Writer) -> Stored:
        """The result of a server-side apply, whose owners of fields are recorded already."""
        before = self.read(resource, key)
        check(resource, fields)
        check_update(resource, before.fields, fields)
        return before if fields == before.fields else self._put(resource, key, fields, writer)

    def _put(self, resource: Resource, key: Key, fields: Json, writer: Writer) -> Stored:
        if writer.dry_run:
            fields["metadata"].setdefault("resourceVersion", "")
            return Stored(fields, encode(fields))
        if resource.kept_max and self._store.get(resource, key) is None:
            while (oldest := self._store.oldest(resource, resource.kept_max)) is not None:
                self._store.remove(resource, oldest)
        return self._store.put(resource, key, fields)

    def _record(
        self, resource: Resource, metadata: Json, changed: managed_fields.Fields | None, writer: Writer
    ) -> None:
        managed_fields.record_update(
            metadata, writer.manager, resource.api_version, changed, timestamp(), writer.subresource
        )

    # Deleting

    def delete(
        self,
        resource: Resource,
        key: Key,
        writer: Writer,
        *,
        grace_sec: int | None = None,
        orphan: bool = False,
        preconditions: Json | None = None,
    ) -> tuple[Stored, bool]:
        """The object, and whether it is gone: a pod on a node ends when its kubelet says so."""
        before = self.read(resource, key)
        metadata = before.fields["metadata"]
        for name, wanted in (preconditions or {}).items():
            if wanted is not None and metadata.get(name) != wanted:
                raise conflict(resource.plural, key[1], resource.group)
        if writer.dry_run:
            return before, True
        grace = _grace(resource, before, grace_sec)
        if not grace and not metadata.get("finalizers"):
            return self._end(resource, key, before, orphan), True
        if metadata.get("deletionGracePeriodSeconds", grace + 1) <= grace:
            return before, False
        return self._mark(resource, key, before, grace), False

    def _end(self, resource: Resource, key: Key, before: Stored, orphan: bool) -> Stored:
        if resource is NAMESPACES:
            terminating = {**before.fields, "status": {"phase": "Terminating"}}
            self._mark(resource, key, Stored(terminating, b""), 0)
            for row, item in self._store.in_namespace(key[1]):
                self._store.remove(row, item)
        elif before.fields["metadata"].get("deletionGracePeriodSeconds"):
            self._mark(resource, key, before, 0)
        gone = self._store.remove(resource, key)
        if not orphan:
            self._end_owned(before.fields["metadata"]["uid"])
        return gone

    def _end_owned(self, uid: str) -> None:
        """What belongs to nobody else is deleted too, as a garbage collector does."""
        ended = [uid]
        while ended:
            for row, key in self._store.owned_by(ended.pop()):
                before = self.read(row, key)
                grace = _grace(row, before, None)
                if grace:
                    self._mark(row, key, before, grace)
                else:
                    self._store.remove(row, key)
                    ended.append(before.fields["metadata"]["uid"])

    def _mark(self, resource: Resource, key: Key, before: Stored, grace_sec: int) -> Stored:
        metadata = dict(before.fields["metadata"])
        metadata |= {"deletionTimestamp": timestamp(grace_sec), "deletionGracePeriodSeconds": grace_sec}
        return self._store.put(resource, key, {**before.fields, "metadata": metadata})

    def _check_namespace(self, resource: Resource, key: Key) -> None:
        namespace = self._store.get(NAMESPACES, ("", key[0]))
        if namespace is None:
            raise not_found("namespaces", key[0])
        if namespace.fields["metadata"].get("deletionTimestamp"):
            details = {"name": key[1], "kind": resource.plural}
            message = f'{resource.plural} "{key[1]}" is forbidden: unable to create new content'
            raise ApiError(
                403, f"{message} in namespace {key[0]} because it is being terminated", details=details
            )


def _grace(resource: Resource, before: Stored, asked_sec: int | None) -> int:
    if resource is not PODS or not before.fields["spec"].get("nodeName"):
        return 0
    if before.fields.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked_sec is not None:
        return max(0, asked_sec)
    return int(before.fields["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SEC))


def _own(fields: Json) -> Json:
    """Without what only the server changes."""
    metadata = {
        name: value
        for name, value in fields["metadata"].items()
        if name not in ("managedFields", "resourceVersion", "generation")
    }
    return {**fields, "metadata": metadata}


def _within(resource: Resource, before: Json, after: Json, subresource: str) -> Json:
    """Only the status is written through ``status``, and never otherwise."""
    if "status" not in resource.subresources:
        return after
    if subresource == "status":
        return {**before, "metadata": {**after["metadata"]}, "status": after.get("status", {})}
    return {**after, "status": before["status"]} if "status" in before else after


def _checked(resource: Resource, given: Json) -> Json:
    """A copy as deep as it is changed here, without kind and apiVersion."""
    kind, version = given.get("kind", resource.kind), given.get("apiVersion", resource.api_version)
    if (kind, version) != (resource.kind, resource.api_version):
        raise bad_request(
            f"the object is a {version} {kind}; {resource.api_version} {resource.kind} is expected"
        )
    metadata = given.get("metadata")
    if not isinstance(metadata, dict):
        raise invalid(resource.kind, "", "metadata.name", "Required value: name or generateName is required")
    fields = {name: value for name, value in given.items() if name not in ("kind", "apiVersion")}
    return {**fields, "metadata": dict(metadata)}


def _agreed(given: str | None, of_path: str) -> str:
    if given and of_path and given != of_path:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
            f" ({given}, {of_path})"
        )
    return given or of_path or "default"
