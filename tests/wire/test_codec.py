"""Messages survive every frame and every way of cutting the bytes; garbage is named, never anything else."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nvshare.wire.codec import Decoder, encode, format_client_id
from nvshare.wire.dialects import DIALECTS, INTERIM, ORIGINAL, V2, V3, Dialect
from nvshare.wire.faults import FAULTS, Fault, LocalProtocolError, RemoteProtocolError
from nvshare.wire.messages import MESSAGES, OPERATOR_ID, REGISTER_ID, Message, MessageRow, MessageType

from .strategies import PATIENT, known_rows, messages_of, streams

REGISTER = Message(
    MessageType.REGISTER, pod_name="train-0", pod_namespace="ml", gpu_uuid="GPU-1", host_pid=77
)
DIALECT_IDS = [dialect.name for dialect in DIALECTS]


class Outcome(NamedTuple):
    """All that a decoder made of a stream."""

    messages: tuple[Message, ...]
    ignored: dict[Fault, int]
    failure: Fault | None
    dialect: str | None


def decode(chunks: Iterable[bytes], dialect: Dialect | None = None) -> Outcome:
    decoder = Decoder(dialect)
    messages: list[Message] = []
    failure: Fault | None = None
    for chunk in chunks:
        try:
            messages += decoder.feed(chunk)
        except RemoteProtocolError as error:
            messages += error.messages_before
            failure = error.reason
            break
        assert decoder.buffered_bytes < V3.frame_bytes
    return Outcome(
        tuple(messages), decoder.ignored, failure, decoder.dialect.name if decoder.dialect else None
    )


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


def one_byte_at_a_time(stream: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in stream]


ROWS_IN_DIALECTS = [
    pytest.param(row, dialect, id=f"{row.type.name}-{dialect.name}")
    for dialect in DIALECTS
    for row in known_rows(dialect)
]


@pytest.mark.parametrize(("row", "dialect"), ROWS_IN_DIALECTS)
def test_every_row_round_trips(row: MessageRow, dialect: Dialect) -> None:
    @PATIENT
    @given(messages_of(row, dialect))
    def round_trip(message: Message) -> None:
        frame = encode(message, dialect)
        assert len(frame) == dialect.frame_bytes
        assert decode([frame], dialect) == Outcome((message,), {}, None, dialect.name)

    round_trip()


@pytest.mark.parametrize("dialect", DIALECTS, ids=DIALECT_IDS)
def test_any_cutting_gives_the_same_messages(dialect: Dialect) -> None:
    @PATIENT
    @given(streams(dialect), st.lists(st.integers(0, 2**16), max_size=12))
    def cut_anywhere(sent: list[Message], places: list[int]) -> None:
        stream = b"".join(encode(message, dialect) for message in sent)
        whole = decode([stream])
        assert whole == Outcome(tuple(sent), {}, None, dialect.name)
        assert decode(cut(stream, places)) == whole
        assert decode(one_byte_at_a_time(stream)) == whole

    cut_anywhere()


def _garbage() -> st.SearchStrategy[bytes]:
    """Bytes that get past the recognition as often as not, with wild types, texts and numbers after it."""
    heads = [encode(REGISTER, dialect) for dialect in DIALECTS]
    frame = st.binary(min_size=600, max_size=700)
    return st.one_of(
        st.binary(max_size=2000),
        st.builds(
            lambda head, rest: head + b"".join(rest), st.sampled_from(heads), st.lists(frame, max_size=3)
        ),
        st.builds(
            lambda kind, version, rest: bytes([kind]) + struct.pack("<H", version) + rest,
            st.sampled_from(list(range(48))),
            st.sampled_from([0, 2, 3]),
            st.binary(min_size=656, max_size=1400),
        ),
    )


@settings(PATIENT, max_examples=300)
@given(_garbage(), st.lists(st.integers(0, 2**16), max_size=8))
@example(b"\xff" * 2000, [])
@example(b"\0" * 2000, [3])
def test_garbage_is_messages_or_counted_or_one_named_error(stream: bytes, places: list[int]) -> None:
    whole = decode([stream])
    assert all(isinstance(message, Message) for message in whole.messages)
    assert all(not FAULTS[fault].fatal for fault in whole.ignored)
    assert whole.failure is None or FAULTS[whole.failure].fatal
    assert decode(cut(stream, places)) == whole
    assert decode(one_byte_at_a_time(stream)) == whole


@pytest.mark.parametrize("dialect", DIALECTS, ids=DIALECT_IDS)
def test_older_peers_are_never_sent_what_they_do_not_know(dialect: Dialect) -> None:
    known = {row.type for row in known_rows(dialect)}
    for message_type in set(MessageType) - known:
        message = Message(message_type, arguments=(0,) * len(MESSAGES[message_type].arguments))
        with pytest.raises(LocalProtocolError, match=f"{dialect.name} does not know {message_type.name}"):
            encode(message, dialect)
    assert max(known) == {"original": 8, "interim": 14, "v2": 14, "v3": max(MessageType)}[dialect.name]


class TestRecognition:
    @pytest.mark.parametrize("dialect", [ORIGINAL, INTERIM, V2], ids=lambda dialect: dialect.name)
    @pytest.mark.parametrize("first_id", [REGISTER_ID, OPERATOR_ID])
    def test_a_peer_without_a_version_is_known_by_its_id(self, dialect: Dialect, first_id: int) -> None:
        frame = bytearray(dialect.frame_bytes)
        frame[0] = MessageType.SCHED_ON
        struct.pack_into("<Q", frame, dialect.offsets["id"], first_id)
        assert decode([bytes(frame)]) == Outcome((Message(MessageType.SCHED_ON),), {}, None, dialect.name)

    @pytest.mark.parametrize("dialect", DIALECTS, ids=DIALECT_IDS)
    def test_it_decides_as_soon_as_the_bytes_allow(self, dialect: Dialect) -> None:
        frame = encode(REGISTER, dialect)
        enough = 3 if "version" in dialect.offsets else dialect.offsets["id"] + 8
        decoder = Decoder()
        decoder.feed(frame[: enough - 1])
        assert decoder.dialect is None
        decoder.feed(frame[enough - 1 : enough])
        assert decoder.dialect is dialect

    def test_an_unknown_frame_fails_at_the_first_byte_that_excludes_all(self) -> None:
        decoder = Decoder()
        assert decoder.feed(b"\x01" * 614) == []
        with pytest.raises(RemoteProtocolError) as failure:
            decoder.feed(b"\x01")
        assert failure.value.reason is Fault.UNKNOWN_FRAME
        assert "type 1 and version 257" in str(failure.value)

    def test_names_that_fill_their_field_do_not_look_like_an_id(self) -> None:
        crowded = REGISTER._replace(pod_name="p" * 253, pod_namespace="n" * 253, gpu_uuid="G" * 95)
        for dialect in (INTERIM, V2, V3):
            assert decode([encode(crowded, dialect)]).dialect == dialect.name
        assert decode([encode(crowded, ORIGINAL)]).dialect == "original"


class TestFaults:
    @staticmethod
    def frame(dialect: Dialect, message_type: int, **fields: bytes) -> bytes:
        frame = bytearray(dialect.frame_bytes)
        frame[0] = message_type
        if "version" in dialect.offsets:
            struct.pack_into("<H", frame, 1, dialect.version)
        for name, raw in fields.items():
            frame[dialect.offsets[name] : dialect.offsets[name] + len(raw)] = raw
        return bytes(frame)

    @pytest.mark.parametrize(
        ("message_type", "fields", "fault"),
        [
            (MessageType.REGISTER, {"pod_name": b"x" * 254}, Fault.UNTERMINATED_TEXT),
            (MessageType.REGISTER, {"pod_namespace": b"x" * 254}, Fault.UNTERMINATED_TEXT),
            (MessageType.REGISTER, {"gpu_uuid": b"x" * 96}, Fault.UNTERMINATED_TEXT),
            (MessageType.REGISTER, {"gpu_uuid": b"\xff\xfe\0"}, Fault.NOT_UTF8),
            (MessageType.RESUME, {"gpu_uuid": b"\xc3\x28\0"}, Fault.NOT_UTF8),
            (MessageType.SCHED_ON, {"data": b"0123456789ABCDEF"}, Fault.BAD_CLIENT_ID),
            (MessageType.SCHED_OFF, {"data": b"0123"}, Fault.BAD_CLIENT_ID),
            (MessageType.SCHED_ON, {"data": b"1" * 20}, Fault.UNTERMINATED_TEXT),
            (MessageType.SET_TQ, {"data": b"-5"}, Fault.BAD_QUANTUM),
            (MessageType.SET_TQ, {"data": b"0"}, Fault.BAD_QUANTUM),
            (MessageType.SET_TQ, {"data": b""}, Fault.BAD_QUANTUM),
            (MessageType.SET_TQ, {"data": b"86401"}, Fault.BAD_QUANTUM),
            (MessageType.SET_TQ, {"data": "٣".encode()}, Fault.BAD_QUANTUM),
            (MessageType.UPDATE_CORE_LIMIT, {"core_limit_percent": b"\0"}, Fault.BAD_CORE_LIMIT),
            (MessageType.UPDATE_CORE_LIMIT, {"core_limit_percent": b"\x65"}, Fault.BAD_CORE_LIMIT),
            (0, {}, Fault.UNKNOWN_TYPE),
            (31, {}, Fault.UNKNOWN_TYPE),
            (255, {}, Fault.UNKNOWN_TYPE),
        ],
    )
    def test_fault_has_its_consequence(
        self, message_type: int, fields: dict[str, bytes], fault: Fault
    ) -> None:
        before = Message(MessageType.MEM_UPDATE, memory_usage_bytes=5)
        good = encode(before, V3)
        bad = self.frame(V3, message_type, **fields)
        outcome = decode([good + bad + good])
        if FAULTS[fault].fatal:
            assert outcome == Outcome((before,), {}, fault, "v3")
        else:
            assert outcome == Outcome((before, before), {fault: 1}, None, "v3")

    def test_which_faults_are_fatal(self) -> None:
        fatal = {fault for fault, row in FAULTS.items() if row.fatal}
        assert fatal == {Fault.UNKNOWN_FRAME, Fault.UNTERMINATED_TEXT, Fault.NOT_UTF8, Fault.BAD_CLIENT_ID}
        assert FAULTS.keys() == set(Fault)

    def test_a_type_newer_than_the_declared_version_is_counted(self) -> None:
        stream = encode(REGISTER, V2) + self.frame(V2, MessageType.BUSY) + self.frame(V2, MessageType.BUSY)
        assert decode([stream]).ignored == {Fault.UNDECLARED_TYPE: 2}

    def test_what_follows_a_nul_is_not_read(self) -> None:
        raw = b"train-0\0\xff\xfe\xfd"
        outcome = decode([self.frame(V3, MessageType.REGISTER, pod_name=raw)])
        assert outcome.messages == (Message(MessageType.REGISTER, pod_name="train-0"),)

    def test_a_field_without_meaning_is_not_read(self) -> None:
        frame = self.frame(V3, MessageType.REQ_LOCK, pod_name=b"\xff" * 254, data=b"\xff" * 20)
        assert decode([frame]).messages == (Message(MessageType.REQ_LOCK),)

    def test_a_failed_decoder_stays_failed(self) -> None:
        decoder = Decoder(V3)
        good = encode(Message(MessageType.REQ_LOCK), V3)
        assert decoder.feed(good[:100]) == []
        with pytest.raises(RemoteProtocolError) as first:
            decoder.feed(good[100:] + self.frame(V3, MessageType.REGISTER, pod_name=b"x" * 254))
        assert first.value.messages_before == (Message(MessageType.REQ_LOCK),)
        with pytest.raises(RemoteProtocolError) as later:
            decoder.feed(good)
        assert later.value.reason is first.value.reason
        assert later.value.messages_before == ()
        assert decoder.buffered_bytes == 0


class TestOurMistakes:
    @pytest.mark.parametrize(
        "message",
        [
            REGISTER._replace(pod_name="x" * 254),
            REGISTER._replace(gpu_uuid="GPU-\0"),
            REGISTER._replace(host_pid=2**31),
            Message(MessageType.UPDATE_LIMIT, id=-1),
            Message(MessageType.UPDATE_LIMIT, id=2**64),
            Message(MessageType.MEM_UPDATE, arguments=(1,)),
            Message(MessageType.BUSY, arguments=(1,)),
            Message(MessageType.BUSY, arguments=(1, -1)),
            Message(MessageType.HINTS, arguments=(1, 0, 0, 0)),
            Message(MessageType.SCHED_ON, data="me"),
            Message(MessageType.SET_TQ, data="soon"),
            Message(MessageType.UPDATE_CORE_LIMIT, core_limit_percent=101),
        ],
        ids=lambda message: message.type.name,
    )
    def test_is_a_local_error(self, message: Message) -> None:
        with pytest.raises(LocalProtocolError):
            encode(message, V3)


def test_client_id_is_sixteen_digits() -> None:
    assert format_client_id(0xF00D) == "000000000000f00d"


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_is_taken(buffer: type[bytes] | type[bytearray] | type[memoryview]) -> None:
    stream = encode(REGISTER, V3) + encode(Message(MessageType.MEM_UPDATE, memory_usage_bytes=9), V3)
    decoder = Decoder()
    assert decoder.feed(buffer(stream[:700])) == [REGISTER]
    assert decoder.feed(buffer(stream[700:])) == [Message(MessageType.MEM_UPDATE, memory_usage_bytes=9)]
