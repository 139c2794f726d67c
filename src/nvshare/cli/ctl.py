"""``nvshare ctl``: inspect a running daemon, change quotas. Its commands for processes and GPUs have own
files.
"""

from __future__ import annotations

import pwd
from collections.abc import Callable
from typing import Any, Final

import click

from nvshare.cli.ctl_context import Caller, table_of, with_json
from nvshare.cli.ctl_drain import drain, undrain
from nvshare.cli.ctl_explain import explain
from nvshare.cli.ctl_kill import kill
from nvshare.cli.ctl_quota import quota
from nvshare.cli.errors import EXIT_BAD_INPUT, control_client, fail
from nvshare.core.units import format_bytes, format_ns
from nvshare.local.summary import gpu_name
from nvshare.runtime.paths import CONTROL_SOCKET
from nvshare.tables import Column, FittedTable
from nvshare.wire.messages import QUANTUM_MAX_SEC


def _limit(amount_bytes: int) -> str:
    return format_bytes(amount_bytes) if amount_bytes else "none"


_CARD_STATES: Final = {None: "-", True: "ok", False: "no answer"}


def _in_use(gpu: dict[str, Any]) -> int:
    """Memory used by any process, according to NVML; without it, what all clients have allocated."""
    if gpu["used_bytes"] is not None:
        return int(gpu["used_bytes"])
    return sum(tenant["used_bytes"] for tenant in gpu["tenants"])


def _known(figure: int | None, show: Callable[[int], str]) -> str:
    return "-" if figure is None else show(figure)


@click.group("ctl")
@click.option("--private-dir", metavar="DIR", help=f"Directory of {CONTROL_SOCKET} [NVSHARE_PRIVATE_DIR].")
@click.option("--json", "as_json", is_flag=True, help="The daemon's answer as JSON.")
@click.pass_context
def command(context: click.Context, private_dir: str | None, as_json: bool) -> None:
    """Look into the daemon, change quotas, end processes, drain GPUs.

    \b
    Examples:
      nvshare ctl clients
      nvshare ctl explain ml/train
      nvshare ctl quota set ml/train --core 80 --memory 8Gi
      nvshare ctl kill ml/train
      nvshare ctl drain 0

    \b
    Exit codes: 0 done; 1 not done, or not in time; 2 bad input; 3 no daemon;
    5 not permitted.
    """
    context.obj = Caller(control_client(private_dir), as_json)


command.add_command(explain)
command.add_command(kill)
command.add_command(drain)
command.add_command(undrain)
command.add_command(quota)


@command.command()
@with_json
def status(context: Caller) -> None:
    """Show how the daemon is doing.

    \b
    Examples:
      nvshare ctl status
      nvshare ctl status --json
    """
    answer = context.ask("GET", "/v1/status")
    if "counters" not in answer:
        _users_status(context, answer)
        return
    counters, problems = answer["counters"], answer["problems"]
    verdict = "the daemon is healthy" if not problems else "the daemon needs attention:"
    table = table_of("what", "value")
    table.add_row("pid", str(answer["pid"]))
    table.add_row("version", f"{answer['version']}, {answer['core']} core")
    table.add_row("up for", format_ns(answer["uptime_ns"]))
    table.add_row("scheduling", "on" if answer["scheduling_on"] else "off")
    simulated = f" ({answer['simulated_gpus']} simulated)" if answer["simulated_gpus"] else ""
    table.add_row("GPUs", f"{answer['gpus']}{simulated}")
    for name in ("clients", "expected_back", "unregistered", "sock_dir"):
        table.add_row(name.replace("_", " "), str(answer[name]))
    table.add_row("callback p99", format_ns(counters["callbacks"]["p99_ns"]))
    table.add_row("loop lag p99", format_ns(counters["lag"]["p99_ns"]))
    checkpoints = f"{answer['checkpoints_written']} written, {answer['checkpoints_failed']} failed"
    table.add_row("checkpoints", checkpoints)
    if answer["draining_gpus"]:
        table.add_row("draining", ", ".join(answer["draining_gpus"]))
    for reason, count in sorted(counters["killed"].items()):
        if count:
            table.add_row(f"killed: {reason}", str(count))
    for reason, count in sorted(counters["refused"].items()):
        table.add_row(f"refused: {reason}", str(count))
    context.show(answer, verdict, *(f"  {problem}" for problem in problems), table)


def _users_status(context: Caller, answer: dict[str, Any]) -> None:
    """As root's node answers one of its users."""
    table = table_of("what", "value")
    table.add_row("your pods are in", answer["namespace"])
    table.add_row("your processes", str(answer["clients"]))
    for name in ("default", "ceiling"):
        table.add_row(f"your {name}", _terms(answer[name]))
    for name in ("version", "gpus", "sock_dir"):
        table.add_row(name.replace("_", " "), str(answer[name]))
    table.add_row("scheduling", "on" if answer["scheduling_on"] else "off")
    context.show(answer, "root's node serves you", table)


def _terms(terms: dict[str, Any]) -> str:
    words = [f"{terms['core_percent']} %"] if terms["core_percent"] else []
    words += [format_bytes(terms["memory_bytes"])] if terms["memory_bytes"] else []
    words += [f"{terms['pods']} pods on GPUs at a time"] if terms["pods"] else []
    return ", ".join(words) or "none"


def _with_wide(function: Callable[..., None]) -> Callable[..., None]:
    return click.option("--wide", is_flag=True, help="All columns, also UUIDs, however wide the terminal.")(
        with_json(function)
    )


_GPU_COLUMNS: Final = (
    Column("gpu"),
    Column("name", 3),
    Column("state", 1),
    Column("in use", 2, right=True),
    Column("memory", 4, right=True),
    Column("tenants", right=True),
    Column("running", 6, right=True),
    Column("in line", 5, right=True),
    Column("held back", 7, right=True),
    Column("turn", 8, right=True),
)
_UUID: Final = Column("uuid", 20)


@command.command()
@_with_wide
def gpus(context: Caller, wide: bool) -> None:
    """Show the GPUs: their memory, how many run and how many wait.

    \b
    Examples:
      nvshare ctl gpus
      nvshare ctl gpus --wide
      nvshare ctl gpus --json
    """
    context.wide = wide
    answer = context.ask("GET", "/v1/gpus")
    rows = [
        (
            str(gpu["index"]),
            gpu_name(gpu),
            _CARD_STATES[gpu["answers"]] + (", draining" if gpu["draining"] else ""),
            format_bytes(_in_use(gpu)),
            format_bytes(gpu["total_bytes"]),
            str(len(gpu["tenants"])),
            _known(gpu["running_clients"], str),
            str(gpu["request_queue_clients"]),
            str(gpu["wait_queue_clients"]),
            format_ns(gpu["turn_ns"]),
            *([gpu["gpu"]] if wide else []),
        )
        for gpu in answer["gpus"]
    ]
    context.show(answer, FittedTable((*_GPU_COLUMNS, *([_UUID] if wide else [])), rows))


_CLIENT_COLUMNS: Final = (
    Column("pod"),
    Column("pid", 1, right=True),
    Column("gpu", 4, right=True),
    Column("state", 2),
    Column("memory", 3, right=True),
    Column("limit", 6, right=True),
    Column("quota", 5, right=True),
    Column("GPU time", 7, right=True),
)
_CLIENT_IDS: Final = (_UUID, Column("client", 21))
_USER: Final = Column("user", 4)


def _user_cells(rows: list[dict[str, Any]]) -> dict[int, list[str]]:
    """A cell with the name of each user; none where all are processes of one."""
    uids = {row["uid"] for row in rows}
    return {uid: [_user_name(uid)] for uid in uids} if len(uids) > 1 else {}


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


@command.command()
@_with_wide
def clients(context: Caller, wide: bool) -> None:
    """Show the processes that use GPUs, and those expected back after a restart of the daemon.

    \b
    Examples:
      nvshare ctl clients
      nvshare ctl clients --wide
      nvshare ctl clients --json
    """
    context.wide = wide
    answer = context.ask("GET", "/v1/clients")
    found = sorted(answer["clients"], key=lambda row: (row["pod"], row["pid"]))
    found += sorted(answer["expected_back"], key=lambda row: (row["pod"], row["pid"]))
    users = _user_cells(found)
    rows = [[*_client_cells(client, wide), *users.get(client["uid"], [])] for client in found]
    simulated = sorted({client["gpu_index"] for client in found if client["simulated"]})
    which = ", ".join(str(index) for index in simulated)
    note = [f"simulated: GPU {which}"] if simulated else []
    columns = (*_CLIENT_COLUMNS, *(_CLIENT_IDS if wide else ()), *([_USER] if users else []))
    context.show(answer, FittedTable(columns, rows), *note)


def _client_cells(client: dict[str, Any], wide: bool) -> list[str]:
    here = "state" in client
    cells = [
        client["pod"],
        str(client["pid"]),
        _known(client["gpu_index"], str),
        client["state"] if here else "expected back",
        format_bytes(client["used_bytes"]) if here else "-",
        _limit(client["memory_limit_bytes"]),
        f"{client['core_percent']} %" if client["core_percent"] < 100 else "none",
        format_ns(client["gpu_time_ns"]) if here else "-",
    ]
    return [*cells, client["gpu"], client["client"]] if wide else cells


@command.command()
@click.argument("seconds")
@with_json
def tq(context: Caller, seconds: str) -> None:
    """Set the slice of tenants whose memory does not fit together, until the daemon restarts.

    \b
    Examples:
      nvshare ctl tq 30
    """
    if not (seconds.isascii() and seconds.isdigit() and 1 <= int(seconds[:9]) <= QUANTUM_MAX_SEC):
        fail(f"{seconds!r} is not a slice; accepted: whole seconds, 1 to {QUANTUM_MAX_SEC}", EXIT_BAD_INPUT)
    answer = context.ask("PUT", "/v1/slice", {"seconds": int(seconds)})
    context.show(answer, f"slice {answer['seconds']} s")


def _switch(context: Caller, on: bool) -> None:
    answer = context.ask("PUT", "/v1/scheduling", {"on": on})
    context.show(answer, f"scheduling {'on' if answer['on'] else 'off'}")


@command.command("on")
@with_json
def switch_on(context: Caller) -> None:
    """Switch scheduling on again.

    \b
    Examples:
      nvshare ctl on
    """
    _switch(context, True)


@command.command("off")
@with_json
def switch_off(context: Caller) -> None:
    """Switch scheduling off: everybody runs at once, without quotas.

    \b
    Examples:
      nvshare ctl off
    """
    _switch(context, False)


@command.command(hidden=True)
@with_json
def token(context: Caller) -> None:
    """Print the daemon's secret token. Nothing in this version asks for it."""
    answer = context.ask("GET", "/v1/token")
    context.show(answer, answer["token"])
