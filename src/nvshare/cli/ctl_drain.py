"""``nvshare ctl drain`` and ``undrain``: keep new processes off a GPU, and wait until it is empty."""

from __future__ import annotations

import sys
import time
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from nvshare.cli.ctl_context import Caller
from nvshare.cli.errors import EXIT_NOT_DONE, daemon_errors, fail
from nvshare.client.control import TIMEOUT_SEC, NoDaemon
from nvshare.plain_text import plain

POLL_SEC: Final = 0.5
RESTART_SEC: Final = 30.0
"""How long a daemon may be away when there is no timeout."""
NAMED_MAX: Final = 3
"""Processes named in a line of progress."""


@click.command()
@click.argument("gpu", metavar="GPU")
@click.option("--no-wait", is_flag=True, help="Do not wait until the GPU is empty.")
@click.option(
    "--timeout",
    "timeout_sec",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="Give up waiting after that; the GPU stays drained.  [default: never]",
)
@click.option("--json", "as_json", is_flag=True, help="The daemon's last answer as JSON.")
@click.pass_obj
def drain(context: Caller, gpu: str, no_wait: bool, timeout_sec: float | None, as_json: bool) -> None:
    """Let nobody new use GPU, and wait until nobody uses it.

    GPU is an index, a UUID or a unique prefix of one. Programs that use it go on,
    even if the daemon restarts. Every other process is refused, even one of a pod
    that uses the GPU: CUDA programs wait for it, Python clients get gpu_draining.
    This lasts until nvshare ctl undrain, or until the machine reboots. Processes
    that do not use nvshare are neither seen nor waited for. If the daemon restarts
    meanwhile, it is waited for until --timeout, or for 30 s without one.

    \b
    Examples:
      nvshare ctl drain 0
      nvshare ctl drain GPU-6f3c --timeout 600 && nvidia-smi -r -i 0
      nvshare ctl drain 0 --no-wait --json

    \b
    Exit codes: 0 empty, or --no-wait; 1 not empty in time, or the drain cannot be
    written down and ends with this daemon; 2 bad input; 3 no daemon;
    5 not permitted.
    """
    context.as_json |= as_json
    answer = context.ask("PUT", f"/v1/drains/{gpu}")
    not_kept = answer["not_kept"]
    if not no_wait:
        answer = _wait_until_empty(context, answer, timeout_sec)
        answer["not_kept"] = not_kept
    left, name = answer["count"], _name(answer)
    back = f"nvshare ctl undrain {answer['index']} lets programs use it again"
    if left:
        context.show(answer, f"{name} is being drained: {_who(answer)}", back)
    else:
        context.show(answer, f"{name} is drained and empty", back)
    _fail_unless_kept(answer, "drained")
    if left and not no_wait:
        sys.exit(EXIT_NOT_DONE)


@click.command()
@click.argument("gpu", metavar="GPU")
@click.option("--json", "as_json", is_flag=True, help="The daemon's answer as JSON.")
@click.pass_obj
def undrain(context: Caller, gpu: str, as_json: bool) -> None:
    """Let programs use GPU again; those that wait for it start at once.

    \b
    Examples:
      nvshare ctl undrain 0
      nvshare ctl undrain GPU-6f3c --json

    \b
    Exit codes: 0 done; 1 done, but it cannot be written down and the next daemon
    drains the GPU again; 2 bad input; 3 no daemon; 5 not permitted.
    """
    context.as_json |= as_json
    answer = context.ask("DELETE", f"/v1/drains/{gpu}")
    context.show(answer, f"{_name(answer)} may be used again")
    _fail_unless_kept(answer, "no longer drained")


def _fail_unless_kept(answer: dict[str, Any], what: str) -> None:
    """The drain holds for this daemon all the same."""
    why = answer.get("not_kept")
    if why:
        fail(f"that {_name(answer)} is {what} will be forgotten when the daemon ends: {why}", EXIT_NOT_DONE)


def _wait_until_empty(context: Caller, answer: dict[str, Any], timeout_sec: float | None) -> dict[str, Any]:
    """The last answer. On a terminal a line shows which processes are left."""
    until = None if timeout_sec is None else time.monotonic() + timeout_sec
    console = Console(stderr=True, highlight=False)
    try:
        with console.status(Text(_progress(answer))) as status:
            while answer["count"] and (until is None or time.monotonic() < until):
                time.sleep(POLL_SEC if until is None else max(0, min(POLL_SEC, until - time.monotonic())))
                answer = _look(context, answer, until)
                status.update(Text(_progress(answer)))
    except KeyboardInterrupt:
        console.print(Text(_stays(answer)))
        sys.exit(EXIT_NOT_DONE)
    return answer


def _look(context: Caller, answer: dict[str, Any], until: float | None) -> dict[str, Any]:
    """The daemon's next answer, even if it restarts meanwhile."""
    give_up = time.monotonic() + RESTART_SEC if until is None else until
    stays = f". {_stays(answer)}"
    with daemon_errors(stays, stays):
        while True:
            left_sec = give_up - time.monotonic()
            try:
                timeout_sec = max(POLL_SEC, min(TIMEOUT_SEC, left_sec))
                return context.control_client.ask("GET", f"/v1/drains/{answer['gpu']}", None, timeout_sec)
            except NoDaemon:
                if left_sec <= 0:
                    raise
            time.sleep(max(0, min(POLL_SEC, give_up - time.monotonic())))


def _stays(answer: dict[str, Any]) -> str:
    return f"{_name(answer)} stays drained; nvshare ctl undrain {answer['index']} ends that"


def _progress(answer: dict[str, Any]) -> str:
    return plain(f"{_name(answer)}: {_who(answer)}")


def _name(answer: dict[str, Any]) -> str:
    return f"GPU {answer['index']} ({answer['gpu']})"


def _who(answer: dict[str, Any]) -> str:
    named = [f"{one['pod']} (pid {one['pid']})" for one in answer["processes"][:NAMED_MAX]]
    rest = answer["count"] - len(named)
    if rest > 0:
        named.append(f"{rest} more")
    processes = "1 process is" if answer["count"] == 1 else f"{answer['count']} processes are"
    return f"{processes} still there" + (f": {', '.join(named)}" if named else "")
