"""A session and the daemon's end of its connection, in virtual time."""

from __future__ import annotations

from nvshare.client.session import Session
from nvshare.wire.codec import Decoder, encode, format_client_id
from nvshare.wire.dialects import V3
from nvshare.wire.messages import Message, MessageType

T = MessageType


class Talk:
    """A session and the daemon's end of its connection."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.session = Session("GPU-x", "pod", "default", 1, self.now_ns)
        self._decoder = Decoder(V3)

    def connect(self) -> None:
        self._decoder = Decoder(V3)
        self.session.connected(self.now_ns)

    def said(self) -> list[Message]:
        messages = self._decoder.feed(bytes(self.session.output))
        self.session.output.clear()
        return messages

    def kinds(self) -> list[MessageType]:
        return [message.type for message in self.said()]

    def tell(self, kind: MessageType, *arguments: int, **fields: object) -> None:
        message = Message(kind, arguments=arguments, **fields)  # type: ignore[arg-type]
        self.session.received(encode(message, V3), self.now_ns)

    def register(self) -> None:
        self.connect()
        assert self.kinds() == [T.REGISTER]
        self.tell(T.SCHED_ON, data=format_client_id(7), core_limit_percent=30)
        self.tell(T.KEEP_ALIVE, 0, 99)

    def pass_time(self, duration_ns: int) -> None:
        self.now_ns += duration_ns
        self.session.tick(self.now_ns)

    def hold(self) -> None:
        self.session.wait(self.now_ns)
        assert self.kinds() == [T.REQ_LOCK]
        assert not self.session.turns.enter(self.now_ns)
        self.tell(T.LOCK_OK)
        assert self.session.turns.enter(self.now_ns)
