"""What the outside tells the core. Each event is a plain value; the time comes beside it."""

from __future__ import annotations

from typing import NamedTuple

from nvshare.core.settings import Settings
from nvshare.core.view.snapshot import Checkpoint


class GpuSeen(NamedTuple):
    """A GPU exists, or its memory size became known. Keys are canonical UUIDs."""

    gpu: str
    total_bytes: int
    number: int = 0


class GpuSampled(NamedTuple):
    """NVML's word on how much memory of a GPU is in use by anybody at all.

    ``paged_out_bytes`` of what clients have allocated are not among it: they are not on the GPU.
    """

    gpu: str
    used_bytes: int
    paged_out_bytes: int = 0


class WorkSampled(NamedTuple):
    """NVML's word on how long a GPU worked for some clients, from its last word on them to a moment.

    ``complete`` unless NVML was asked so late that its samples cover only part of that time: the figures are
    then an estimate that no bill is compared with.
    """

    gpu: str
    at_ns: int
    clients: tuple[tuple[int, int], ...]
    complete: bool = True


class ClientRegistered(NamedTuple):
    """A process uses a GPU on behalf of a pod. A process on two GPUs is two clients.

    ``owner`` is whoever may start as many pods or processes as it likes (a user, by uid); "": the pod.
    """

    client: int
    pod: str
    gpu: str
    version: int = 3
    owner: str = ""


class ClientResumed(NamedTuple):
    """A process comes back on a new connection, with what it still has.

    ``former`` is the id it had: of a client that is still registered, which this one replaces in one step, or
    of one that a former daemon knew.
    """

    client: int
    pod: str
    gpu: str
    former: int
    holds: bool
    wants: bool
    busy_ns: int
    used_bytes: int
    reserve_seq: int = 0
    reserve_bytes: int = 0
    worked_ns: int | None = None
    owner: str = ""


class LockRequested(NamedTuple):
    client: int


class LockReleased(NamedTuple):
    """A client has drained.

    ``busy_ns`` is cumulative, with short gaps: what is billed; None from clients that cannot tell. So is
    ``worked_ns``, how long it had work on the card; None: as much.
    ``grant`` is one more than the LOCK_OK it had read by then; 0 if it does not tell.
    """

    client: int
    busy_ns: int | None = None
    kernel_ns: int = 0
    again: bool = False
    grant: int = 0
    worked_ns: int | None = None


class BusyReported(NamedTuple):
    """Cumulative busy time; ``idle_ns`` > 0 when nothing has run for that long, 0 when working.

    ``slots`` tells when it had work on the card, as in ``books.gpu_time``: its bits are those of the slots
    before ``slots_end``, the latest the highest of SLOTS_TOLD.
    """

    client: int
    busy_ns: int
    idle_ns: int
    worked_ns: int | None = None
    slots_end: int = 0
    slots: int = 0


class MemoryUsed(NamedTuple):
    """What a client has allocated in all, as of its reservation number ``seq``."""

    client: int
    used_bytes: int
    seq: int = 0


class MemoryAsked(NamedTuple):
    """A client asks to allocate ``asked_bytes`` more."""

    client: int
    seq: int
    asked_bytes: int


class LeaseReturned(NamedTuple):
    """A client gave up deciding locally, with exactly ``used_bytes`` allocated."""

    client: int
    generation: int
    used_bytes: int


class ClientDisconnected(NamedTuple):
    """The connection ended. Its turn and queue place end now, its memory with its process."""

    client: int


class ProcessGone(NamedTuple):
    """The client's process has ended, and with it its memory."""

    client: int


class LimitsSet(NamedTuple):
    """One source's word on a pod's limits; None leaves a limit to the other sources."""

    pod: str
    source: str
    memory_bytes: int | None = None
    core_percent: int | None = None
    share: bool | None = None


class SchedulingSet(NamedTuple):
    on: bool


class SliceSet(NamedTuple):
    """SET_TQ: this slice length instead of the configured rule, until restart."""

    slice_ns: int


class SettingsChanged(NamedTuple):
    """Other settings from now on."""

    settings: Settings


class Restored(NamedTuple):
    """This daemon succeeds another. Comes after its GPUs are known and before any client."""

    checkpoint: Checkpoint


class FormerGone(NamedTuple):
    """A client that a former daemon knew will not come back: its process has ended or registered afresh."""

    former: int
    gpu: str


class StoodStill(NamedTuple):
    """The daemon did not run from a moment until now: nobody could be granted or dropped meanwhile."""

    since_ns: int


class Woken(NamedTuple):
    """Nothing happened but time."""


Event = (
    GpuSeen
    | GpuSampled
    | WorkSampled
    | ClientRegistered
    | ClientResumed
    | LockRequested
    | LockReleased
    | BusyReported
    | MemoryUsed
    | MemoryAsked
    | LeaseReturned
    | ClientDisconnected
    | ProcessGone
    | LimitsSet
    | SchedulingSet
    | SliceSet
    | SettingsChanged
    | Restored
    | FormerGone
    | StoodStill
    | Woken
)
