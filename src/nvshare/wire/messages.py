"""Every message there is, one row each.

1. A row says who sends a message, since which protocol version it exists, and which fields mean something.
2. A field that means nothing in a message is sent as zero and never read. So what a peer left in it does
   no harm, and the messages sent most often cost the least.
3. Numbers 1 to 14 are those of the programs that exist in the field. Ours start at 32; they keep the frame
   of version 2 and put up to eight unsigned 64-bit arguments where the pod's name stood.
4. A process has one connection for each GPU it uses, and the connection is the identity. So a client's id
   means something in RESUME and in what the daemon tells; elsewhere nobody reads what a client writes there,
   and nobody ever did. Where a message has a fixed id, peers are recognised by it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

# What a first message has as its id: older programs are recognised by it, so every version keeps writing it.
REGISTER_ID: Final = 1234
OPERATOR_ID: Final = 0xBEEF

FIRST_OWN_TYPE: Final = 32
ARGUMENTS_MAX: Final = 8
QUANTUM_MAX_SEC: Final = 86_400
LIMIT_SOURCES: Final = ("none", "ctl", "user", "run", "annotation", "env", "default", "ceiling")
"""Who set a limit, as TERMS numbers it."""


class MessageType(enum.IntEnum):
    """The first byte of a frame."""

    REGISTER = 1
    SCHED_ON = 2
    SCHED_OFF = 3
    REQ_LOCK = 4
    LOCK_OK = 5
    DROP_LOCK = 6
    LOCK_RELEASED = 7
    SET_TQ = 8
    MEM_UPDATE = 9
    WAIT_FOR_MEM = 10
    MEM_AVAILABLE = 11
    PREPARE_SWAP_OUT = 12
    UPDATE_LIMIT = 13
    UPDATE_CORE_LIMIT = 14
    RESUME = 32
    RESUMED = 33
    REFUSED = 34
    TURN_ENDED = 35
    BUSY = 36
    MEM_RESERVE = 37
    MEM_RESERVED = 38
    MEM_REFUSED = 39
    MEM_USED = 40
    LEASE = 41
    LEASE_RECALL = 42
    LEASE_RETURNED = 43
    HINTS = 44
    KEEP_ALIVE = 45
    ENDING = 46
    TERMS = 47


class Sender(enum.Flag):
    """Who may send a message."""

    CLIENT = enum.auto()
    DAEMON = enum.auto()
    OPERATOR = enum.auto()


class Message(NamedTuple):
    """One message, whatever frame carried it. A tuple, because one is made for every frame read."""

    type: MessageType
    id: int = 0
    arguments: tuple[int, ...] = ()
    memory_usage_bytes: int = 0
    memory_limit_bytes: int = 0
    core_limit_percent: int = 0
    host_pid: int = 0
    pod_name: str = ""
    pod_namespace: str = ""
    gpu_uuid: str = ""
    data: str = ""

    def named_arguments(self) -> dict[str, int]:
        """The arguments by the names of the table, for logs and for people."""
        return dict(zip(MESSAGES[self.type].arguments, self.arguments, strict=True))


class MessageRow(NamedTuple):
    """What is known about one message type."""

    type: MessageType
    senders: Sender
    since_version: int
    fields: tuple[str, ...]
    meaning: str
    arguments: tuple[str, ...] = ()
    fixed_id: int = 0


_CLIENT, _DAEMON, _OPERATOR = Sender.CLIENT, Sender.DAEMON, Sender.OPERATOR
_T = MessageType

_ROWS: Final = (
    MessageRow(
        _T.REGISTER,
        _CLIENT,
        1,
        ("pod_name", "pod_namespace", "gpu_uuid", "memory_limit_bytes", "host_pid"),
        "first message of a client; host_pid is the client's own view of its pid, memory_limit_bytes the"
        " limit its environment states (0: none; read from version 3 on)",
        fixed_id=REGISTER_ID,
    ),
    MessageRow(
        _T.SCHED_ON,
        _DAEMON | _OPERATOR,
        1,
        ("data", "core_limit_percent"),
        "answer to REGISTER with the client's id as 16 hex digits in data; with empty data: scheduling is"
        " switched on, sent to every client or asked by an operator",
        fixed_id=OPERATOR_ID,
    ),
    MessageRow(
        _T.SCHED_OFF,
        _DAEMON | _OPERATOR,
        1,
        ("data", "core_limit_percent"),
        "the same while scheduling is off: everybody runs ungated",
        fixed_id=OPERATOR_ID,
    ),
    MessageRow(_T.REQ_LOCK, _CLIENT, 1, (), "wants to use the GPU"),
    MessageRow(_T.LOCK_OK, _DAEMON, 1, (), "may use the GPU from now on"),
    MessageRow(
        _T.DROP_LOCK,
        _DAEMON,
        1,
        (),
        "must stop launching, drain, and answer LOCK_RELEASED or TURN_ENDED; who has let go already does not"
        " answer. Before version 3 it also comes before SCHED_OFF and SCHED_ON",
    ),
    MessageRow(_T.LOCK_RELEASED, _CLIENT, 1, (), "has drained, or has nothing to do"),
    MessageRow(
        _T.SET_TQ,
        _OPERATOR,
        1,
        ("data",),
        f"slice of memory-exclusive turns until restart: whole seconds, 1 to {QUANTUM_MAX_SEC}, as decimal"
        " text in data",
        fixed_id=OPERATOR_ID,
    ),
    MessageRow(_T.MEM_UPDATE, _CLIENT, 2, ("memory_usage_bytes",), "what the process has allocated now"),
    MessageRow(
        _T.WAIT_FOR_MEM, _DAEMON, 2, (), "the request waits because memory does not suffice; for the log"
    ),
    MessageRow(_T.MEM_AVAILABLE, _DAEMON, 2, (), "the request waits no longer, LOCK_OK follows; for the log"),
    MessageRow(
        _T.PREPARE_SWAP_OUT, _DAEMON, 2, (), "move allocations to host memory; kept for old peers, never sent"
    ),
    MessageRow(
        _T.UPDATE_LIMIT, _DAEMON, 2, ("id", "memory_limit_bytes"), "memory limit from now on; 0 means none"
    ),
    MessageRow(
        _T.UPDATE_CORE_LIMIT, _DAEMON, 2, ("id", "core_limit_percent"), "compute quota from now on, 1 to 100"
    ),
    MessageRow(
        _T.RESUME,
        _CLIENT,
        3,
        ("gpu_uuid", "id"),
        "first message after a lost connection, instead of REGISTER; id is the former client id. held_ns 0:"
        " holds nothing; request_seq 0: no lock asked for, else how many REQ_LOCK it has sent; reserve_seq 0:"
        " no reservation unanswered. From here to the answer no allocation is decided by the old lease",
        (
            "epoch",
            "held_ns",
            "busy_ns",
            "allocated_bytes",
            "request_seq",
            "reserve_seq",
            "reserve_bytes",
            "worked_ns",
        ),
    ),
    MessageRow(
        _T.RESUMED,
        _DAEMON,
        3,
        ("id",),
        "RESUME is honoured: id is valid now, epoch is the daemon's. Any lease is void; a new one follows"
        " as LEASE. What was allocated or freed since RESUME is reported by MEM_USED",
        ("epoch",),
    ),
    MessageRow(
        _T.REFUSED,
        _DAEMON,
        3,
        ("data", "memory_limit_bytes", "core_limit_percent"),
        "negative answer to REGISTER (the connection ends) or RESUME (REGISTER may follow); data is one"
        " reason word; the limits are those of the peer's pod, 0 where they are not known or there are none",
    ),
    MessageRow(
        _T.TURN_ENDED,
        _CLIENT,
        3,
        (),
        "LOCK_RELEASED with the bill: busy time since registration, gaps under 2 ms included; time since the"
        " last completion; longest kernel seen lately; again 1 wants the lock at once and saves a REQ_LOCK;"
        " grant is one more than the LOCK_OK read on this connection, so that a release never ends a grant it"
        " has crossed (0: unknown); worked_ns is for how long it has had work on the GPU since registration",
        ("busy_ns", "idle_ns", "kernel_ns", "again", "grant", "worked_ns"),
    ),
    MessageRow(
        _T.BUSY,
        _CLIENT,
        3,
        (),
        "the same while it goes on: busy time, time since the last completion (0: holds and works), time with"
        " work on the GPU, and when that was: a bit for each half millisecond of the monotonic clock, 256 of"
        " them before the one numbered slots_end, the latest in the highest bit of slots_3; all 0: unknown."
        " Sent when a gap of 2 ms begins or ends while holding, and ten times a second",
        ("busy_ns", "idle_ns", "worked_ns", "slots_end", "slots_0", "slots_1", "slots_2", "slots_3"),
    ),
    MessageRow(
        _T.MEM_RESERVE,
        _CLIENT,
        3,
        (),
        "may it allocate this much more? Nothing more: how much its pod has",
        ("seq", "asked_bytes"),
    ),
    MessageRow(
        _T.MEM_RESERVED,
        _DAEMON,
        3,
        (),
        "it may; the bytes count from now on, and among what its pod uses",
        ("seq", "granted_bytes", "used_bytes"),
    ),
    MessageRow(
        _T.MEM_REFUSED,
        _DAEMON,
        3,
        (),
        "it may not, and why",
        ("seq", "limit_bytes", "used_bytes", "asked_bytes"),
    ),
    MessageRow(
        _T.MEM_USED,
        _CLIENT,
        3,
        (),
        "all that the process has allocated, and the last reservation answer contained in it",
        ("used_bytes", "seq"),
    ),
    MessageRow(
        _T.LEASE,
        _DAEMON,
        3,
        (),
        "decide allocations locally up to lease_bytes; unlimited 1 means there is no limit and"
        " lease_bytes is 0",
        ("generation", "lease_bytes", "unlimited"),
    ),
    MessageRow(
        _T.LEASE_RECALL, _DAEMON, 3, (), "stop deciding locally, answer LEASE_RETURNED", ("generation",)
    ),
    MessageRow(
        _T.LEASE_RETURNED,
        _CLIENT,
        3,
        (),
        "the lease is over with this much allocated; each allocation asks from now on",
        ("generation", "used_bytes"),
    ),
    MessageRow(
        _T.HINTS,
        _DAEMON,
        3,
        (),
        "others_wait: somebody wants this GPU; limited_present: a tenant with a quota is there, or one that"
        " waits for memory, so keep queues short; shallow: keep at most one kernel or 1 ms in flight",
        ("others_wait", "limited_present", "shallow"),
    ),
    MessageRow(
        _T.KEEP_ALIVE,
        _CLIENT | _DAEMON,
        3,
        (),
        "I live; the daemon's first one follows its answer to REGISTER and tells the epoch that RESUME needs",
        ("seq", "epoch"),
    ),
    MessageRow(
        _T.ENDING,
        _DAEMON,
        3,
        (),
        "the daemon ends of its own will, the connection next: who waits for the GPU runs on at once, within"
        " the limits it last received, until a daemon answers it again",
    ),
    MessageRow(
        _T.TERMS,
        _DAEMON,
        3,
        (),
        "who set the pod's limits, for messages to people: "
        + ", ".join(f"{number} {source}" for number, source in enumerate(LIMIT_SOURCES))
        + "; how much memory the GPU has (0: not known). Behind the answer to REGISTER and RESUME, and when"
        " it changes",
        ("memory_source", "core_source", "card_bytes"),
    ),
)

MESSAGES: Final[Mapping[MessageType, MessageRow]] = MappingProxyType({row.type: row for row in _ROWS})
