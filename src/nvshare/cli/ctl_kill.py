"""``nvshare ctl kill``: end the processes of a pod, or one of them."""

from __future__ import annotations

import sys
from typing import Any, Final

import click
from rich.console import Console

from nvshare.cli.ctl_context import Caller, table_of
from nvshare.cli.errors import EXIT_BAD_INPUT, EXIT_NOT_DONE, fail
from nvshare.client.control import TIMEOUT_SEC
from nvshare.core.units import format_bytes
from nvshare.node.kill_outcomes import GRACE_SEC_MAX, KILLED_WITHIN_SEC, OUTCOMES
from nvshare.plain_text import PlainTable

_DONE: Final = frozenset({"terminated", "killed", "gone"})


@click.command()
@click.argument("who", metavar="POD|PID")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option(
    "--grace",
    "grace_sec",
    metavar="SECONDS",
    type=click.FloatRange(0, GRACE_SEC_MAX),
    default=5,
    show_default=True,
    help="Time between SIGTERM and SIGKILL; 0 means SIGKILL at once.",
)
@click.option("--json", "as_json", is_flag=True, help="The daemon's answer as JSON.")
@click.pass_obj
def kill(context: Caller, who: str, yes: bool, grace_sec: float, as_json: bool) -> None:
    """End the processes of POD, or the one with PID.

    Only processes that nvshare ctl clients shows are ended. A number is a pid; a
    pod whose name is a number is written namespace/name.

    \b
    Examples:
      nvshare ctl kill ml/train
      nvshare ctl kill 4711 --grace 30
      nvshare ctl kill ml/train --grace 0 --yes --json

    \b
    Exit codes: 0 all have ended; 1 some have not, or you said no; 2 bad input;
    3 no daemon; 5 not permitted.
    """
    context.as_json |= as_json
    if not yes and not sys.stdin.isatty():
        fail(f"no terminal to confirm on; add --yes to end the processes of {who}", EXIT_BAD_INPUT)
    found = context.ask("GET", f"/v1/processes/{who}")["processes"]
    if not yes:
        _confirm(found, grace_sec)
    named = [{"pid": one["pid"], "start_ticks": one["start_ticks"]} for one in found]
    timeout_sec = grace_sec + KILLED_WITHIN_SEC + TIMEOUT_SEC
    answer = context.ask("POST", "/v1/kills", {"processes": named, "grace_sec": grace_sec}, timeout_sec)
    context.show(answer, _table(answer["processes"]))
    if any(one["outcome"] not in _DONE for one in answer["processes"]):
        sys.exit(EXIT_NOT_DONE)


def _confirm(found: list[dict[str, Any]], grace_sec: float) -> None:
    """On standard error, so that the answer alone is on standard output."""
    Console(stderr=True, highlight=False).print(_table(found))
    what = "this process" if len(found) == 1 else f"these {len(found)} processes"
    how = f"SIGTERM, after {grace_sec:g} s SIGKILL" if grace_sec else "SIGKILL at once"
    if not click.confirm(f"End {what} ({how})?", default=False, err=True):
        fail("nothing was ended", EXIT_NOT_DONE)


def _table(processes: list[dict[str, Any]]) -> PlainTable:
    ended = any("outcome" in one for one in processes)
    table = table_of("pid", "command", "pod", "gpu", "memory", *(["outcome"] if ended else []))
    for one in processes:
        gpus = [str(gpu["gpu"] if gpu["index"] is None else gpu["index"]) for gpu in one.get("gpus", [])]
        table.add_row(
            str(one["pid"]),
            one.get("command", ""),
            one.get("pod", ""),
            ", ".join(gpus),
            format_bytes(one.get("used_bytes", 0)),
            *([OUTCOMES[one["outcome"]]] if ended else []),
        )
    return table
