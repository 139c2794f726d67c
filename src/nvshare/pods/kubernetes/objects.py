"""What is kept of the API server's objects. Whatever has no field here is skipped while it is decoded."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Watched(msgspec.Struct, frozen=True):
    """Of any kind."""

    metadata: Metadata = Metadata()


ObjectT = TypeVar("ObjectT", bound=Watched)


class LimitAnnotations(msgspec.Struct, frozen=True):
    """Of a pod: its limits. Of a namespace: defaults and ceilings of its pods."""

    memory: str | None = msgspec.field(default=None, name="nvshare.com/gpu-memory-limit")
    core: str | None = msgspec.field(default=None, name="nvshare.com/gpu-core-limit")
    policy: str | None = msgspec.field(default=None, name="nvshare.com/gpu-core-policy")
    memory_max: str | None = msgspec.field(default=None, name="nvshare.com/gpu-memory-limit-max")
    core_max: str | None = msgspec.field(default=None, name="nvshare.com/gpu-core-limit-max")
    mirror: str | None = msgspec.field(default=None, name="kubernetes.io/config.mirror")


class OwnerReference(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""


class AnnotatedMetadata(Metadata, frozen=True, rename="camel"):
    annotations: LimitAnnotations | None = None
    owner_references: list[OwnerReference] | None = None

    def belongs_to_node(self, name: str) -> bool:
        """As mirrors of static pods do, which its kubelet makes."""
        return any((owner.kind, owner.name) == ("Node", name) for owner in self.owner_references or ())


class Annotated(Watched, frozen=True):
    """A pod or a namespace."""

    metadata: AnnotatedMetadata = AnnotatedMetadata()


class ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, frozen=True):
    """A part of a list. The items are decoded one by one, so that no single call takes long."""

    metadata: ListMetadata
    kind: str = ""
    items: list[msgspec.Raw] | None = None  # null where there are none


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """The API server's answer to what it does not do."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class WatchEvent(msgspec.Struct, Generic[ObjectT], frozen=True):
    type: str
    object: ObjectT


class WatchError(msgspec.Struct, frozen=True):
    """An event of type ERROR, whose object is a Status."""

    type: str
    object: Status
