"""The core's effects as frames, one table for each dialect.

A dialect without a message for an effect has no row for it, and its clients get none. Frames without variable
parts are made once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nvshare.core import effects
from nvshare.wire.codec import encode
from nvshare.wire.dialects import DIALECTS, Dialect
from nvshare.wire.messages import MESSAGES, Message, MessageType

Encoder = Callable[[Any], bytes]
_T = MessageType
_ARGUMENT_MOST: Final = (1 << 64) - 1

_CONSTANT: Final = {
    effects.Grant: _T.LOCK_OK,
    effects.Drop: _T.DROP_LOCK,
    effects.WaitForMemory: _T.WAIT_FOR_MEM,
    effects.MemoryAvailable: _T.MEM_AVAILABLE,
}


def _core_limit(effect: effects.SendCoreLimit) -> Message:
    return Message(_T.UPDATE_CORE_LIMIT, id=effect.client, core_limit_percent=effect.percent)


def _memory_limit(effect: effects.SendMemoryLimit) -> Message:
    return Message(_T.UPDATE_LIMIT, id=effect.client, memory_limit_bytes=effect.limit_bytes)


def _lease(effect: effects.GrantLease) -> Message:
    unlimited = effect.lease_bytes is None
    return Message(_T.LEASE, arguments=(effect.generation, effect.lease_bytes or 0, int(unlimited)))


def _recall(effect: effects.RecallLease) -> Message:
    return Message(_T.LEASE_RECALL, arguments=(effect.generation,))


def _reserved(effect: effects.Reserved) -> Message:
    figures = (effect.seq, effect.granted_bytes, _sum_of_claims(effect.used_bytes))
    return Message(_T.MEM_RESERVED, arguments=figures)


def _refused(effect: effects.Refused) -> Message:
    figures = (effect.seq, effect.limit_bytes, _sum_of_claims(effect.used_bytes), effect.asked_bytes)
    return Message(_T.MEM_REFUSED, arguments=figures)


def _sum_of_claims(total_bytes: int) -> int:
    """Each client may claim as much as an argument can hold, so all together may claim more."""
    return min(total_bytes, _ARGUMENT_MOST)


def _hints(effect: effects.SendHints) -> Message:
    return Message(_T.HINTS, arguments=(effect.others_wait, effect.limited_present, effect.shallow))


def _scheduling(effect: effects.SendScheduling) -> Message:
    return Message(_T.SCHED_ON if effect.on else _T.SCHED_OFF)


_VARIABLE: Final[dict[type[Any], tuple[MessageType, Callable[[Any], Message]]]] = {
    effects.SendCoreLimit: (_T.UPDATE_CORE_LIMIT, _core_limit),
    effects.SendMemoryLimit: (_T.UPDATE_LIMIT, _memory_limit),
    effects.GrantLease: (_T.LEASE, _lease),
    effects.RecallLease: (_T.LEASE_RECALL, _recall),
    effects.Reserved: (_T.MEM_RESERVED, _reserved),
    effects.Refused: (_T.MEM_REFUSED, _refused),
    effects.SendHints: (_T.HINTS, _hints),
    effects.SendScheduling: (_T.SCHED_ON, _scheduling),
}


def _variable_encoder(message_of: Callable[[Any], Message], dialect: Dialect) -> Encoder:
    return lambda effect: encode(message_of(effect), dialect)


def _frames(dialect: Dialect) -> dict[type[Any], bytes]:
    return {
        effect: encode(Message(kind), dialect)
        for effect, kind in _CONSTANT.items()
        if MESSAGES[kind].since_version <= dialect.version
    }


def _encoders(dialect: Dialect) -> dict[type[Any], Encoder]:
    return {
        effect: _variable_encoder(message_of, dialect)
        for effect, (kind, message_of) in _VARIABLE.items()
        if MESSAGES[kind].since_version <= dialect.version
    }


FRAMES: Final = {dialect.name: _frames(dialect) for dialect in DIALECTS}
ENCODERS: Final = {dialect.name: _encoders(dialect) for dialect in DIALECTS}
