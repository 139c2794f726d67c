"""A client's side of the protocol, without sockets, threads or clocks.

1. The caller reports events and their time. The session says what to send (``output``), whether a block may
   run, and when it wants to be called again (``deadline_ns``).
2. When the daemon is gone, or silent for 10 s, blocks that wait run ungated, and requests for memory are
   decided by the last known limits. A late answer changes nothing any more. When the daemon announces its
   end, blocks that wait run on at once.
3. After a lost connection the session resumes. If the daemon does not know it any more, it registers afresh.
4. A client that is refused for want of room asks again. If its pod has a quota or a memory limit, which all
   of its processes share, it waits for room, both at the gate and for memory; otherwise it runs ungated
   meanwhile. It also asks again, and waits, while its pod's limits are not known to a daemon that insists on
   them. Any other refusal is final.
"""

from __future__ import annotations

from typing import Final

from nvshare.client.gpu_turns import NEVER_NS, GpuTurns
from nvshare.client.link import ASKED_AGAIN, Link, Phase
from nvshare.client.memory_account import MemoryAccount, MemoryRequest
from nvshare.wire.codec import Decoder, encode
from nvshare.wire.dialects import V3
from nvshare.wire.faults import RemoteProtocolError
from nvshare.wire.messages import Message, MessageType

KEEP_ALIVE_NS: Final = 3_000_000_000
SILENCE_NS: Final = 10_000_000_000
_T = MessageType


class Session:
    def __init__(
        self, gpu: str, pod: str, namespace: str, pid: int, now_ns: int, oversubscribes: bool = False
    ) -> None:
        self.gpu, self.pod, self.namespace, self.pid = gpu, pod, namespace, pid
        self.link = Link()
        self.turns = GpuTurns(self.link, now_ns)
        self.memory = MemoryAccount(self.link, oversubscribes)
        self.client_id = 0
        self.epoch = 0
        self.others_wait = False
        self.resumes = 0
        self.registrations = 0
        self._decoder = Decoder(V3)
        self._silent_since_ns = now_ns
        self._alive_ns = now_ns
        self._alive_seq = 0

    @property
    def phase(self) -> Phase:
        return self.link.phase

    @property
    def output(self) -> bytearray:
        return self.link.output

    @property
    def refusal(self) -> str:
        return self.link.refusal

    @property
    def core_percent(self) -> int:
        return self.link.core_percent

    # ---- the connection ----------------------------------------------------------------------

    def connected(self, now_ns: int) -> None:
        self.memory.tried = True
        self._decoder = Decoder(V3)
        self.output.clear()
        self._alive_ns = now_ns
        self.turns.connected()
        if self.phase is Phase.CROWDED:
            self._silent_since_ns = now_ns  # it was not asked meanwhile
        if self.client_id and self.epoch:
            self._send_resume(now_ns)
        else:
            self._send_register()

    def disconnected(self, now_ns: int) -> None:
        self.output.clear()
        if self.phase is Phase.READY:
            self._silent_since_ns = now_ns
        if self.phase not in (Phase.REFUSED, Phase.CROWDED):
            self.link.phase = Phase.AWAY

    def unreachable(self, now_ns: int) -> None:
        """No daemon accepts connections; the one that had no room is gone as well."""
        if not self.memory.tried:
            self.memory.tried = True
            self.memory.answer_alone()
        if self.phase is Phase.CROWDED:
            self.link.phase = Phase.AWAY
            self._silent_since_ns = now_ns

    def _send_register(self) -> None:
        self.link.phase = Phase.REGISTERING
        self.link.send(
            _T.REGISTER, pod_name=self.pod, pod_namespace=self.namespace, gpu_uuid=self.gpu, host_pid=self.pid
        )

    def _send_resume(self, now_ns: int) -> None:
        self.link.phase = Phase.RESUMING
        held_ns, busy_ns, request_seq = self.turns.resuming(now_ns)
        used_bytes, reserve_seq, reserve_bytes = self.memory.resuming()
        reserve = (reserve_seq, reserve_bytes)
        figures = (self.epoch, held_ns, busy_ns, used_bytes, request_seq, *reserve, busy_ns)
        self.link.output += encode(Message(_T.RESUME, id=self.client_id, arguments=figures), V3)

    def received(self, data: bytes, now_ns: int) -> None:
        """Raises RemoteProtocolError if no daemon of ours sent this; the connection is then of no use."""
        messages: list[Message] | tuple[Message, ...]
        fault: RemoteProtocolError | None = None
        try:
            messages = self._decoder.feed(data)
        except RemoteProtocolError as error:
            messages, fault = error.messages_before, error
        if messages:
            self._silent_since_ns = now_ns
            self.link.ungated = self.link.daemon_ended = False
        for message in messages:
            self._receive(message, now_ns)
        if fault is not None:
            raise fault

    def _receive(self, message: Message, now_ns: int) -> None:
        kind = message.type
        if kind is _T.LOCK_OK:
            self.turns.granted(now_ns)
        elif kind is _T.DROP_LOCK:
            self.turns.dropped(now_ns)
        elif kind is _T.HINTS:
            self.others_wait = bool(message.arguments[0])
        elif kind in (_T.SCHED_ON, _T.SCHED_OFF):
            self._set_scheduling(kind is _T.SCHED_ON, message)
        elif kind is _T.KEEP_ALIVE:
            self.epoch = message.arguments[1]
        elif kind is _T.RESUMED:
            self.client_id, (self.epoch,) = message.id, message.arguments
            self.resumes += 1
            self._resumed(now_ns)
        elif kind is _T.REFUSED:
            self._refused(message)
        elif kind is _T.UPDATE_CORE_LIMIT:
            self.link.core_percent = message.core_limit_percent
        elif kind is _T.ENDING:
            self.link.daemon_ended = True
        else:
            self.memory.receive(message)

    def _resumed(self, now_ns: int) -> None:
        self.memory.resumed()
        self._ready()
        self.turns.resumed(now_ns)

    def _ready(self) -> None:
        self.link.phase = Phase.READY
        self.turns.request_if_waiting()
        self.memory.ask_next()

    def _set_scheduling(self, on: bool, message: Message) -> None:
        self.link.scheduling_on = on
        if self.phase is Phase.REGISTERING and message.data:
            self.client_id = int(message.data, 16)
            self.link.core_percent = message.core_limit_percent or 100
            self.registrations += 1
            self.link.refusal = ""
            self.turns.registered()
            self.memory.registered()
            self._ready()
        if not on:
            self.turns.release()
        elif self.phase is Phase.READY:
            self.turns.request_if_waiting()

    def _refused(self, message: Message) -> None:
        link = self.link
        if link.phase is Phase.RESUMING:
            self.client_id = self.epoch = 0
            self.turns.forget()
            self.memory.forget()
            self._send_register()
            return
        link.refusal = message.data
        link.phase = Phase.CROWDED if message.data in ASKED_AGAIN else Phase.REFUSED
        link.memory_limit_bytes = message.memory_limit_bytes or link.memory_limit_bytes
        link.core_percent = message.core_limit_percent or link.core_percent
        self.memory.refused()

    # ---- blocks and memory -------------------------------------------------------------------

    def wait(self, now_ns: int) -> None:
        """A block comes to the gate. ``turns.enter`` lets it pass, ``turns.give_up`` takes it back."""
        self._begin_to_wait(now_ns)
        self.turns.wait()

    def ask(self, asked_bytes: int, now_ns: int) -> MemoryRequest:
        """May this much more be allocated? The answer is there at once, or comes later."""
        request = MemoryRequest(asked_bytes)
        if not self.memory.decide_alone(request):
            self._begin_to_wait(now_ns)
            self.memory.ask(request)
        return request

    # ---- time --------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        """Do what is due."""
        self.turns.tick(now_ns)
        if self._suspects_silence() and now_ns - self._silent_since_ns >= SILENCE_NS:
            self.link.ungated = True
            if self.memory.awaits_answer:
                self.memory.answer_alone()
        if self._awaits_answer() and self.link.is_ready and now_ns - self._alive_ns >= KEEP_ALIVE_NS:
            self._alive_ns = now_ns
            self._alive_seq += 1
            self.link.send_numbers(_T.KEEP_ALIVE, self._alive_seq, 0)

    def deadline_ns(self) -> int | None:
        """When ``tick`` has something to do."""
        deadlines = [self.turns.deadline_ns()]
        if self._suspects_silence():
            deadlines.append(self._silent_since_ns + SILENCE_NS)
        if self._awaits_answer() and self.link.is_ready:
            deadlines.append(self._alive_ns + KEEP_ALIVE_NS)
        deadline_ns = min(deadlines)
        return deadline_ns if deadline_ns < NEVER_NS else None

    def _awaits_answer(self) -> bool:
        """A block or a request for memory waits for the daemon."""
        return self.turns.waiting > 0 or self.memory.awaits_answer

    def _suspects_silence(self) -> bool:
        """A daemon that has no room is not silent: it has answered."""
        return self._awaits_answer() and not self.link.ungated and self.phase is not Phase.CROWDED

    def _begin_to_wait(self, now_ns: int) -> None:
        """Silence counts from the first question: a daemon that was not asked is not silent."""
        if self.phase not in (Phase.AWAY, Phase.CROWDED, Phase.REFUSED) and not self._awaits_answer():
            self._silent_since_ns = now_ns
            self._alive_ns = now_ns
