"""`nvshare run` under an interactive shell on a terminal: Ctrl-C, Ctrl-Z, fg, window size, pipelines."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator

import pytest

from tests.local.harness import NVSHARE, Place
from tests.node.harness import PATIENCE_SEC

PROGRAM = """
import os, signal, sys
def told(number, frame):
    print("heard", signal.Signals(number).name, flush=True)
signal.signal(signal.SIGWINCH, told)
signal.signal(signal.SIGCONT, told)
print("tty", os.isatty(0), os.tcgetpgrp(0) == os.getpgrp(), flush=True)
for line in sys.stdin:
    print("read", line.strip(), os.get_terminal_size().columns, flush=True)
"""


class Shell:
    """bash on a terminal of its own."""

    def __init__(self, environment: dict[str, str], kind: str = "dumb") -> None:
        self.pid, self.terminal = os.forkpty()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored where the tests run in the background
            prompt = {"PS1": "prompt> ", "TERM": kind}
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], environment | prompt)
        self.seen = ""
        self.wait_for("prompt> ")

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def wait_for(self, words: str) -> str:
        """What came until then."""
        deadline = time.monotonic() + PATIENCE_SEC
        while words not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, f"no {words!r} in {self.seen!r}"
            if select.select([self.terminal], [], [], left)[0]:
                self.seen += os.read(self.terminal, 65_536).decode(errors="replace")
        before, _, self.seen = self.seen.partition(words)
        return before

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.fixture
def shell(node: Place) -> Iterator[Shell]:
    program = node.directory / "program.py"
    program.write_text(PROGRAM)
    found = Shell(node.environment | {"RUN": " ".join((*NVSHARE, "run", "--")), "PROGRAM": str(program)})
    yield found
    found.close()


def start(shell: Shell) -> None:
    shell.type(f"$RUN {NVSHARE[0]} $PROGRAM\n")
    shell.wait_for("tty True True")


def test_the_terminal_is_the_commands(shell: Shell) -> None:
    start(shell)
    shell.type("one\n")
    shell.wait_for("read one")
    size = struct.pack("HHHH", 40, 123, 0, 0)
    fcntl.ioctl(shell.terminal, termios.TIOCSWINSZ, size)
    shell.wait_for("heard SIGWINCH")
    shell.type("two\n")
    shell.wait_for("read two 123")
    shell.type("\x04")
    shell.wait_for("prompt> ")
    shell.type("echo code $?\n")
    shell.wait_for("code 0")


def test_ctrl_c_ends_it_as_the_shell_has_it(shell: Shell) -> None:
    start(shell)
    shell.type("\x03")
    assert shell.wait_for("prompt> ").count("KeyboardInterrupt") == 1, "it came once"
    shell.type("echo code $?\n")
    shell.wait_for("code 130")


def test_ctrl_z_stops_it_and_fg_continues_it(shell: Shell) -> None:
    start(shell)
    shell.type("\x1a")
    shell.wait_for("Stopped")
    shell.wait_for("prompt> ")
    shell.type("jobs -s\n")
    shell.wait_for("Stopped")
    shell.type("fg\n")
    shell.wait_for("heard SIGCONT")
    shell.type("again\n")
    shell.wait_for("read again")
    shell.type("\x1a")
    shell.wait_for("Stopped")
    shell.type("fg\n")
    shell.wait_for("heard SIGCONT")
    shell.type("\x04")
    shell.wait_for("prompt> ")
    shell.type("echo code $?\n")
    shell.wait_for("code 0")


def test_the_node_itself_shows_a_live_table(bare: Place) -> None:
    found = Shell(bare.environment | {"UP": " ".join((*NVSHARE, "up", "--sim", "t4:1"))}, "xterm")
    try:
        found.type("$UP\n")
        found.wait_for("SIMULATED GPUs (t4:1)")
        found.wait_for("0 tenants")
        found.wait_for("asked")
        found.type("\x03")
        found.wait_for("node ended")
        found.type("echo code $?\n")
        found.wait_for("code 0")
    finally:
        found.close()


def test_it_works_in_a_pipeline(shell: Shell) -> None:
    shell.type("$RUN sh -c 'echo piped; exit 3' 2>/dev/null | tr p P; echo codes ${PIPESTATUS[*]}\n")
    shell.wait_for("PiPed")
    shell.wait_for("codes 3 0")
