"""A tenant without a memory limit: nobody is asked, and what it uses is told in batches."""

from __future__ import annotations

import os
import signal

from tests.interposer.harness import Node, line_of, tell

ROUNDS = 500
KEPT_BYTES = 64 << 20
SCRIPT = f"""
from cuda.bindings import driver
def ok(answer):
    assert answer[0] == 0, answer
    return answer[1:]
ok(driver.cuInit(0))
(context,) = ok(driver.cuDevicePrimaryCtxRetain(0))
ok(driver.cuCtxSetCurrent(context))
ok(driver.cuMemAlloc(1))
print("ready", flush=True)
input()
for _ in range({ROUNDS}):
    (pointer,) = ok(driver.cuMemAlloc(1 << 20))
    ok(driver.cuMemFree(pointer))
ok(driver.cuMemAlloc({KEPT_BYTES}))
print("done", flush=True)
input()
"""


def reports(node: Node) -> int:
    status = node.daemon.control.ask("GET", "/v1/status")
    counts: dict[str, int] = status["counters"]["messages_received"]
    return counts.get("MEM_USED", 0) + counts.get("MEM_UPDATE", 0)


def used_bytes(node: Node) -> list[int]:
    return [row["used_bytes"] for row in node.clients()]


def test_nobody_is_asked_and_the_daemon_learns_of_it_while_the_program_is_idle(node: Node) -> None:
    program = node.start(*node.python("-c", SCRIPT), pod="free")
    assert line_of(program) == "ready"
    node.wait_for(lambda: used_bytes(node) == [1])
    before = reports(node)
    assert node.daemon.process is not None
    os.kill(node.daemon.process.pid, signal.SIGSTOP)
    try:
        tell(program)
        assert line_of(program) == "done", "a daemon that does not answer holds nobody up"
    finally:
        os.kill(node.daemon.process.pid, signal.SIGCONT)
    node.wait_for(lambda: used_bytes(node) == [1 + KEPT_BYTES])
    assert reports(node) - before < ROUNDS / 2, "told in batches, not one by one"
    tell(program)
    node.finish(program)
