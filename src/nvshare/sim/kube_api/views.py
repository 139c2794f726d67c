"""How objects are shown: as they are, their metadata alone, or as a table. The Accept header chooses."""

from __future__ import annotations

from enum import Enum

from nvshare.sim.kube_api.errors import ApiError, Json
from nvshare.sim.kube_api.lists import Page, list_text
from nvshare.sim.kube_api.resources import Resource
from nvshare.sim.kube_api.store import Stored, encode
from nvshare.sim.kube_api.tables import table_of

_META: Json = {"apiVersion": "meta.k8s.io/v1"}


class View(Enum):
    WHOLE = "whole"
    METADATA = "metadata"
    TABLE = "table"


def view_of(accept: str) -> View:
    """The first acceptable kind that we have; 406 if there is none."""
    for kind in accept.split(","):
        media, *parameters = (part.strip() for part in kind.split(";"))
        if media not in ("application/json", "application/*", "*/*", ""):
            continue
        options = dict(part.partition("=")[::2] for part in parameters)
        shown = options.get("as", "")
        if not shown:
            return View.WHOLE
        if options.get("g") == "meta.k8s.io" and options.get("v", "v1") == "v1":
            if shown == "Table":
                return View.TABLE
            if shown in ("PartialObjectMetadata", "PartialObjectMetadataList"):
                return View.METADATA
    accepted = "application/json, application/json;as=Table;g=meta.k8s.io;v=v1"
    raise ApiError(406, f"only the following media types are accepted: {accepted}")


def object_text(resource: Resource, stored: Stored, view: View = View.WHOLE) -> bytes:
    """With kind and apiVersion, which lists leave out."""
    if view is View.METADATA:
        return encode({"kind": "PartialObjectMetadata", **_META, "metadata": stored.fields["metadata"]})
    if view is View.TABLE:
        version = {"resourceVersion": stored.fields["metadata"]["resourceVersion"]}
        return encode(table_of(resource, [stored], version))
    head = f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'
    return head.encode() + stored.text[1:]


def page_text(resource: Resource, page: Page, view: View) -> bytes:
    if view is View.TABLE:
        return encode(table_of(resource, page.items, page.metadata)) + b"\n"
    if view is View.METADATA:
        head = encode({"kind": "PartialObjectMetadataList", **_META, "metadata": page.metadata})
        items = b",".join(object_text(resource, stored, view) for stored in page.items)
        return b'%b,"items":[%b]}\n' % (head[:-1], items)
    return list_text(resource, page)
