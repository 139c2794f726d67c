"""Daemons and commands for tests, forked from an interpreter that has imported them already.

Importing them takes more processor time than most tests that need them. So a server, one for each worker of
pytest, imports them once and forks a process for each.

1. A forked process differs from an executed one in nothing that our programs look at: environment, output and
   arguments are its own, and it ends as an interpreter does.
2. The dynamic loader and the interpreter read some variables only when a program is executed. There is one
   server for each set of their values.
3. The server ends with the process that started it. It reports how each process ended.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PRELOADED: Final = (
    "nvshare.cli.ctl",
    "nvshare.cli.scheduler",
    "nvshare.node.daemon",
    "nvshare.exporters.scheduler.service",
    "pynvml",
)
_READ_AT_START: Final = ("LD_", "PYTHON", "GLIBC_", "MALLOC_")
_REQUEST_BYTES: Final = 200_000


class ForkedProcess:
    """What ``subprocess.Popen`` is for an executed program, as far as tests need it."""

    def __init__(
        self, module: str, arguments: Sequence[str], environment: dict[str, str], stdout: int, stderr: int
    ) -> None:
        """Runs a module, as ``python -m`` does, in the root of the checkout."""
        report, theirs = socket.socketpair()
        request = json.dumps({"module": module, "arguments": arguments, "environment": environment})
        with theirs:
            descriptors = [theirs.fileno(), stdout, stderr]
            socket.send_fds(_server(environment), [request.encode()], descriptors)
        self._report = report.makefile("r")
        report.close()
        self.pid = int(self._report.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], 0)[0]:
            self.returncode = int(self._report.readline())
            self._report.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._report], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"pid {self.pid}", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    module: str, arguments: Sequence[str], environment: dict[str, str], timeout_sec: float
) -> subprocess.CompletedProcess[str]:
    """A module's whole run, as ``subprocess.run`` returns it."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = ForkedProcess(module, arguments, environment, out.fileno(), err.fileno())
        try:
            code = process.wait(timeout_sec)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([module, *arguments], code, out.read(), err.read())


_servers: dict[tuple[tuple[str, str], ...], socket.socket] = {}


def _server(environment: dict[str, str]) -> socket.socket:
    """The connection to the server for this environment (rule 2)."""
    key = tuple(sorted(row for row in environment.items() if row[0].startswith(_READ_AT_START)))
    if key not in _servers:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())],
                env=environment,
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )
        _servers[key] = ours
        atexit.register(_end_server, ours, process)
    return _servers[key]


def _end_server(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
    connection.close()
    process.wait()


# ---- in the server ---------------------------------------------------------------------------


class _Request(NamedTuple):
    raw: bytes
    report_fd: int
    output_fds: list[int]


def _fork(request: _Request, inherited: list[int]) -> int:
    """The pid of a new process; 0 in that process, which then has all that was asked for."""
    pid = os.fork()
    if pid:
        for descriptor in request.output_fds:
            os.close(descriptor)
        return pid
    for descriptor in (*inherited, request.report_fd):
        os.close(descriptor)
    for stream, descriptor in zip((sys.stdout, sys.stderr), request.output_fds, strict=True):
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)
    wanted: dict[str, Any] = json.loads(request.raw)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.argv = [wanted["module"], *wanted["arguments"]]
    return 0


def _serve(requests: socket.socket) -> None:
    """Returns in each forked process, and when nobody can send requests any more."""
    running: dict[int, tuple[int, int]] = {}  # by pidfd, the pid and where its end is reported
    ended: dict[int, int] = {}  # by where its end was reported, the pid: a zombie until the test knows
    while True:
        for ready in select.select([requests.fileno(), *running, *ended], [], [])[0]:
            if ready in running:
                pid, report_fd = running.pop(ready)
                os.close(ready)
                found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                assert found is not None
                _report(report_fd, found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)
                ended[report_fd] = pid
            elif ready in ended:
                os.waitpid(ended.pop(ready), 0)
                os.close(ready)
            else:
                raw, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
                if not raw:
                    sys.exit()
                request = _Request(raw, descriptors[0], descriptors[1:])
                others = [*running, *(fd for _, fd in running.values()), *ended]
                pid = _fork(request, [requests.fileno(), *others])
                if not pid:
                    requests.detach()
                    return
                running[os.pidfd_open(pid)] = (pid, request.report_fd)
                _report(request.report_fd, pid)


def _report(descriptor: int, number: int) -> None:
    with suppress(BrokenPipeError):  # the test does not want to know
        os.write(descriptor, f"{number}\n".encode())


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the tests, which end us
    for module in PRELOADED:
        __import__(module)
    _serve(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
