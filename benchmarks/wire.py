"""Decoding and encoding beside plain struct on the same frames.

The contenders take turns in one process, CPU time, best of many rounds; the ratio is what lasts from one
machine to the next. ``unpack`` is the whole frame, without a text decoded, a buffer kept or an object made:
what a straightforward decoder adds its own work to. Ours is all of it, from bytes to a list of messages.
"""

from __future__ import annotations

import gc
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from nvshare.wire.codec import Decoder, encode
from nvshare.wire.dialects import V3
from nvshare.wire.messages import Message, MessageType

ROUNDS: Final = 25
CALLS_PER_ROUND: Final = 4000
BATCH_FRAMES: Final = 16

_FRAME: Final = struct.Struct(V3.struct_code())
_CLIENT_ID: Final = 0x0123456789ABCDEF

DECODED: Final = (
    Message(MessageType.REQ_LOCK),
    Message(MessageType.LOCK_RELEASED),
    Message(MessageType.TURN_ENDED, arguments=(10**12, 10**5, 10**7, 1, 7, 10**12)),
    Message(MessageType.BUSY, arguments=(10**12, 0, 10**12, 10**10, *[2**63] * 4)),
    Message(MessageType.MEM_UPDATE, memory_usage_bytes=2**32),
    Message(
        MessageType.REGISTER, pod_name="train-0", pod_namespace="ml", gpu_uuid="GPU-" + "a" * 36, host_pid=9
    ),
)
ENCODED: Final = (
    Message(MessageType.LOCK_OK),
    Message(MessageType.DROP_LOCK),
    Message(MessageType.TURN_ENDED, arguments=(10**12, 10**5, 10**7, 1, 7, 10**12)),
    Message(MessageType.MEM_RESERVED, arguments=(4, 2**30)),
    Message(MessageType.UPDATE_LIMIT, id=_CLIENT_ID, memory_limit_bytes=2**32),
)


class Contender(NamedTuple):
    """Something to time, and how many messages one call handles."""

    name: str
    call: Callable[[], object]
    messages: int = 1


def _time_ns(contender: Contender) -> float:
    call = contender.call
    calls = max(1, CALLS_PER_ROUND // contender.messages)
    start_ns = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - start_ns) / (calls * contender.messages)


def best_ns(contenders: list[Contender], rounds: int = ROUNDS) -> dict[str, float]:
    """The best time per message of each, taking turns so that a noisy moment hits all of them."""
    best = dict.fromkeys((contender.name for contender in contenders), float("inf"))
    gc.disable()
    try:
        for _ in range(rounds):
            for contender in contenders:
                best[contender.name] = min(best[contender.name], _time_ns(contender))
    finally:
        gc.enable()
    return best


def _feeding(data: bytes) -> Callable[[], object]:
    decoder = Decoder(V3)
    return lambda: decoder.feed(data)


def _unpack_with_text(frame: bytes) -> Callable[[], object]:
    def call() -> object:
        fields = _FRAME.unpack(frame)
        return [fields[place].split(b"\0", 1)[0].decode() for place in (2, 3, 4)]

    return call


def decoding() -> list[Contender]:
    """The plain way first, then ours for each type, one frame a call and several."""
    plain = encode(DECODED[-1], V3)
    contenders = [
        Contender("unpack", lambda: _FRAME.unpack(plain)),
        Contender("unpack + 3 texts", _unpack_with_text(plain)),
    ]
    for message in DECODED:
        frame = encode(message, V3)
        contenders.append(Contender(message.type.name, _feeding(frame)))
        name = f"{message.type.name}, {BATCH_FRAMES} at once"
        contenders.append(Contender(name, _feeding(frame * BATCH_FRAMES), BATCH_FRAMES))
    return contenders


def encoding() -> list[Contender]:
    """The plain way first, then ours for each type."""
    fields = (5, 3, b"", b"", b"", 7331, b"", 0, 0, 0, 0)
    contenders = [Contender("pack", lambda: _FRAME.pack(*fields))]
    contenders += [Contender(message.type.name, partial(encode, message, V3)) for message in ENCODED]
    return contenders


def _print(title: str, times_ns: dict[str, float]) -> None:
    plain_name, plain_ns = next(iter(times_ns.items()))
    print(f"{title:<34} {'ns/message':>10}  x of {plain_name}")
    for name, value_ns in times_ns.items():
        print(f"  {name:<32} {value_ns:>10.0f}  {value_ns / plain_ns:.2f}")


def main() -> None:
    """Both tables."""
    _print("decode", best_ns(decoding()))
    _print("encode", best_ns(encoding()))


if __name__ == "__main__":
    main()
