"""The process at the other end of a socket, as identified by the kernel.

1. A pidfd of the peer is held before anything is read about it. If the pidfd still shows it alive after the
   reading, its pid was not reused meanwhile.
2. Kernels without SO_PEERPIDFD give only the pid. Then start time and cgroup are read before and after the
   pidfd is opened, and must agree.
3. pid 0 means that the peer's pid is in a namespace we cannot see. Without a pid there is no identity.
4. Only files of /proc are read that never wait for the process: stat, status, cgroup and ns, not cmdline or
   environ.
5. A container in a user's slice counts only if the process runs as that user, or in a user namespace that the
   user made, as rootless containers do. Others that got there, by ``sudo`` or ``su``, count for themselves.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from functools import cache
from typing import Final, NamedTuple

from nvshare.pods.cgroups import HOST, UNSEEN, Place, node_prefixes, place_of, run_cgroups_of
from nvshare.pods.tenant_name import TenantName
from nvshare.pods.user_namespaces import in_namespace_of
from nvshare.runtime.listener import EXHAUSTED, Exhausted

SO_PEERPIDFD: Final = 77
SO_PEERGROUPS: Final = 59
_GROUPS_BYTES: Final = 1024  # as much as Python reads of a socket option
_CREDENTIALS: Final = struct.Struct("i2I")  # a uid may be 2^31 and more
_START_FIELD: Final = 19  # after the command's closing bracket; field 22 in the manual page
_PARENT_FIELD: Final = 1
_CODE_FIELD: Final = 23  # start of the program's code
_STACK_FIELD: Final = 25  # start of its stack; 0 if it is hidden from us
_PROC_BYTES: Final = 65_536
ANCESTORS_MAX: Final = 128
"""Each costs the loop 15 us or so."""
PEER_DEAD: Final = "peer_dead"
UNKNOWN_UID: Final = -1
"""No user has it: the kernel's are not negative."""


class IdentityError(Exception):
    """The peer cannot be identified; ``reason`` is one word for the answer, the log and a counter."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class Process(NamedTuple):
    """One process for ever: a pid is reused, but not together with its start time."""

    pid: int
    start_ticks: int


class Peer(NamedTuple):
    """The process at the other end of a connection."""

    process: Process
    uid: int
    place: Place
    run_cgroups: tuple[str, ...] = ()
    command: str = ""  # the process chooses it; for people
    groups: frozenset[int] = frozenset()  # all of its groups
    image: str = ""  # changes when the process executes another program; empty if it is hidden from us

    @property
    def owner(self) -> str:
        """Whose capacity the process takes: its pod's or container's, else its user's.

        A container below ``user.slice`` counts for its user, who could name any number of them.
        """
        tenant = TenantName.of_place(self.place)
        if tenant is None or self.place.is_users:
            return f"uid:{self.uid}"
        return tenant.key


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _PROC_BYTES)
    finally:
        os.close(descriptor)


def _stat(pid: int) -> tuple[str, list[bytes]]:
    """The command, and the fields behind it. The command is in brackets and may contain anything, even
    brackets.
    """
    head, _, rest = _read(f"/proc/{pid}/stat").rpartition(b")")
    return head.partition(b"(")[2].decode(errors="replace"), rest.split()


def _stat_fields(pid: int) -> list[bytes]:
    return _stat(pid)[1]


def _image_of(fields: list[bytes]) -> str:
    """The kernel lays out each executed program at random addresses."""
    code, stack = fields[_CODE_FIELD], fields[_STACK_FIELD]
    return "" if stack == b"0" else f"{int(code):x}-{int(stack):x}"


def command_of(pid: int) -> str:
    """The command of the process that has this pid now; empty if there is none."""
    try:
        return _stat(pid)[0]
    except OSError:
        return ""


def process_of(pid: int) -> Process | None:
    """The process that has this pid now, or None."""
    try:
        return Process(pid, int(_stat_fields(pid)[_START_FIELD]))
    except (FileNotFoundError, ProcessLookupError):
        return None


def pidfd_dead(pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def pidfd_pid(pidfd: int) -> int:
    """The pid that a pidfd stands for; -1 if the process has ended, or it is no pidfd."""
    try:
        fields = _read(f"/proc/self/fdinfo/{pidfd}").split()
    except OSError:
        return -1
    return int(fields[fields.index(b"Pid:") + 1]) if b"Pid:" in fields else -1


def open_process(process: Process) -> int | None:
    """A pidfd of exactly this process, or None if it is gone."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    try:
        if process_of(process.pid) == process and not pidfd_dead(pidfd):
            return pidfd
    except BaseException:
        os.close(pidfd)
        raise
    os.close(pidfd)
    return None


def peer_credentials(connection: socket.socket) -> tuple[int, int, int]:
    """The peer's pid, uid and gid at the time it connected."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return pid, uid, gid


def peer_groups(connection: socket.socket, pid: int, gid: int) -> frozenset[int]:
    """Its groups when it connected; its present ones if there are very many."""
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, _GROUPS_BYTES)
        return frozenset({gid, *(number for (number,) in struct.iter_unpack("I", raw))})
    except OSError as error:
        if error.errno != errno.ERANGE:
            return frozenset({gid})
    return frozenset({gid, *_groups_of(_read(f"/proc/{pid}/status"))})


def _groups_of(status_file: bytes) -> list[int]:
    return _numbers(status_file, b"Groups:")


def _numbers(status_file: bytes, name: bytes) -> list[int]:
    """Only a line feed ends a line: the kernel escapes it in the process's name, and nothing else."""
    for line in status_file.split(b"\n"):
        if line.startswith(name):
            return [*map(int, line.split()[1:])]
    return []


class Uids(NamedTuple):
    """As whom a process runs now."""

    real: int
    effective: int
    saved: int


def uids_of(pid: int) -> Uids | None:
    """Of the process that has this pid now, or None."""
    try:
        found = _numbers(_read(f"/proc/{pid}/status"), b"Uid:")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Uids(*found[:3])


def _peer_pidfd(connection: socket.socket, pid: int) -> int:
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno not in (errno.ENOPROTOOPT, errno.EOPNOTSUPP):
            raise
    before = (process_of(pid), _read(f"/proc/{pid}/cgroup"))
    pidfd = os.pidfd_open(pid)
    if (process_of(pid), _read(f"/proc/{pid}/cgroup")) != before:
        os.close(pidfd)
        raise IdentityError("peer_changed", f"pid {pid} was reused or moved while it was examined")
    return pidfd


def has_hung_up(connection: socket.socket) -> bool:
    """The peer has closed the connection without sending anything."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def identify(connection: socket.socket) -> tuple[Peer, int]:
    """The peer and a pidfd of it, which the caller closes."""
    pid, uid, gid = peer_credentials(connection)
    if pid <= 0:
        raise IdentityError("pid_not_visible", "the peer's pid is not in our namespace; hostPID is needed")
    try:
        pidfd = _peer_pidfd(connection, pid)
        try:
            command, fields = _stat(pid)
            process = Process(pid, int(fields[_START_FIELD]))
            cgroups = _read(f"/proc/{pid}/cgroup").decode(errors="surrogateescape")
            place = _place(cgroups, pid, uid)
            groups = peer_groups(connection, pid, gid)
            if pidfd_dead(pidfd):
                raise IdentityError(PEER_DEAD, f"pid {pid} is dead")
        except BaseException:
            os.close(pidfd)
            raise
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise Exhausted from error
        raise IdentityError(PEER_DEAD, f"pid {pid}: {error}") from error
    facts = (command, groups, _image_of(fields))
    return Peer(process, uid, place, run_cgroups_of(cgroups), *facts), pidfd


def _place(cgroups: str, pid: int, uid: int) -> Place:
    """Rule 5."""
    place = place_of(cgroups, own_node_prefixes())
    owner = place.slice_uid
    return place if owner in (None, uid) or in_namespace_of(pid, owner) else UNSEEN


def unseen_peer(connection: socket.socket) -> Peer:
    """A peer that has ended already: the kernel still knows the pid and the user that connected."""
    pid, uid, _gid = peer_credentials(connection)
    return Peer(Process(pid, 0), uid, UNSEEN)


def others_in_containers(own: Place) -> bool:
    """Whether a process on this machine is in a container that is not ours. Slow: call it in a thread."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                cgroups = _read(f"/proc/{name}/cgroup").decode(errors="surrogateescape")
                place = place_of(cgroups, own_node_prefixes())
            except OSError:
                continue  # it has ended, or is hidden from us, which a process of our own user is not
            if place.contained and place != own:
                return True
    return False


def run_cgroups_around(process: Process) -> tuple[str, ...]:
    """The cgroups of runs around a process, innermost first."""
    try:
        found = run_cgroups_of(_read(f"/proc/{process.pid}/cgroup").decode(errors="surrogateescape"))
    except OSError:
        return ()
    return found if process_of(process.pid) == process else ()


def run_cgroup_of(process: Process) -> str:
    """The innermost of them; empty if there is none."""
    return next(iter(run_cgroups_around(process)), "")


def peer_of_pid(pid: int) -> Peer | None:
    """The process that has this pid now, as if it had connected, without its groups; None if it is gone."""
    process, uids = process_of(pid), uids_of(pid)
    try:
        cgroups = _read(f"/proc/{pid}/cgroup").decode(errors="surrogateescape")
    except (FileNotFoundError, ProcessLookupError):
        return None
    if process is None or uids is None:
        return None
    place = _place(cgroups, pid, uids.effective)
    if process_of(pid) != process:
        return None
    return Peer(process, uids.effective, place, run_cgroups_of(cgroups))


def ancestors(process: Process) -> list[Process]:
    """The process and its ancestors, nearest first, as far as they are certain."""
    found: list[Process] = []
    pid = process.pid
    while pid > 0 and len(found) < ANCESTORS_MAX:
        try:
            fields = _stat_fields(pid)
        except (FileNotFoundError, ProcessLookupError):
            break
        current = Process(pid, int(fields[_START_FIELD]))
        if found and current.start_ticks > found[-1].start_ticks:
            break  # a parent is older than its child: this pid has been reused
        found.append(current)
        pid = int(fields[_PARENT_FIELD])
    return found


def own_place() -> Place:
    """The daemon's own place."""
    try:
        cgroups = _read("/proc/self/cgroup").decode(errors="surrogateescape")
    except OSError:
        return HOST
    return place_of(cgroups, own_node_prefixes())


@cache
def own_node_prefixes() -> tuple[str, ...]:
    """Those of the node, if the daemon runs in a pod."""
    try:
        return node_prefixes(_read("/proc/self/cgroup").decode(errors="surrogateescape"))
    except OSError:
        return ()
