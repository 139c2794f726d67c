"""What happens outside the core. Each event is a plain value; its time is passed separately."""

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
    """How much memory of a GPU is in use, by any process at all, according to NVML.

    It does not include ``paged_out_bytes`` of the clients' allocations, which are not on the GPU.
    """

    gpu: str
    used_bytes: int
    paged_out_bytes: int = 0


class WorkSampled(NamedTuple):
    """How long a GPU worked for some clients since their last sample, according to NVML.

    Not ``complete`` if NVML was asked so late that its samples cover only part of that time: the figures are
    then estimates, which no bill is compared with.
    """

    gpu: str
    at_ns: int
    clients: tuple[tuple[int, int], ...]
    complete: bool = True


class ClientRegistered(NamedTuple):
    """A process uses a GPU on behalf of a pod. A process on two GPUs is two clients.

    ``owner`` is the user (by uid) who may start any number of pods or processes; "" stands for the pod.
    """

    client: int
    pod: str
    gpu: str
    version: int = 3
    owner: str = ""


class ClientResumed(NamedTuple):
    """A process comes back on a new connection, with what it still has.

    ``previous`` is the id it had: of a client that is still registered, which this one replaces in one step,
    or of a client that the previous daemon knew.
    """

    client: int
    pod: str
    gpu: str
    previous: int
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

    ``busy_ns`` is cumulative and includes short gaps; it is billed. None: the client cannot report it.
    ``worked_ns`` is cumulative, too: how long it had work on the card. None: the same as ``busy_ns``.
    ``grant`` is one more than the number of LOCK_OK it had read by then; 0 if it does not report that.
    """

    client: int
    busy_ns: int | None = None
    kernel_ns: int = 0
    again: bool = False
    grant: int = 0
    worked_ns: int | None = None


class BusyReported(NamedTuple):
    """Cumulative busy time; ``idle_ns`` > 0 when nothing has run for that long, 0 when working.

    ``slots`` are the time slots in which it had work on the card (``books.gpu_time``), one bit each: those
    before ``slots_end``, the latest one being the highest of SLOTS_REPORTED bits.
    """

    client: int
    busy_ns: int
    idle_ns: int
    worked_ns: int | None = None
    slots_end: int = 0
    slots: int = 0


class MemoryUsed(NamedTuple):
    """The total that a client has allocated, as of its reservation number ``seq``."""

    client: int
    used_bytes: int
    seq: int = 0


class MemoryRequested(NamedTuple):
    """A client asks to allocate ``asked_bytes`` more."""

    client: int
    seq: int
    asked_bytes: int


class LeaseReturned(NamedTuple):
    """A client returned its lease, with exactly ``used_bytes`` allocated."""

    client: int
    generation: int
    used_bytes: int


class ClientDisconnected(NamedTuple):
    """The connection ended. The turn and the place in the queue end now, its memory with its process."""

    client: int


class ProcessGone(NamedTuple):
    """The client's process has ended, which frees its memory."""

    client: int


class LimitsSet(NamedTuple):
    """What one source states as a pod's limits; None leaves a limit to the other sources."""

    pod: str
    source: str
    memory_bytes: int | None = None
    core_percent: int | None = None
    share: bool | None = None


class SchedulingSet(NamedTuple):
    on: bool


class SliceSet(NamedTuple):
    """SET_TQ: a slice length that replaces the configured one until the next restart."""

    slice_ns: int


class SettingsChanged(NamedTuple):
    """New settings take effect."""

    settings: Settings


class Restored(NamedTuple):
    """This daemon takes over from another. Comes after its GPUs are known and before any client."""

    checkpoint: Checkpoint


class ResumeCancelled(NamedTuple):
    """A client of the previous daemon will not resume: its process has ended or registered again."""

    previous: int
    gpu: str


class StoodStill(NamedTuple):
    """The daemon did not run between that moment and now: nobody could be granted or dropped meanwhile."""

    since_ns: int


class Woken(NamedTuple):
    """Only time has passed."""


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
    | MemoryRequested
    | LeaseReturned
    | ClientDisconnected
    | ProcessGone
    | LimitsSet
    | SchedulingSet
    | SliceSet
    | SettingsChanged
    | Restored
    | ResumeCancelled
    | StoodStill
    | Woken
)
