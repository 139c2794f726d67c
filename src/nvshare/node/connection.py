"""One client's connection: bytes to events, effects to bytes.

1. The life cycle's table decides what a peer may send.
2. A peer that does not read is ended when more than the bound waits for it. No other client notices.
3. A connection that is being ended sends nothing more. The core learns of it in the loop's next round:
   ``deliver`` never calls back into the core.
4. A connection is read when it is its owner's turn: see ``fair_queue``.
5. A connection that begins with an HTTP request is a user's. It is handed over and not read here any more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from nvshare.core import events
from nvshare.core.effects import (
    Drop,
    Effect,
    Grant,
    Greet,
    Refused,
    SendCoreLimit,
    SendMemoryLimit,
    SendScheduling,
    Unresponsive,
)
from nvshare.core.limit_sources import PodLimits
from nvshare.node.bounds import FIGURE_MAX
from nvshare.node.buffered_socket import BufferedSocket
from nvshare.node.effect_frames import ENCODERS, FRAMES
from nvshare.node.fair_queue import Owner
from nvshare.node.http_detection import begins_request
from nvshare.pods.peer import Peer
from nvshare.wire.codec import Decoder, encode, format_client_id
from nvshare.wire.dialects import V3, Dialect
from nvshare.wire.faults import RemoteProtocolError
from nvshare.wire.lifecycle import REFUSALS, Refusal, State, receive, send
from nvshare.wire.messages import Message, MessageType

if TYPE_CHECKING:
    from nvshare.node.member import Member
    from nvshare.node.scheduler_node import SchedulerNode

_T = MessageType
_REGISTERED: Final = State.REGISTERED
_NEW: Final = State.NEW


class Connection:
    __slots__ = (
        "_corked",
        "_corked_frames",
        "_decoder",
        "_dispatcher",
        "_encoders",
        "_frames",
        "_read_bytes",
        "client",
        "dialect",
        "ended_by",
        "handshake",
        "node",
        "owner",
        "peer",
        "pidfd",
        "refusal",
        "released",
        "requested",
        "state",
        "stream",
    )

    def __init__(
        self, node: SchedulerNode, connected: socket.socket, peer: Peer, pidfd: int, refusal: str = ""
    ) -> None:
        self.node = node
        self.peer = peer
        self.pidfd = pidfd  # ours until a member takes it over
        self.refusal = refusal  # why all its requests are refused
        self.state = State.NEW
        self.owner: Owner | None = None  # None: not read yet, or closed
        self.become(0)
        self.dialect: Dialect = V3
        self.ended_by = "ended"  # a key of DISCONNECTS
        self.handshake: asyncio.TimerHandle | None = None
        self._dispatcher = node.dispatcher
        self._read_bytes = node.bounds.read_bytes
        self._decoder = Decoder()
        self.stream = BufferedSocket(node.dispatcher.loop, connected)
        self._frames: dict[type[Any], bytes] = {}
        self._encoders: dict[type[Any], Callable[[Any], bytes]] = {}
        self._corked = False  # frames are held back, and sent as one in the loop's next round
        self._corked_frames = b""

    def become(self, client: int, pod: str = "") -> None:
        """Registered under this id; its two commonest events are made once."""
        if self.owner is not None:
            self.owner.enter_pod(self, pod)
        self.client = client
        self.requested = events.LockRequested(client)
        self.released = events.LockReleased(client)

    # ---- reading -----------------------------------------------------------------------------

    def read(self) -> None:
        """Read once. A fault in the handling ends this connection alone."""
        if self.owner is None:
            return
        try:
            data = self.stream.recv(self._read_bytes)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            if not data:
                self.end()
            elif self.state is _NEW and not self._decoder.buffered_bytes and begins_request(data):
                self._hand_over(data)
            elif self.state is not State.CLOSED:
                self._receive(data)
        except Exception as error:
            self._dispatcher.note_bug(f"a message of client {self.client:016x}", error)
            self.abort()

    def _receive(self, data: bytes) -> None:
        dispatcher = self._dispatcher
        now_ns = dispatcher.clock()
        fault: RemoteProtocolError | None = None
        try:
            messages = self._decoder.feed(data)
        except RemoteProtocolError as error:
            messages, fault = list(error.messages_before), error
        received = dispatcher.counters.received
        for message in messages:
            kind: int = message[0]  # the message type; faster than by name
            received[kind] += 1
            event = self._event_of(kind, message) if self.state is _REGISTERED else None
            if event is not None:
                dispatcher.take(event, now_ns)
            else:
                self._handle(message)
                now_ns = dispatcher.clock()  # it may have fed the core itself
        dispatcher.arm(now_ns)
        if fault is not None and self.state is not State.CLOSED:
            self.node.admission.note_refused(self.peer, fault.reason, str(fault))
            self.ended_by = "protocol"
            self.abort()

    def end(self) -> None:
        """The connection has ended, whoever ended it; nothing is read or sent any more."""
        owner = self.owner
        if owner is None:
            return
        self.owner = None
        owner.remove(self)
        self.stream.close()
        for fault, count in self._decoder.ignored.items():
            self._dispatcher.counters.events[f"ignored_{fault}"] += count
        self.state = State.CLOSED
        self.node.admission.connection_ended(self)

    def _hand_over(self, data: bytes) -> None:
        """Rule 5."""
        owner, self.owner = self.owner, None
        if owner is None:
            return
        owner.remove(self)
        connected = self.stream.detach()
        self.state = State.CLOSED
        self.node.admission.connection_ended(self)
        self.node.admission.take_request(connected, self.peer, data)

    # ---- messages ----------------------------------------------------------------------------

    def _event_of(self, kind: int, message: Message) -> events.Event | None:
        """The event of a registered client's routine message; the commonest first."""
        if kind == _REQ_LOCK:
            return self.requested
        if kind in (_LOCK_RELEASED, _TURN_ENDED):
            if self.owner is not None:
                self.owner.let_go(self)
            if kind == _LOCK_RELEASED:
                return self.released
        event_of = _EVENT_OF[kind]
        return None if event_of is None else event_of(self.client, message)

    def _handle(self, message: Message) -> None:
        """All messages that are not routine."""
        state = receive(self.state, message.type)
        if isinstance(state, Refusal):
            if REFUSALS[state].fatal:
                if self.state is not State.CLOSED:
                    self.node.admission.note_refused(
                        self.peer, state, f"{message.type.name} while {self.state}"
                    )
                    self.ended_by = "protocol"
                    self.abort()
            else:
                self._dispatcher.counters.events[f"ignored_{state}"] += 1
            return
        self.state = state
        if self._decoder.dialect is not None:
            self.dialect = self._decoder.dialect
        if message.type is _T.REGISTER:
            self._use_dialect()
            self.node.registration.register(self, message)
        elif message.type is _T.RESUME:
            self._use_dialect()
            self.node.registration.resume(self, message)
        elif message.type is _T.KEEP_ALIVE:
            self.send(Message(_T.KEEP_ALIVE, arguments=(message.arguments[0], self.node.epoch)))
        else:
            self.node.admission.operate(self, message)

    def _use_dialect(self) -> None:
        self._frames = FRAMES[self.dialect.name]
        if self.dialect.version < V3.version:
            self._frames = {kind: frame for kind, frame in self._frames.items() if kind is not Grant}
            self._cork()
        self._encoders = ENCODERS[self.dialect.name]

    def deliver(self, effect: Effect) -> None:
        """Perform an effect of the core on this client."""
        if self.state is not _REGISTERED:
            self._answer(effect)
            return
        kind = type(effect)
        if self.owner is not None:
            if kind is Grant:
                self.owner.hold(self)
            elif kind is Drop:
                self.owner.drop(self)
        frame = self._frames.get(kind)
        if frame is not None:
            self._write(frame)
            return
        encoder = self._encoders.get(type(effect))
        if encoder is not None:
            if self._dispatcher.announcing:
                self._announce(effect)
            if isinstance(effect, SendScheduling) and self.dialect.version < V3.version:
                self._write(self._frames[Drop])  # its answer marks all later messages as new
            self._write(encoder(effect))
            if isinstance(effect, Refused):
                self.node.memory_refused(self.client, effect)
        elif isinstance(effect, Grant | Greet):
            self._cork()
            self._frames = FRAMES[self.dialect.name]
            self._write(self._frames[Grant])
            if isinstance(effect, Greet):
                self._write(self._frames[Drop])
        elif isinstance(effect, Unresponsive):  # for the daemon, not for the client
            self.node.terminations.unresponsive(effect.client)

    def _cork(self) -> None:
        """Hold frames back until the next round. An older client has to read the answer to its registration,
        or its first grant, together with a drop that may follow, before it launches anything.
        """
        if not self._corked:
            self._corked = True
            self._dispatcher.loop.call_soon(self._uncork)

    def _uncork(self) -> None:
        frames, self._corked_frames = self._corked_frames, b""
        self._corked = False
        if frames:
            self._send_frames(frames)

    def _answer(self, effect: Effect) -> None:
        """The first effect answers REGISTER or RESUME."""
        assert isinstance(effect, SendScheduling), effect
        if self.state is State.RESUMING:
            if self.send(Message(_T.RESUMED, id=self.client, arguments=(self.node.epoch,))):
                self.deliver(effect)
                self.send_terms()
        elif self.state is State.REGISTERING:
            kind = _T.SCHED_ON if effect.on else _T.SCHED_OFF
            percent = self.node.limits.of(self._member().pod).core_percent
            answer = Message(kind, data=format_client_id(self.client), core_limit_percent=percent)
            if self.send(answer) and self.dialect.version >= V3.version:
                self.send(Message(_T.KEEP_ALIVE, arguments=(0, self.node.epoch)))
                self.send_terms()

    def _member(self) -> Member:
        return self.node.members.registered[self.client]

    def _terms(self) -> tuple[int, ...]:
        member = self._member()
        return self.node.limits.terms(member.pod, member.gpu)

    def send_terms(self) -> None:
        """Who set its limits, and the memory of its GPU."""
        if self.state is _REGISTERED and self.dialect.version >= V3.version:
            self.send(Message(_T.TERMS, arguments=self._terms()))

    def announce_end(self) -> None:
        """The daemon ends, so no client should wait for it."""
        if self.state is _REGISTERED and self.dialect.version >= V3.version:
            self.send(Message(_T.ENDING))

    def send(self, message: Message) -> bool:
        """False if nothing more can be sent: that was the last message, or the peer is gone."""
        self.state = send(self.state, message.type)
        self._write(encode(message, self.dialect))
        return self.state is not State.CLOSED

    def refuse(self, reason: str, limits: PodLimits) -> None:
        """A refusal, with the limits of its pod. Older peers know no such message; their connection ends."""
        if self.dialect.version < V3.version:
            self.state = State.CLOSED
        else:
            memory_bytes, percent = limits.memory_bytes, limits.core_percent
            terms = Message(_T.REFUSED, memory_limit_bytes=memory_bytes, core_limit_percent=percent)
            self.send(terms._replace(data=reason[:19]))
        if self.state is State.CLOSED:
            self.stream.finish(self._end_soon)

    def _write(self, frame: bytes) -> None:
        if self.owner is None:
            return
        self._dispatcher.counters.sent[frame[0]] += 1
        if self._corked:
            self._corked_frames += frame
        else:
            self._send_frames(frame)

    def _send_frames(self, frame: bytes) -> None:
        if self.owner is None:
            return
        try:
            buffered_bytes = self.stream.send(frame)
        except OSError:
            self.abort()  # the peer is gone, or has missed a frame
            return
        if buffered_bytes > self.node.bounds.output_bytes:
            self._dispatcher.counters.events["output_overflow"] += 1
            self.ended_by = "overflow"
            self.abort()

    def _announce(self, effect: Effect) -> None:
        """Operators' tools look for these lines."""
        repeats, owner = self._dispatcher.repeats, self._dispatcher.announcing
        client = f"{effect[0]:016x}"
        if isinstance(effect, SendMemoryLimit):
            repeats.info("Sending UPDATE_LIMIT", owner, client=client, bytes=effect.limit_bytes)
        elif isinstance(effect, SendCoreLimit):
            repeats.info("Sending UPDATE_CORE_LIMIT", owner, client=client, percent=effect.percent)

    def abort(self) -> None:
        """End the connection: it sends nothing from now on. The rest follows in the loop's next round."""
        self.state = State.CLOSED
        if self._dispatcher.connections.get(self.client) is self:
            del self._dispatcher.connections[self.client]
        self._end_soon()

    def _end_soon(self) -> None:
        self._dispatcher.loop.call_soon(self.end)


def figure(reported: int) -> int:
    """A time or an amount that a client reports, within bounds."""
    return reported if reported <= FIGURE_MAX else FIGURE_MAX


def _turn_ended(client: int, arguments: tuple[int, ...]) -> events.LockReleased:
    busy_ns, _idle_ns, kernel_ns, again, grant, worked_ns = arguments
    return events.LockReleased(
        client, figure(busy_ns), figure(kernel_ns), bool(again), grant, figure(worked_ns)
    )


def _busy(client: int, arguments: tuple[int, ...]) -> events.BusyReported:
    busy_ns, idle_ns, worked_ns, slots_end, *words = arguments
    slots = words[0] | words[1] << 64 | words[2] << 128 | words[3] << 192
    return events.BusyReported(client, figure(busy_ns), figure(idle_ns), figure(worked_ns), slots_end, slots)


# The events of a registered client's messages, except the two that are made once.
_EVENTS: Final[dict[MessageType, Callable[[int, Message], events.Event]]] = {
    _T.TURN_ENDED: lambda client, m: _turn_ended(client, m.arguments),
    _T.BUSY: lambda client, m: _busy(client, m.arguments),
    _T.MEM_UPDATE: lambda client, m: events.MemoryUsed(client, figure(m.memory_usage_bytes)),
    _T.MEM_USED: lambda client, m: events.MemoryUsed(client, figure(m.arguments[0]), m.arguments[1]),
    _T.MEM_RESERVE: lambda client, m: events.MemoryRequested(client, m.arguments[0], m.arguments[1]),
    _T.LEASE_RETURNED: lambda client, m: events.LeaseReturned(client, m.arguments[0], figure(m.arguments[1])),
}
# By number: an enumeration's members are slow to hash and to compare.
_BY_NUMBER: Final = {int(kind): event_of for kind, event_of in _EVENTS.items()}
_EVENT_OF: Final = tuple(_BY_NUMBER.get(number) for number in range(256))
_REQ_LOCK: Final = int(_T.REQ_LOCK)
_LOCK_RELEASED: Final = int(_T.LOCK_RELEASED)
_TURN_ENDED: Final = int(_T.TURN_ENDED)
