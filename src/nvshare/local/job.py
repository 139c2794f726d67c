"""Runs a command as if it had been called directly: signals, terminal and exit code pass through.

1. The command stays in our process group. The terminal's own signals (Ctrl-C, Ctrl-Z, a new window size)
   reach it from the kernel; signals that a process sends to us are passed on. So pipelines and interactive
   programs work. A signal that a process sends to the whole group reaches the command twice, since the two
   cannot be distinguished.
2. When job control stops the command, we stop as well, for the shell to see. A SIGSTOP from elsewhere
   concerns only its sender and the command.
3. We adopt and reap orphans of the command, so that their ancestors still show their pod. We end with the
   command; orphans that still run go on.
4. The exit code is the shell's: 128 plus the signal's number when a signal ended the command, 127 when it was
   not found, 126 when it cannot be executed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
_PR_SET_CHILD_SUBREAPER: Final = 36
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_OUR_OWN: Final = frozenset(
    {
        *(signal.SIGKILL, signal.SIGSTOP),  # they cannot be caught
        *(signal.SIGCHLD, signal.SIGPIPE, signal.SIGTTIN, signal.SIGTTOU),  # caused by ourselves
        *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS),
    }
)
_PASSED_ON: Final = frozenset(signal.valid_signals() - _OUR_OWN)
_JOB_CONTROL: Final = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})


class JobError(Exception):
    """The command cannot be started; ``code`` is the shell's exit code for it."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def become_subreaper() -> None:
    """Orphans below us become our children."""
    if _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _start(command: Sequence[str], environment: Mapping[str, str], mask: set[int]) -> subprocess.Popen[bytes]:
    # Inherited as ignored, it would hide the command's end.
    of_children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def as_we_found_it() -> None:
        signal.signal(signal.SIGCHLD, of_children)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        return subprocess.Popen(
            command,
            env=environment,
            close_fds=False,  # the shell may have opened descriptors for it
            preexec_fn=as_we_found_it,
        )
    except FileNotFoundError as error:
        raise JobError(f"{command[0]}: not found", NOT_FOUND) from error
    except OSError as error:
        raise JobError(f"{command[0]}: cannot be executed: {error.strerror}", NOT_EXECUTABLE) from error


def run_job(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start the command, pass signals on, return its exit code. Raises JobError."""
    become_subreaper()
    watched = _PASSED_ON | {signal.SIGCHLD}
    mask: set[int] = set(signal.pthread_sigmask(signal.SIG_BLOCK, watched))
    child = _start(command, environment, mask)
    while True:
        info = signal.sigwaitinfo(watched)
        if info.si_signo == signal.SIGCHLD:
            status = _reap(child.pid)
            if status is not None:
                child.returncode = os.waitstatus_to_exitcode(status)
                return child.returncode if child.returncode >= 0 else 128 - child.returncode
        elif info.si_code <= 0:  # from a process; the kernel's own went to the whole group
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, info.si_signo)


def _reap(command_pid: int) -> int | None:
    """Reap every child that has changed; the command's wait status if it has ended."""
    ended = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        if os.WIFSTOPPED(status):
            if pid == command_pid and os.WSTOPSIG(status) in _JOB_CONTROL:
                _stop_too()
        elif pid == command_pid:
            ended = status


def _stop_too() -> None:
    """By the signal itself: where nobody could continue us, the kernel does not stop us either."""
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})


def adopted() -> list[int]:
    """Pids of our present children."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []
