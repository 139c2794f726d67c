"""The frames that exist, and how to tell which one a peer speaks.

1. Every frame has a fixed size, little endian, without length, magic or checksum.
2. A peer is recognised by the content of its first message, never by how many bytes came at once: bytes 1-2
   hold the version since version 2, and older programs write a constant id at an offset that differs.
3. What the first message says holds for the whole connection.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from nvshare.wire.faults import Fault, RemoteProtocolError
from nvshare.wire.messages import OPERATOR_ID, REGISTER_ID

# In the order of the frame; a dialect has all of them or leaves some out.
FIELD_CODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "type": "B",
        "version": "H",
        "pod_name": "254s",
        "pod_namespace": "254s",
        "gpu_uuid": "96s",
        "id": "Q",
        "data": "20s",
        "memory_usage_bytes": "Q",
        "memory_limit_bytes": "Q",
        "core_limit_percent": "i",
        "host_pid": "i",
    }
)
TEXT_FIELDS: Final = frozenset(name for name, code in FIELD_CODES.items() if code.endswith("s"))


class Dialect(NamedTuple):
    """One frame layout and the newest message version its speakers know."""

    name: str
    version: int
    offsets: Mapping[str, int]
    frame_bytes: int
    meaning: str

    def struct_code(self) -> str:
        """The whole frame for the struct module."""
        return "<" + "".join(FIELD_CODES[name] for name in self.offsets)


def _dialect(name: str, version: int, lacks: frozenset[str], meaning: str) -> Dialect:
    offsets: dict[str, int] = {}
    offset = 0
    for field, code in FIELD_CODES.items():
        if field not in lacks:
            offsets[field] = offset
            offset += struct.calcsize("<" + code)
    return Dialect(name, version, MappingProxyType(offsets), offset, meaning)


ORIGINAL: Final = _dialect(
    "original",
    1,
    frozenset(
        {"version", "gpu_uuid", "memory_usage_bytes", "memory_limit_bytes", "core_limit_percent", "host_pid"}
    ),
    "the first programs: no quotas, one GPU",
)
INTERIM: Final = _dialect(
    "interim", 2, frozenset({"version", "host_pid"}), "version 2 before it had a version number"
)
V2: Final = _dialect("v2", 2, frozenset(), "version 2; an operator's message has version 0")
V3: Final = _dialect("v3", 3, frozenset(), "ours")

DIALECTS: Final = (ORIGINAL, INTERIM, V2, V3)

_VERSION: Final = struct.Struct("<xH")
_ID: Final = struct.Struct("<Q")
_BY_VERSION: Final = {2: V2, 3: V3}
_FIRST_IDS: Final = frozenset({REGISTER_ID, OPERATOR_ID})
# Tried in this order; each needs no more bytes than the shortest frame it could be.
_BY_ID_OFFSET: Final = tuple((dialect.offsets["id"], dialect) for dialect in (ORIGINAL, INTERIM, V2))


def recognise(head: bytes | bytearray | memoryview) -> Dialect | None:
    """The dialect of a stream that begins with ``head``; None while more bytes could decide it."""
    if len(head) < _VERSION.size:
        return None
    (version,) = _VERSION.unpack_from(head)
    if version in _BY_VERSION:
        return _BY_VERSION[version]
    for offset, dialect in _BY_ID_OFFSET:
        if len(head) < offset + _ID.size:
            return None
        if _ID.unpack_from(head, offset)[0] in _FIRST_IDS:
            return dialect
    raise RemoteProtocolError(
        Fault.UNKNOWN_FRAME,
        f"first message has type {head[0]} and version {version},"
        f" and none of the ids {sorted(_FIRST_IDS)} where a known frame has it",
    )
