"""The few kinds that kubectl sends as protobuf, decoded. Everything else it sends as JSON.

A message is a table of its fields by number; what a table does not name is skipped.
"""

from __future__ import annotations

from typing import Final

from nvshare.sim.kube_api.errors import ApiError, Json, bad_request

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\0"
_TEXT, _MAP, _BYTES = "text", "map", "bytes"

_MESSAGES: Final[dict[str, dict[int, tuple[str, str]]]] = {
    "Unknown": {1: ("typeMeta", "TypeMeta"), 2: ("raw", _BYTES)},
    "TypeMeta": {1: ("apiVersion", _TEXT), 2: ("kind", _TEXT)},
    "ObjectMeta": {
        1: ("name", _TEXT),
        2: ("generateName", _TEXT),
        3: ("namespace", _TEXT),
        11: ("labels", _MAP),
        12: ("annotations", _MAP),
    },
    "ResourceAttributes": {
        1: ("namespace", _TEXT),
        2: ("verb", _TEXT),
        3: ("group", _TEXT),
        4: ("version", _TEXT),
        5: ("resource", _TEXT),
        6: ("subresource", _TEXT),
        7: ("name", _TEXT),
    },
    "SelfSubjectAccessReviewSpec": {1: ("resourceAttributes", "ResourceAttributes")},
}
_KINDS: Final[dict[str, dict[int, tuple[str, str]]]] = {
    "Namespace": {1: ("metadata", "ObjectMeta")},
    "ServiceAccount": {1: ("metadata", "ObjectMeta")},
    "ConfigMap": {1: ("metadata", "ObjectMeta"), 2: ("data", _MAP)},
    "SelfSubjectAccessReview": {1: ("metadata", "ObjectMeta"), 2: ("spec", "SelfSubjectAccessReviewSpec")},
}


def decode_protobuf(body: bytes) -> Json:
    """The object in the envelope that Kubernetes puts around each."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body is no protobuf of Kubernetes")
    try:
        envelope = _message(body[len(_MAGIC) :], _MESSAGES["Unknown"])
        kind = envelope.get("typeMeta", {}).get("kind", "")
        if kind not in _KINDS:
            accepted = f"{', '.join(_KINDS)}; everything else as JSON"
            raise ApiError(415, f"the body is a {kind or 'thing'} as protobuf; accepted so: {accepted}")
        return {**envelope["typeMeta"], **_message(envelope.get("raw", b""), _KINDS[kind])}
    except (IndexError, UnicodeDecodeError) as error:
        raise bad_request(f"broken protobuf: {error}") from None


def _number(data: bytes, place: int) -> tuple[int, int]:
    """A variable-length number, and where it ends."""
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, place
        if shift > 63:
            raise IndexError("a number that does not end")


def _message(data: bytes, fields: dict[int, tuple[str, str]]) -> Json:
    found: Json = {}
    place = 0
    while place < len(data):
        tag, place = _number(data, place)
        kind = tag & 7
        if kind == 0:
            _, place = _number(data, place)
            continue
        if kind in (1, 5):
            place += 8 if kind == 1 else 4
            continue
        if kind != 2:
            raise IndexError(f"wire type {kind}")
        length, place = _number(data, place)
        content = data[place : place + length]
        if len(content) < length:
            raise IndexError("it ends within a field")
        place += length
        if tag >> 3 in fields:
            _put(found, *fields[tag >> 3], content)
    return found


def _put(found: Json, name: str, kind: str, content: bytes) -> None:
    if kind == _BYTES:
        found[name] = content
    elif kind == _TEXT:
        if content:
            found[name] = content.decode()
    elif kind == _MAP:
        entry = _message(content, {1: ("key", _TEXT), 2: ("value", _TEXT)})
        found.setdefault(name, {})[entry.get("key", "")] = entry.get("value", "")
    else:
        found[name] = _message(content, _MESSAGES[kind])
