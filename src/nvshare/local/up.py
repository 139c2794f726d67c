"""``nvshare up`` and ``nvshare down``."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from nvshare.client.control import NoDaemon
from nvshare.core.units import counted, format_bytes
from nvshare.local.ports import tell_of_metrics
from nvshare.local.screen import Screen, end_signal
from nvshare.local.state import read_failure, read_state, write_failure
from nvshare.local.summary import gpu_name
from nvshare.local.supervisor import END_SEC, Node, NodeError, NodePlan
from nvshare.plain_text import plain, plain_lines
from nvshare.pods.peer import open_process

_ANSWER_BYTES_MAX: Final = 65_536


class Answer(msgspec.Struct):
    """The message of a detached node to the command that started it."""

    text: str
    code: int


def describe(node: Node) -> str:
    """The GPUs, whether they are real, and the sockets. Raises NodeError."""
    try:
        gpus = node.control.ask("GET", "/v1/gpus")["gpus"]
    except NoDaemon as error:
        raise NodeError(f"the daemon started but no longer answers: {node.last_words()}", 1) from error
    lines = []
    if node.simulated is not None:
        why = f"{node.why_simulated}; " if node.why_simulated else ""
        lines.append(f"SIMULATED GPUs ({node.simulated.cards}): {why}nothing here uses a real GPU")
    lines += [
        f"gpu {gpu['index']}: {gpu_name(gpu)}, {format_bytes(gpu['total_bytes'])}, {gpu['gpu']}"
        for gpu in gpus
    ]
    lines += [line] if (line := tell_of_metrics(node.metrics)) else []
    if node.machine is not None:
        lines.append("root's node serves this machine, too: while yours is up, `nvshare run` uses yours")
    if node.plan.serves_users:
        whom = "every user" if node.plan.users.everybody else f"the group {node.plan.users.group}"
        lines.append(f"serves {whom} of this machine, too: `nvshare run` as any of them uses it")
    lines.append(f"node up: pid {os.getpid()}, daemon pid {node.daemon_pid}, sockets in {node.plan.sock_dir}")
    return "\n".join(lines)


HINT: Final = "use it: nvshare run --gpu-core-limit 30 --gpu-memory-limit 4Gi -- CMD\nend it: "


def up(plan: NodePlan) -> str:
    """Until a signal ends it; the final message. Raises NodeError."""
    with end_signal() as wake:
        node = Node(plan)
        node.start()
        try:
            Screen(node, describe(node), HINT + "Ctrl-C or nvshare down").show(wake)
            clients = _clients(node)
        finally:
            node.stop()
    if not clients:
        return "node ended"
    goes_on = "goes on" if clients == 1 else "go on"
    return f"node ended; {counted(clients, 'process', 'processes')} that use GPUs {goes_on} without quotas"


def _clients(node: Node) -> int:
    try:
        return int(node.control.ask("GET", "/v1/status")["clients"])
    except NoDaemon:
        return 0


def detach(plan: NodePlan) -> Answer:
    """The same in the background; returns when it is ready or has failed."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        os._exit(_in_background(plan, writing))
    os.close(writing)
    with open(reading, "rb") as stream:
        raw = stream.read(_ANSWER_BYTES_MAX)
    if not raw:
        return Answer("the node in the background died before it was ready", 1)
    return msgspec.json.decode(raw, type=Answer)


def _in_background(plan: NodePlan, writing: int) -> int:
    os.setsid()
    for descriptor in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)

    def answer(text: str, code: int) -> None:
        os.write(writing, msgspec.json.encode(Answer(text, code)))
        os.close(writing)

    try:
        return _serve(plan, answer)
    except BaseException as error:
        answer(f"{type(error).__name__}: {error}", 1)
        return 1


def _serve(plan: NodePlan, answer: Callable[[str, int], None]) -> int:
    with end_signal() as wake:
        node = Node(plan)
        try:
            node.start()
            message = describe(node)
        except NodeError as error:
            node.stop()
            answer(str(error), error.code)
            return error.code
        try:
            answer(f"{message}\n{HINT}nvshare down", 0)
            while not select.select([wake], [], [], 0)[0]:
                node.watch(60, wake)
        except NodeError as error:
            write_failure(plan.private_dir, str(error))
            return error.code
        finally:
            node.stop()
    return 0


def down(private_dir: Path) -> Answer:
    """End the node that is up, and wait until it is gone. Raises PermissionError and ForeignNodeError."""
    state = read_state(private_dir)
    pidfd = None if state is None else open_process(state.process)
    if state is None or pidfd is None:
        why = read_failure(private_dir)
        failed = f"; the last one failed: {plain(why.strip())}" if why else ""
        return Answer(f"no node is up in {private_dir}{failed}", 3)
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        if not select.select([pidfd], [], [], 2 * END_SEC)[0]:
            return Answer(f"the node with pid {state.pid} has not ended after {2 * END_SEC} s", 1)
    except PermissionError:
        return Answer(f"the node with pid {state.pid} belongs to another user", 5)
    finally:
        os.close(pidfd)
    return Answer(f"node ended (pid {state.pid})", 0)


def say(answer: Answer) -> int:
    stream = sys.stderr if answer.code else sys.stdout
    text = plain_lines(answer.text)
    print(f"Error: {text}" if answer.code else text, file=stream, flush=True)
    return answer.code
