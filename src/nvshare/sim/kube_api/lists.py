"""Lists, in pages that show one moment."""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

import msgspec

from nvshare.sim.kube_api.errors import ApiError, Json, bad_request
from nvshare.sim.kube_api.resources import Resource
from nvshare.sim.kube_api.selectors import Matches
from nvshare.sim.kube_api.store import Key, Store, Stored, decode, encode

_TOKEN_VERSION: Final = "meta.k8s.io/v1"
FUTURE_WAIT_SEC: Final = 3.0
"""How long a list waits for a version that does not exist yet."""


class Page(NamedTuple):
    version: int
    items: list[Stored]
    metadata: Json


class _Start(NamedTuple):
    version: int  # -1: whatever is newest, since the former state is compacted
    key: Key


def _token(start: _Start) -> str:
    shown = {"v": _TOKEN_VERSION, "rv": start.version, "start": "/".join(start.key) + "\0"}
    return base64.urlsafe_b64encode(encode(shown)).decode().rstrip("=")


def _parse_token(token: str) -> _Start:
    try:
        shown = decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        if shown["v"] != _TOKEN_VERSION:
            raise ValueError("another version")
        namespace, _, name = shown["start"].rstrip("\0").partition("/")
        return _Start(int(shown["rv"]), (namespace, name))
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, msgspec.DecodeError):
        raise bad_request("continue key is not valid: encoded continue token is not valid") from None


def _expired(start: _Start) -> ApiError:
    return ApiError(
        410,
        "The provided continue parameter is too old to display a consistent list result. A new list may be "
        "started without it; with the token in this response the rest may come from another moment.",
        metadata={"continue": _token(start._replace(version=-1))},
    )


def version_too_large(asked: int, newest: int) -> ApiError:
    message = f"Too large resource version: {asked}, current: {newest}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ApiError(504, f"Timeout: {message}", details={"causes": [cause]}, retry_after_sec=1)


def page_of(
    store: Store, resource: Resource, matches: Matches, *, limit: int, token: str, version: str, match: str
) -> Page:
    """``version`` is one that exists by now; only with ``match`` Exact is it also the one shown."""
    start: _Start | None = None
    shown = store.version
    if token:
        start = _parse_token(token)
        if start.version >= 0:
            shown = start.version
            if shown < store.compacted:
                raise _expired(start)
    elif match == "Exact":
        shown = int(version)
        if shown < store.compacted:
            raise ApiError(410)
    found = [
        (key, stored)
        for key, stored in store.all_at(resource, shown)
        if (start is None or key > start.key) and matches(stored.fields)
    ]
    metadata: Json = {"resourceVersion": str(shown)}
    if limit and len(found) > limit:
        metadata["continue"] = _token(_Start(shown, found[limit - 1][0]))
        metadata["remainingItemCount"] = len(found) - limit
        found = found[:limit]
    return Page(shown, [stored for _, stored in found], metadata)


def list_text(resource: Resource, page: Page) -> bytes:
    head = encode(
        {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": page.metadata}
    )
    return b'%b,"items":[%b]}\n' % (head[:-1], b",".join(stored.text for stored in page.items))
