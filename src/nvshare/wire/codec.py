"""Bytes to messages and back.

1. For each dialect and message type a reader and a writer are made once, from the tables. They touch only the
   fields that mean something, so a message without text costs less than unpacking its frame.
2. The decoder keeps less than one frame between calls. How the bytes are cut makes no difference: to the
   messages, to what is counted, to the error.
3. After a fatal fault the decoder stays failed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

from nvshare.wire.dialects import DIALECTS, FIELD_CODES, TEXT_FIELDS, V3, Dialect, recognise
from nvshare.wire.faults import FAULTS, Fault, LocalProtocolError, RemoteProtocolError
from nvshare.wire.messages import MESSAGES, QUANTUM_MAX_SEC, Message, MessageRow, MessageType

Buffer = bytes | bytearray | memoryview
Reader = Callable[[Buffer, int], Message]
Writer = Callable[[Message], bytes]

_ARGUMENTS_OFFSET: Final = V3.offsets["pod_name"]
_HEX_DIGITS: Final = frozenset("0123456789abcdef")
_CLIENT_ID_DIGITS: Final = 16


def format_client_id(client_id: int) -> str:
    """A client id as SCHED_ON carries it."""
    return f"{client_id:0{_CLIENT_ID_DIGITS}x}"


# --- what the text and the numbers of some messages must look like, in both directions


def _check_client_id(message: Message) -> str | None:
    if not message.data or (len(message.data) == _CLIENT_ID_DIGITS and _HEX_DIGITS.issuperset(message.data)):
        return None
    return f"{message.data!r} is no client id; accepted: 16 lower-case hex digits, or nothing"


def _check_quantum(message: Message) -> str | None:
    text = message.data
    if text.isascii() and text.isdigit() and 1 <= int(text) <= QUANTUM_MAX_SEC:
        return None
    return f"{text!r} is not a slice; accepted: whole seconds, 1 to {QUANTUM_MAX_SEC}"


def _check_core_limit(message: Message) -> str | None:
    if 1 <= message.core_limit_percent <= 100:
        return None
    return f"{message.core_limit_percent} is no compute quota; accepted: 1 to 100"


_CHECKS: Final[dict[MessageType, tuple[Fault, Callable[[Message], str | None]]]] = {
    MessageType.SCHED_ON: (Fault.BAD_CLIENT_ID, _check_client_id),
    MessageType.SCHED_OFF: (Fault.BAD_CLIENT_ID, _check_client_id),
    MessageType.SET_TQ: (Fault.BAD_QUANTUM, _check_quantum),
    MessageType.UPDATE_CORE_LIMIT: (Fault.BAD_CORE_LIMIT, _check_core_limit),
}


# --- reading


def _selection(dialect: Dialect, names: Sequence[str], argument_count: int) -> struct.Struct:
    """A frame's struct in which everything but the arguments and the named fields is skipped."""
    code, position = "<", 0
    pieces = [(dialect.offsets[name], FIELD_CODES[name]) for name in names]
    if argument_count:
        pieces.insert(0, (_ARGUMENTS_OFFSET, f"{argument_count}Q"))
    for offset, piece in pieces:
        code += f"{offset - position}x{piece}"
        position = offset + struct.calcsize("<" + piece)
    return struct.Struct(code)


def _decode_text(field: str, raw: bytes) -> str:
    end = raw.find(0)
    if end < 0:
        raise RemoteProtocolError(Fault.UNTERMINATED_TEXT, f"{field} has no NUL in {len(raw)} bytes")
    try:
        return raw[:end].decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError(Fault.NOT_UTF8, f"{field} is {raw[:end]!r}") from None


def _arguments_reader(row: MessageRow, dialect: Dialect) -> Reader:
    """For what clients send most: numbers only. Made without the constructor, which costs as much again."""
    unpack_from = _selection(dialect, (), len(row.arguments)).unpack_from
    message_type, new = row.type, tuple.__new__

    def read(buffer: Buffer, offset: int) -> Message:
        return new(Message, (message_type, 0, unpack_from(buffer, offset), 0, 0, 0, 0, "", "", "", ""))

    return read


def _usage_reader(row: MessageRow, dialect: Dialect) -> Reader:
    """The same for old clients, which report their memory after every allocation."""
    unpack_from = _selection(dialect, row.fields, 0).unpack_from
    message_type, new = row.type, tuple.__new__

    def read(buffer: Buffer, offset: int) -> Message:
        (used_bytes,) = unpack_from(buffer, offset)
        return new(Message, (message_type, 0, (), used_bytes, 0, 0, 0, "", "", "", ""))

    return read


def _general_reader(row: MessageRow, dialect: Dialect) -> Reader:
    names = [name for name in dialect.offsets if name in row.fields]
    argument_count = len(row.arguments)
    unpack_from = _selection(dialect, names, argument_count).unpack_from
    fault_and_check = _CHECKS.get(row.type)

    def read(buffer: Buffer, offset: int) -> Message:
        values = unpack_from(buffer, offset)
        fields = dict(zip(names, values[argument_count:], strict=True))
        for name in names:
            if name in TEXT_FIELDS:
                fields[name] = _decode_text(name, fields[name])
        message = Message(row.type, arguments=values[:argument_count], **fields)
        if fault_and_check:
            fault, check = fault_and_check
            if complaint := check(message):
                raise RemoteProtocolError(fault, complaint)
        return message

    return read


def _reader(row: MessageRow, dialect: Dialect) -> Reader | Message:
    """Or the message itself, if there is nothing to read but its type."""
    if row.fields == ("memory_usage_bytes",):
        return _usage_reader(row, dialect)
    if row.fields:
        return _general_reader(row, dialect)
    return _arguments_reader(row, dialect) if row.arguments else Message(row.type)


def _refusing_reader(number: int, dialect: Dialect) -> Reader:
    """For a type that a peer of this dialect cannot have meant."""
    known = number in MessageType.__members__.values()
    fault = Fault.UNDECLARED_TYPE if known else Fault.UNKNOWN_TYPE

    def read(_buffer: Buffer, _offset: int) -> Message:
        raise RemoteProtocolError(fault, f"type {number} from a peer that speaks {dialect.name}")

    return read


def _readers(dialect: Dialect) -> tuple[Reader | Message, ...]:
    known = {row.type: row for row in MESSAGES.values() if row.since_version <= dialect.version}
    return tuple(
        _reader(known[MessageType(number)], dialect) if number in known else _refusing_reader(number, dialect)
        for number in range(256)
    )


_READERS: Final = {dialect.name: _readers(dialect) for dialect in DIALECTS}


class Decoder:
    """The messages of one connection, from bytes in any pieces."""

    __slots__ = ("_dialect", "_failure", "_frame_bytes", "_readers", "_rest", "ignored")

    def __init__(self, dialect: Dialect | None = None) -> None:
        """``dialect`` when it is known, as a client knows what it speaks; else the first message tells."""
        self._rest = b""
        self._failure: Fault | None = None
        self._dialect: Dialect | None = None
        self._readers: tuple[Reader | Message, ...] | None = None
        self._frame_bytes = 0
        self.ignored: dict[Fault, int] = {}
        if dialect is not None:
            self._speak(dialect)

    @property
    def dialect(self) -> Dialect | None:
        """What the peer speaks; None until its first message has shown it."""
        return self._dialect

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a message that is not complete yet; always less than a frame."""
        return len(self._rest)

    def feed(self, data: Buffer) -> list[Message]:
        """The messages that ``data`` completes.

        Raises RemoteProtocolError at a fatal fault, then and ever after; it carries the messages completed
        before the fault.
        """
        raw = data if isinstance(data, bytes) else bytes(data)
        if self._rest:
            raw = self._rest + raw
        readers = self._readers or self._recognised(raw)
        if readers is None:
            self._rest = raw
            return []
        messages: list[Message] = []
        offset, frame_bytes = 0, self._frame_bytes
        last = len(raw) - frame_bytes
        while offset <= last:
            reader = readers[raw[offset]]
            if isinstance(reader, Message):
                messages.append(reader)
            else:
                try:
                    messages.append(reader(raw, offset))
                except RemoteProtocolError as error:
                    error.messages_before = tuple(messages)
                    self._count_or_fail(error)
            offset += frame_bytes
        if self._rest or offset != len(raw):
            self._rest = raw[offset:]
        return messages

    def _speak(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._frame_bytes = dialect.frame_bytes
        self._readers = _READERS[dialect.name]

    def _recognised(self, head: Buffer) -> tuple[Reader | Message, ...] | None:
        """The readers of the peer's dialect; None while the bytes do not tell."""
        if self._failure is not None:
            raise RemoteProtocolError(self._failure, "the connection has failed before")
        try:
            dialect = recognise(head)
        except RemoteProtocolError as error:
            self._count_or_fail(error)
            return None
        if dialect is not None:
            self._speak(dialect)
        return self._readers

    def _count_or_fail(self, error: RemoteProtocolError) -> None:
        if FAULTS[error.reason].fatal:
            self._failure, self._readers, self._rest = error.reason, None, b""
            raise error
        self.ignored[error.reason] = self.ignored.get(error.reason, 0) + 1


# --- writing


def _template(row: MessageRow, dialect: Dialect) -> bytes:
    """The frame of a message without its fields."""
    frame = bytearray(dialect.frame_bytes)
    frame[0] = row.type
    if "version" in dialect.offsets:
        struct.pack_into("<H", frame, dialect.offsets["version"], dialect.version)
    struct.pack_into("<Q", frame, dialect.offsets["id"], row.fixed_id)
    return bytes(frame)


def _arguments_writer(row: MessageRow, dialect: Dialect) -> Writer:
    """Joins new numbers with kept pieces: no frame is shared, so threads may encode at once."""
    template = _template(row, dialect)
    arguments = struct.Struct(f"<{len(row.arguments)}Q")
    pack, join = arguments.pack, b"".join
    head, tail = template[:_ARGUMENTS_OFFSET], template[_ARGUMENTS_OFFSET + arguments.size :]
    return lambda message: join((head, pack(*message.arguments), tail))


def _encode_text(field: str, text: str, room_bytes: int) -> bytes:
    raw = text.encode()
    if b"\0" in raw:
        raise LocalProtocolError(f"{field} {text!r} has a NUL in it")
    if len(raw) >= room_bytes:
        raise LocalProtocolError(
            f"{field} {text!r} is {len(raw)} bytes long; accepted: up to {room_bytes - 1}"
        )
    return raw


def _general_writer(row: MessageRow, dialect: Dialect) -> Writer:
    template = _template(row, dialect)
    names = [name for name in dialect.offsets if name in row.fields]
    fields = [(name, struct.Struct("<" + FIELD_CODES[name]), dialect.offsets[name]) for name in names]
    arguments = struct.Struct(f"<{len(row.arguments)}Q")
    fault_and_check = _CHECKS.get(row.type)

    def write(message: Message) -> bytes:
        if fault_and_check and (complaint := fault_and_check[1](message)):
            raise LocalProtocolError(f"{row.type.name}: {complaint}")
        frame = bytearray(template)
        arguments.pack_into(frame, _ARGUMENTS_OFFSET, *message.arguments)
        for name, packer, offset in fields:
            value = getattr(message, name)
            if name in TEXT_FIELDS:
                value = _encode_text(name, value, packer.size)
            packer.pack_into(frame, offset, value)
        return bytes(frame)

    return write


def _writer(row: MessageRow, dialect: Dialect) -> Writer:
    if row.fields:
        return _general_writer(row, dialect)
    if row.arguments:
        return _arguments_writer(row, dialect)
    constant = _template(row, dialect)
    return lambda _message: constant


def _writers(dialect: Dialect) -> dict[MessageType, Writer]:
    return {
        row.type: _writer(row, dialect) for row in MESSAGES.values() if row.since_version <= dialect.version
    }


_WRITERS: Final = {dialect.name: _writers(dialect) for dialect in DIALECTS}


def encode(message: Message, dialect: Dialect) -> bytes:
    """The frame that says ``message`` to a peer that speaks ``dialect``.

    Fields that mean nothing in this message, or that the dialect has no place for, are not sent.
    """
    writer = _WRITERS[dialect.name].get(message.type)
    if writer is None:
        raise LocalProtocolError(f"a peer that speaks {dialect.name} does not know {message.type.name}")
    try:
        return writer(message)
    except struct.error as error:
        raise LocalProtocolError(f"{message.type.name} cannot be sent as {message!r}: {error}") from None
