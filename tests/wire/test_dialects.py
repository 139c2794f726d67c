"""The frames, byte by byte, as the programs in the field have them."""

from __future__ import annotations

import struct

import pytest

from nvshare.wire.codec import encode
from nvshare.wire.dialects import INTERIM, ORIGINAL, V2, V3, Dialect
from nvshare.wire.messages import Message, MessageType

LAYOUTS = [
    (
        ORIGINAL,
        "<B254s254sQ20s",
        537,
        {"type": 0, "pod_name": 1, "pod_namespace": 255, "id": 509, "data": 517},
    ),
    (
        INTERIM,
        "<B254s254s96sQ20sQQi",
        653,
        {
            "type": 0,
            "pod_name": 1,
            "pod_namespace": 255,
            "gpu_uuid": 509,
            "id": 605,
            "data": 613,
            "memory_usage_bytes": 633,
            "memory_limit_bytes": 641,
            "core_limit_percent": 649,
        },
    ),
    (
        V2,
        "<BH254s254s96sQ20sQQii",
        659,
        {
            "type": 0,
            "version": 1,
            "pod_name": 3,
            "pod_namespace": 257,
            "gpu_uuid": 511,
            "id": 607,
            "data": 615,
            "memory_usage_bytes": 635,
            "memory_limit_bytes": 643,
            "core_limit_percent": 651,
            "host_pid": 655,
        },
    ),
]


@pytest.mark.parametrize(("dialect", "code", "frame_bytes", "offsets"), LAYOUTS, ids=["537", "653", "659"])
def test_layout(dialect: Dialect, code: str, frame_bytes: int, offsets: dict[str, int]) -> None:
    assert dialect.struct_code() == code
    assert dialect.frame_bytes == struct.calcsize(code) == frame_bytes
    assert dict(dialect.offsets) == offsets


def test_v3_keeps_the_frame_of_v2() -> None:
    assert V3.offsets == V2.offsets
    assert V3.frame_bytes == V2.frame_bytes


def test_register_of_v2_byte_by_byte() -> None:
    message = Message(
        MessageType.REGISTER, pod_name="train-0", pod_namespace="ml", gpu_uuid="GPU-1", host_pid=4711
    )
    expected = struct.pack(
        "<BH254s254s96sQ20sQQii", 1, 2, b"train-0", b"ml", b"GPU-1", 1234, b"", 0, 0, 0, 4711
    )
    assert encode(message, V2) == expected


def test_register_of_the_original_byte_by_byte() -> None:
    message = Message(MessageType.REGISTER, pod_name="a", pod_namespace="b", gpu_uuid="GPU-1", host_pid=1)
    assert encode(message, ORIGINAL) == struct.pack("<B254s254sQ20s", 1, b"a", b"b", 1234, b"")


def test_turn_ended_byte_by_byte() -> None:
    message = Message(MessageType.TURN_ENDED, arguments=(1, 2, 3, 4, 5, 6))
    assert encode(message, V3) == struct.pack("<BH6Q", 35, 3, 1, 2, 3, 4, 5, 6).ljust(659, b"\0")


def test_resume_byte_by_byte() -> None:
    message = Message(MessageType.RESUME, id=0xABCD, gpu_uuid="GPU-1", arguments=(1, 2, 3, 4, 5, 6, 7, 8))
    arguments = struct.pack("<BH8Q", 32, 3, 1, 2, 3, 4, 5, 6, 7, 8)
    expected = arguments.ljust(511, b"\0") + b"GPU-1".ljust(96, b"\0") + struct.pack("<Q", 0xABCD)
    assert encode(message, V3) == expected.ljust(659, b"\0")


def test_answer_to_an_original_client_byte_by_byte() -> None:
    message = Message(MessageType.SCHED_ON, data="00000000deadbeef", core_limit_percent=30)
    assert encode(message, ORIGINAL) == struct.pack(
        "<B254s254sQ20s", 2, b"", b"", 0xBEEF, b"00000000deadbeef"
    )
