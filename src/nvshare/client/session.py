"""A client's side of the protocol, without sockets, threads or clocks.

1. The caller tells what happens and when; the session says what to send (``output``), whether a block may
   run, and when it wants to be called again (``deadline_ns``).
2. A grant lasts over several blocks, until the daemon ends the turn. Between blocks the daemon is told after
   2 ms that nothing runs, so that it bills nothing and may give the GPU to somebody else. After a second
   without work the session gives it back by itself, and at once what nobody waits for any more.
3. When the daemon is gone or silent for 10 s, whoever waits runs ungated, within the last limits it was told;
   whoever waits for memory is answered by those limits. An answer that comes after all changes nothing more.
   When the daemon says that it ends, who waits for the GPU runs on at once.
   Without a daemon a quota is kept by resting after each block as long as that cost.
4. After a lost connection the session resumes; if the daemon does not know it any more, it registers afresh.
5. A lease is of one connection. While there is none the last one holds, and RESUME tells what was taken under
   it. From then on nothing is decided by it: who wants memory waits for the daemon's answer, which voids the
   lease; a new one is told behind it.
6. Who is refused for want of room asks again. If its pod has a quota or a memory limit, which all of its
   processes have together, it waits for room, at the gate and for memory; else it runs ungated meanwhile. Who
   is refused for another reason is done.
7. Nobody may have more than the GPU has, unless it is told to oversubscribe. Until the first attempt to reach
   the daemon has ended, requests for memory wait: the daemon may not even know the GPU.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

from nvshare.core.limits import SOURCE_WORDS
from nvshare.core.units import format_bytes
from nvshare.wire.codec import Decoder, encode
from nvshare.wire.dialects import V3
from nvshare.wire.faults import RemoteProtocolError
from nvshare.wire.messages import LIMIT_SOURCES, Message, MessageType

GAP_NS: Final = 2_000_000
IDLE_NS: Final = 1_000_000_000
KEEP_ALIVE_NS: Final = 3_000_000_000
TELL_EVERY_NS: Final = 200_000_000
_JUST_NOW: Final = (0, 0, 0, 0, 0)
"""No slots: its work was just before it is told."""
SILENCE_NS: Final = 10_000_000_000
_T = MessageType


class Phase(enum.StrEnum):
    AWAY = "away"
    REGISTERING = "registering"
    RESUMING = "resuming"
    READY = "ready"
    CROWDED = "crowded"
    REFUSED = "refused"


_UNANSWERED: Final = (Phase.REGISTERING, Phase.RESUMING)
CROWDED: Final = frozenset({"too_many_in_pod", "too_many_of_user", "too_many_pods", "too_many_clients"})
"""Refusals for want of room."""


class Asking:
    """One request for memory, until it is answered."""

    __slots__ = ("answer", "asked_bytes", "seq")

    def __init__(self, asked_bytes: int) -> None:
        self.asked_bytes = asked_bytes
        self.seq = 0
        self.answer: bool | None = None


class Session:
    def __init__(
        self, gpu: str, pod: str, namespace: str, pid: int, now_ns: int, oversubscribes: bool = False
    ) -> None:
        self.phase = Phase.AWAY
        self.gpu, self.pod, self.namespace, self.pid = gpu, pod, namespace, pid
        self.output = bytearray()
        self.refusal = ""
        self.client_id = 0
        self.epoch = 0
        self.scheduling_on = True
        self.core_percent = 100
        self.memory_limit_bytes = 0
        self.others_wait = False
        self.ungated = False
        self.daemon_ended = False  # it said so, and none has answered since
        self.grants = 0
        self.resumes = 0
        self.registrations = 0
        # the lock
        self.holds = False
        self.dropping = False
        self._wants = False
        self._waiting = 0  # blocks that stand at the gate
        self._inside = 0  # blocks that run
        self._request_seq = 0
        self._grants = 0  # LOCK_OK read on this connection: what ends is the hold of the last one
        self._held_since_ns = 0
        self._working_since_ns = 0
        self._idle_since_ns = now_ns
        self._told_idle = False
        self._busy_ns = 0
        self._told_ns = now_ns
        self._told_busy_ns = 0
        self._longest_ns = 0
        self._rest_until_ns = 0  # without a daemon
        # memory
        self.used_bytes = 0
        self.memory_source = LIMIT_SOURCES[0]  # who set the limit
        self.card_bytes = 0  # what the GPU has; 0: not known
        self.memory_refusal = ""  # why the last request that was refused was refused
        self._oversubscribes = oversubscribes
        self._tried = False  # the first attempt to reach the daemon has ended
        self._lease: tuple[int, int | None] | None = None  # generation, bytes (None: any)
        self._asking: deque[Asking] = deque()
        self._reserve_seq = 0
        self._answered_seq = 0
        self._told_used_bytes = 0  # by RESUME
        # the connection
        self._decoder = Decoder(V3)
        self._silent_since_ns = now_ns
        self._resumes_holding = False
        self._alive_ns = now_ns
        self._alive_seq = 0

    # ---- the connection ----------------------------------------------------------------------

    def connected(self, now_ns: int) -> None:
        self._tried = True
        self._decoder = Decoder(V3)
        self.output.clear()
        self._alive_ns = now_ns
        self._grants = 0
        if self.phase is Phase.CROWDED:
            self._silent_since_ns = now_ns  # it was not asked meanwhile
        if self.client_id and self.epoch:
            self.phase = Phase.RESUMING
            self._resumes_holding = self.holds
            self._send_resume(now_ns)
        else:
            self._send_register()

    def disconnected(self, now_ns: int) -> None:
        self.output.clear()
        if self.phase is Phase.READY:
            self._silent_since_ns = now_ns
        if self.phase not in (Phase.REFUSED, Phase.CROWDED):
            self.phase = Phase.AWAY

    def unreachable(self, now_ns: int) -> None:
        """Nobody takes connections: also of a daemon that had no room nothing is to be expected."""
        if not self._tried:
            self._tried = True
            self._answer_alone()
        if self.phase is Phase.CROWDED:
            self.phase = Phase.AWAY
            self._silent_since_ns = now_ns

    def _send_register(self) -> None:
        self.phase = Phase.REGISTERING
        self._say(
            _T.REGISTER, pod_name=self.pod, pod_namespace=self.namespace, gpu_uuid=self.gpu, host_pid=self.pid
        )

    def _send_resume(self, now_ns: int) -> None:
        held_ns = max(1, now_ns - self._held_since_ns) if self.holds else 0
        request_seq = self._request_seq if self._wants else 0
        asking = self._asking[0] if self._asking and self._asking[0].seq else None
        reserve = (asking.seq, asking.asked_bytes) if asking else (0, 0)
        self._told_used_bytes = self.used_bytes
        busy_ns = self.busy_ns(now_ns)
        figures = (self.epoch, held_ns, busy_ns, self.used_bytes, request_seq, *reserve, busy_ns)
        self.output += encode(Message(_T.RESUME, id=self.client_id, arguments=figures), V3)

    def received(self, data: bytes, now_ns: int) -> None:
        """Raises RemoteProtocolError if what comes is no daemon's; the connection is then of no use."""
        messages: list[Message] | tuple[Message, ...]
        fault: RemoteProtocolError | None = None
        try:
            messages = self._decoder.feed(data)
        except RemoteProtocolError as error:
            messages, fault = error.messages_before, error
        if messages:
            self._silent_since_ns = now_ns
            self.ungated = self.daemon_ended = False
        for message in messages:
            self._take(message, now_ns)
        if fault is not None:
            raise fault

    def _take(self, message: Message, now_ns: int) -> None:
        kind = message.type
        if kind is _T.LOCK_OK:
            self._granted(now_ns)
        elif kind is _T.DROP_LOCK:
            self._dropped(now_ns)
        elif kind is _T.HINTS:
            self.others_wait = bool(message.arguments[0])
        elif kind in (_T.SCHED_ON, _T.SCHED_OFF):
            self._scheduling(kind is _T.SCHED_ON, message)
        elif kind is _T.KEEP_ALIVE:
            self.epoch = message.arguments[1]
        elif kind is _T.RESUMED:
            self.client_id, (self.epoch,) = message.id, message.arguments
            self.resumes += 1
            self._resumed(now_ns)
        elif kind is _T.REFUSED:
            self._refused(message)
        elif kind is _T.UPDATE_CORE_LIMIT:
            self.core_percent = message.core_limit_percent
        elif kind is _T.ENDING:
            self.daemon_ended = True
        else:
            self._take_memory(message)

    def _resumed(self, now_ns: int) -> None:
        self._lease = None
        if self.used_bytes != self._told_used_bytes:
            self._say_numbers(_T.MEM_USED, self.used_bytes, self._answered_seq)  # before it asks for more
        self._ready()
        if self._resumes_holding and not self.holds:  # it ended while RESUME was on its way
            self.holds = True
            self._end_turn(now_ns)
        elif self._wants:  # perhaps since RESUME was sent; asking twice is asking once
            self._say(_T.REQ_LOCK)

    def _ready(self) -> None:
        self.phase = Phase.READY
        self._request_if_waiting()
        self._ask_next()

    def _scheduling(self, on: bool, message: Message) -> None:
        self.scheduling_on = on
        if self.phase is Phase.REGISTERING and message.data:
            self.client_id = int(message.data, 16)
            self.core_percent = message.core_limit_percent or 100
            self.registrations += 1
            self.refusal = ""
            self._wants = False
            if self.used_bytes:
                self._say_numbers(_T.MEM_USED, self.used_bytes, 0)
            self._ready()
        if not on:
            self.holds = self.dropping = self._wants = False
        elif self.phase is Phase.READY:
            self._request_if_waiting()

    def _refused(self, message: Message) -> None:
        if self.phase is not Phase.RESUMING:
            self.refusal = message.data
            self.phase = Phase.CROWDED if message.data in CROWDED else Phase.REFUSED
            self.memory_limit_bytes = message.memory_limit_bytes or self.memory_limit_bytes
            self.core_percent = message.core_limit_percent or self.core_percent
            waiting, self._asking = self._asking, deque()
            for asking in waiting:
                self._judge(asking)
            return
        self.client_id = self.epoch = 0
        self.holds = self.dropping = self._wants = False
        self._busy_ns = 0
        self._lease = None
        if self._asking:
            self._asking[0].seq = 0
        self._send_register()

    def is_limited(self) -> bool:
        return self.core_percent < 100 or self.memory_limit_bytes > 0

    def _is_let(self) -> bool:
        """There is no room for it, and nothing that it would have to share."""
        return self.refusal in CROWDED and self.phase is not Phase.REFUSED and not self.is_limited()

    def _judge(self, asking: Asking) -> None:
        """After a refusal: what fits into the limit waits until there is room to ask for it."""
        most_bytes = self.memory_limit_bytes
        if self.phase is Phase.REFUSED or (most_bytes and self.used_bytes + asking.asked_bytes > most_bytes):
            asking.answer = False
        elif self.is_limited():
            self._asking.append(asking)
        else:
            asking.answer = self._decide(asking.asked_bytes)

    # ---- the lock ----------------------------------------------------------------------------

    def wait(self, now_ns: int) -> None:
        """A block comes to the gate. ``enter`` tells whether it may pass, ``give_up`` takes it back."""
        self._expect_word(now_ns)
        self._waiting += 1
        self._request_if_waiting()

    def give_up(self) -> None:
        self._waiting -= 1

    def may_enter(self) -> bool:
        if self.ungated or self.daemon_ended or not self.scheduling_on or self._is_let():
            return True
        return self.holds and not self.dropping

    def rests(self, now_ns: int) -> bool:
        """It has used its quota, and nobody but itself keeps it to that."""
        return self._keeps_pace() and now_ns < self._rest_until_ns

    def _keeps_pace(self) -> bool:
        alone = self.ungated or self.daemon_ended or (self.holds and self.phase is not Phase.READY)
        return alone and self.core_percent < 100 and self.scheduling_on

    def enter(self, now_ns: int) -> bool:
        """Pass the gate if it is open."""
        if not self.may_enter() or self.rests(now_ns):
            self._request_if_waiting()
            return False
        self._waiting -= 1
        self._inside += 1
        if self._inside == 1:
            self._working_since_ns = now_ns
            if self._told_idle and self.holds and self.phase is Phase.READY:
                self._tell_busy(now_ns, 0)
            self._told_idle = False
        return True

    def leave(self, now_ns: int) -> None:
        self._inside -= 1
        if self._inside:
            return
        worked_ns = now_ns - self._working_since_ns
        self._busy_ns += worked_ns
        self._longest_ns = max(self._longest_ns, worked_ns)
        self._idle_since_ns = now_ns
        self._rest_until_ns = self._working_since_ns + worked_ns * 100 // self.core_percent
        if self.dropping:
            self._end_turn(now_ns)

    def busy_ns(self, now_ns: int) -> int:
        return self._busy_ns + (now_ns - self._working_since_ns if self._inside else 0)

    def _tell_busy(self, now_ns: int, idle_ns: int) -> None:
        """A block is all work: what is billed is GPU time, too."""
        busy_ns = self._told_busy_ns = self.busy_ns(now_ns)
        self._told_ns = now_ns
        self._say_numbers(_T.BUSY, busy_ns, idle_ns, busy_ns, *_JUST_NOW)

    def _tell_ns(self) -> int:
        """When the daemon is to hear how much the GPU has worked."""
        if self.phase is not Phase.READY or not self.holds:
            return 1 << 62
        if not self._inside and self._busy_ns == self._told_busy_ns:
            return 1 << 62
        return self._told_ns + TELL_EVERY_NS

    def _request_if_waiting(self) -> None:
        # While draining the end of the turn asks for the next one.
        if not self._waiting or self._wants or self.holds or not self.scheduling_on:
            return
        self._wants = True
        self._request_seq += 1
        if self.phase is Phase.READY:
            self._say(_T.REQ_LOCK)

    def _granted(self, now_ns: int) -> None:
        self._grants += 1
        if not self.holds:
            self.holds = True
            self._held_since_ns = now_ns
            self.grants += 1
        self.dropping = self._wants = False
        self._told_idle = False
        self._idle_since_ns = now_ns
        if not self._waiting and not self._inside:
            self._end_turn(now_ns)

    def _dropped(self, now_ns: int) -> None:
        if self.holds:
            self.dropping = True
            if not self._inside:
                self._end_turn(now_ns)

    def _end_turn(self, now_ns: int) -> None:
        self.holds = self.dropping = False
        self._wants = self._waiting > 0
        if self._wants:
            self._request_seq += 1
        if self.phase is Phase.READY:
            figures = (self._busy_ns, now_ns - self._idle_since_ns, self._longest_ns, int(self._wants))
            self._say_numbers(_T.TURN_ENDED, *figures, self._grants + 1, self._busy_ns)
            self._told_ns, self._told_busy_ns = now_ns, self._busy_ns
        self._longest_ns = 0

    # ---- memory ------------------------------------------------------------------------------

    def ask(self, asked_bytes: int, now_ns: int) -> Asking:
        """May this much more be allocated? The answer is there at once, or comes later."""
        asking = Asking(asked_bytes)
        if not self._fits_card(asked_bytes):
            asking.answer = False
        elif self.phase is Phase.CROWDED and not self.ungated:
            self._judge(asking)
        elif self._must_ask():
            self._expect_word(now_ns)
            self._asking.append(asking)
            self._ask_next()
        else:
            asking.answer = self._decide(asked_bytes)
            self._tell_used()
        return asking

    def _must_ask(self) -> bool:
        if self.ungated:
            return False
        if not self._tried:
            return True
        return self.phase in _UNANSWERED or (self.phase is Phase.READY and self._lease is None)

    def withdraw(self, asking: Asking) -> None:
        """Nobody waits for it any more: whatever the answer was or will be, it comes to nothing."""
        if asking.answer:
            self.free(asking.asked_bytes)
        asking.asked_bytes = 0

    def free(self, freed_bytes: int) -> None:
        self.used_bytes = max(0, self.used_bytes - freed_bytes)
        self._tell_used()

    def _decide(self, asked_bytes: int) -> bool:
        """By ourselves: under a lease, or by what was told last while the daemon is away."""
        most_bytes = self._lease[1] if self._lease else (self.memory_limit_bytes or None)
        if not self._fits_card(asked_bytes):
            return False
        if most_bytes is not None and self.used_bytes + asked_bytes > most_bytes:
            self._note_refused(asked_bytes, self.used_bytes, most_bytes)
            return False
        self.used_bytes += asked_bytes
        return True

    def _fits_card(self, asked_bytes: int) -> bool:
        """Rule 7."""
        card_bytes = self.card_bytes
        if not card_bytes or self._oversubscribes or self.used_bytes + asked_bytes <= card_bytes:
            return True
        self.memory_refusal = (
            f"{format_bytes(asked_bytes)} asked, {format_bytes(self.used_bytes)} used, and the GPU has"
            f" {format_bytes(card_bytes)}; NVSHARE_ENABLE_SINGLE_OVERSUB=1 permits more"
        )
        return False

    def _note_refused(self, asked_bytes: int, used_bytes: int, limit_bytes: int) -> None:
        origin = SOURCE_WORDS.get(self.memory_source, "")
        figures = [format_bytes(amount) for amount in (asked_bytes, used_bytes, limit_bytes)]
        self.memory_refusal = "{} asked, {} of {} used".format(*figures)
        if origin:
            self.memory_refusal += f"; the limit is {origin}"

    def _ask_next(self) -> None:
        if self._asking and not self._asking[0].seq and self.phase is Phase.READY:
            self._reserve_seq += 1
            self._asking[0].seq = self._reserve_seq
            self._say_numbers(_T.MEM_RESERVE, self._reserve_seq, self._asking[0].asked_bytes)

    def _tell_used(self) -> None:
        if self.phase is Phase.READY:
            self._say_numbers(_T.MEM_USED, self.used_bytes, self._answered_seq)

    def _take_memory(self, message: Message) -> None:
        kind = message.type
        if kind is _T.LEASE:
            generation, lease_bytes, unlimited = message.arguments
            self._lease = (generation, None if unlimited else lease_bytes)
            self.memory_limit_bytes = 0 if unlimited else lease_bytes
        elif kind is _T.LEASE_RECALL:
            self._lease = None
            self._say_numbers(_T.LEASE_RETURNED, message.arguments[0], self.used_bytes)
        elif kind is _T.UPDATE_LIMIT:
            self.memory_limit_bytes = message.memory_limit_bytes
        elif kind is _T.TERMS:
            source, _, self.card_bytes = message.arguments
            self.memory_source = LIMIT_SOURCES[source] if source < len(LIMIT_SOURCES) else LIMIT_SOURCES[0]
        elif kind is _T.MEM_RESERVED:
            self._answered(message.arguments[0], True)
        elif kind is _T.MEM_REFUSED:
            seq, limit_bytes, used_bytes, asked_bytes = message.arguments
            self._note_refused(asked_bytes, used_bytes, limit_bytes)
            self._answered(seq, False)

    def _answer_alone(self) -> None:
        """The daemon says nothing: everybody who waits for memory gets our own answer."""
        while self._asking:
            asking = self._asking.popleft()
            self._answered_seq = max(self._answered_seq, asking.seq)
            asking.answer = self._decide(asking.asked_bytes)
        self._tell_used()

    def _answered(self, seq: int, granted: bool) -> None:
        if not self._asking or self._asking[0].seq != seq:
            if granted and seq <= self._answered_seq:
                self._tell_used()  # it was decided without the daemon, whose reservation this report covers
            return
        asking = self._asking.popleft()
        self._answered_seq = seq
        granted = granted and self._fits_card(asking.asked_bytes)  # which may not have been known before
        if granted:
            self.used_bytes += asking.asked_bytes
        elif self._lease is not None:  # leased while it was asked: the lease itself had left no room
            granted = self._decide(asking.asked_bytes)
        asking.answer = granted
        self._tell_used()
        self._ask_next()

    # ---- time --------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        """Do what is due."""
        if self._gap_ns() <= now_ns:
            if self._told_idle:
                self._end_turn(now_ns)
            else:
                self._told_idle = True
                self._tell_busy(now_ns, now_ns - self._idle_since_ns)
        if self._tell_ns() <= now_ns:
            self._tell_busy(now_ns, 0 if self._inside else max(1, now_ns - self._idle_since_ns))
        if self._awaits_word() and now_ns - self._silent_since_ns >= SILENCE_NS:
            self.ungated = True
            if self._asking:
                self._answer_alone()
        if self._expects() and self.phase is Phase.READY and now_ns - self._alive_ns >= KEEP_ALIVE_NS:
            self._alive_ns = now_ns
            self._alive_seq += 1
            self._say_numbers(_T.KEEP_ALIVE, self._alive_seq, 0)

    def deadline_ns(self) -> int | None:
        """When ``tick`` has something to do."""
        deadlines = []
        if self._gap_ns() < 1 << 62:
            deadlines.append(self._gap_ns())
        if self._tell_ns() < 1 << 62:
            deadlines.append(self._tell_ns())
        if self._awaits_word():
            deadlines.append(self._silent_since_ns + SILENCE_NS)
        if self._waiting and self._keeps_pace():
            deadlines.append(self._rest_until_ns)
        if self._expects() and self.phase is Phase.READY:
            deadlines.append(self._alive_ns + KEEP_ALIVE_NS)
        return min(deadlines, default=None)

    def _expects(self) -> bool:
        """Somebody waits for a word of the daemon."""
        return self._waiting > 0 or bool(self._asking)

    def _awaits_word(self) -> bool:
        """Not from a daemon that has no room: it has spoken."""
        return self._expects() and not self.ungated and self.phase is not Phase.CROWDED

    def _expect_word(self, now_ns: int) -> None:
        """From now on somebody waits for one: a daemon that was not asked is not silent."""
        if self.phase not in (Phase.AWAY, Phase.CROWDED, Phase.REFUSED) and not self._expects():
            self._silent_since_ns = now_ns
            self._alive_ns = now_ns

    def _gap_ns(self) -> int:
        """When the next is due of telling that nothing runs, and giving the GPU back."""
        if not self.holds or self.dropping or self._inside or self.phase is not Phase.READY:
            return 1 << 62
        return self._idle_since_ns + (IDLE_NS if self._told_idle else GAP_NS)

    # ---- sending -----------------------------------------------------------------------------

    def _say(self, kind: MessageType, **fields: str | int) -> None:
        self.output += encode(Message(kind, **fields), V3)  # type: ignore[arg-type]

    def _say_numbers(self, kind: MessageType, *arguments: int) -> None:
        self.output += encode(Message(kind, arguments=arguments), V3)
