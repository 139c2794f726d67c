"""``nvshare ctl``: look into a running daemon, change quotas. What acts on processes and GPUs is beside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from nvshare.cli.caller import Caller, table_of
from nvshare.cli.ctl_drain import drain, undrain
from nvshare.cli.ctl_kill import kill
from nvshare.cli.ending import EXIT_BAD_INPUT, fail, private_directory
from nvshare.core.units import UnitError, format_bytes, format_ns, parse_bytes, parse_percent
from nvshare.pods.tenancy import ACCEPTED_POD, parse_pod
from nvshare.wire.messages import QUANTUM_MAX_SEC


def _limit(amount_bytes: int) -> str:
    return format_bytes(amount_bytes) if amount_bytes else "none"


_CARD_STATES: Final = {None: "not known", True: "ok", False: "does not answer"}


def _in_use(gpu: dict[str, Any]) -> int:
    """By anybody, as NVML says; without it what all clients have allocated."""
    if gpu["used_bytes"] is not None:
        return int(gpu["used_bytes"])
    return sum(tenant["used_bytes"] for tenant in gpu["tenants"])


def _known(figure: int | None, show: Callable[[int], str]) -> str:
    return "-" if figure is None else show(figure)


def _pod_argument(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    pod = parse_pod(value)
    if pod is None:
        fail(f"{value!r} is no pod; accepted: {ACCEPTED_POD}", EXIT_BAD_INPUT)
    return pod


@click.group("ctl")
@click.option("--private-dir", metavar="DIR", help="Directory of control.sock [NVSHARE_PRIVATE_DIR].")
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
    Exit codes: 0 done; 1 not done, or not in time; 2 not accepted; 3 no daemon;
    5 not permitted.
    """
    context.obj = Caller(private_directory(private_dir), as_json)


command.add_command(kill)
command.add_command(drain)
command.add_command(undrain)


@command.command()
@click.pass_obj
def status(caller: Caller) -> None:
    """Is the daemon well?"""
    answer = caller.ask("GET", "/v1/status")
    counters, problems = answer["counters"], answer["problems"]
    verdict = "the daemon is well" if not problems else "the daemon needs attention:"
    table = table_of("what", "value")
    table.add_row("pid", str(answer["pid"]))
    table.add_row("version", answer["version"])
    table.add_row("up for", format_ns(answer["uptime_ns"]))
    table.add_row("scheduling", "on" if answer["scheduling_on"] else "off")
    for name in ("gpus", "clients", "expected_back", "unregistered", "sock_dir"):
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
    caller.show(answer, verdict, *(f"  {problem}" for problem in problems), table)


@command.command()
@click.pass_obj
def gpus(caller: Caller) -> None:
    """The GPUs, who runs and who waits."""
    answer = caller.ask("GET", "/v1/gpus")
    names = (
        "index",
        "gpu",
        "state",
        "memory",
        "in use",
        "running",
        "in line",
        "held back",
        "tenants",
        "turn",
    )
    table = table_of(*names)
    for gpu in answer["gpus"]:
        table.add_row(
            str(gpu["index"]),
            gpu["gpu"],
            _CARD_STATES[gpu["answers"]] + (", draining" if gpu["draining"] else ""),
            format_bytes(gpu["total_bytes"]),
            format_bytes(_in_use(gpu)),
            _known(gpu["running_clients"], str),
            str(gpu["request_queue_clients"]),
            str(gpu["wait_queue_clients"]),
            str(len(gpu["tenants"])),
            format_ns(gpu["turn_ns"]),
        )
    caller.show(answer, table)


@command.command()
@click.pass_obj
def clients(caller: Caller) -> None:
    """The processes that use GPUs, and those expected back after a restart of the daemon."""
    answer = caller.ask("GET", "/v1/clients")
    table = table_of("pod", "pid", "gpu", "state", "memory", "limit", "quota", "GPU time", "client")
    for client in sorted(answer["clients"], key=lambda row: (row["pod"], row["pid"])):
        table.add_row(
            client["pod"],
            str(client["pid"]),
            client["gpu"],
            client["state"],
            format_bytes(client["used_bytes"]),
            _limit(client["memory_limit_bytes"]),
            f"{client['core_percent']} %",
            format_ns(client["gpu_time_ns"]),
            client["client"],
        )
    for former in sorted(answer["expected_back"], key=lambda row: (row["pod"], row["pid"])):
        table.add_row(
            former["pod"],
            str(former["pid"]),
            former["gpu"],
            "expected back",
            "-",
            _limit(former["memory_limit_bytes"]),
            f"{former['core_percent']} %",
            "-",
            former["client"],
        )
    caller.show(answer, table)


@command.command()
@click.argument("pod", callback=_pod_argument)
@click.pass_obj
def explain(caller: Caller, pod: str) -> None:
    """Why POD waits, since when, and what would let it run."""
    answer = caller.ask("GET", f"/v1/tenants/{pod}")
    lines = []
    for tenant in answer["tenants"]:
        reason = tenant["explanation"]
        since_ns = max(0, answer["now_ns"] - reason["since_ns"])
        lines += [
            f"{pod} on {tenant['gpu']}: {reason['state']} for {format_ns(since_ns)} ({reason['reason']})",
            f"  would help: {reason['remedy']}",
            f"  quota {tenant['core_percent']} %, now {tenant['effective_percent']:.1f} %,"
            f" owed {format_ns(tenant['lag_ns'])}, memory {format_bytes(tenant['used_bytes'])}"
            f" of {_limit(tenant['memory_limit_bytes'])}",
        ]
    for former in answer["expected_back"]:
        lines += [
            f"{pod} on {former['gpu']}: process {former['pid']} has not come back since the daemon restarted",
            f"  would help: let it run on if it is stopped, or nvshare ctl kill {former['pid']}",
        ]
    caller.show(answer, *lines)


@command.group()
def quota() -> None:
    """Set or unset a pod's limits."""


def _show_limits(caller: Caller, answer: dict[str, Any]) -> None:
    limits = answer["limits"]
    policy = "share" if limits["share"] else "cap"
    caller.show(
        answer,
        f"{answer['pod']}: memory {_limit(limits['memory_bytes'])} ({limits['memory_source']}),"
        f" compute {limits['core_percent']} % ({limits['core_source']}, {policy})",
    )


@quota.command("set")
@click.argument("pod", callback=_pod_argument)
@click.option("--memory", metavar="4Gi", help="Memory limit; 0 means none.")
@click.option("--core", metavar="30", help="Compute quota in percent; 100 means none.")
@click.option("--policy", type=click.Choice(["cap", "share"]), help="A cap, or a share of idle time too.")
@click.pass_obj
def quota_set(caller: Caller, pod: str, memory: str | None, core: str | None, policy: str | None) -> None:
    """Limit POD from now on, over restarts of the daemon. What is not named stays as it was."""
    if memory is None and core is None and policy is None:
        fail("nothing to set; accepted: --memory, --core, --policy", EXIT_BAD_INPUT)
    try:
        body = {
            "memory_bytes": None if memory is None else parse_bytes(memory),
            "core_percent": None if core is None else parse_percent(core),
            "policy": policy,
        }
    except UnitError as error:
        fail(error, EXIT_BAD_INPUT)
    _show_limits(caller, caller.ask("PUT", f"/v1/quotas/{pod}", body))


@quota.command("unset")
@click.argument("pod", callback=_pod_argument)
@click.pass_obj
def quota_unset(caller: Caller, pod: str) -> None:
    """Take back what ctl set for POD; other sources count again."""
    _show_limits(caller, caller.ask("DELETE", f"/v1/quotas/{pod}"))


@command.command()
@click.argument("seconds")
@click.pass_obj
def tq(caller: Caller, seconds: str) -> None:
    """Slice of tenants that do not fit in memory together, until the daemon restarts."""
    if not (seconds.isascii() and seconds.isdigit() and 1 <= int(seconds[:9]) <= QUANTUM_MAX_SEC):
        fail(f"{seconds!r} is no slice; accepted: whole seconds, 1 to {QUANTUM_MAX_SEC}", EXIT_BAD_INPUT)
    answer = caller.ask("PUT", "/v1/slice", {"seconds": int(seconds)})
    caller.show(answer, f"slice {answer['seconds']} s")


def _switch(caller: Caller, on: bool) -> None:
    answer = caller.ask("PUT", "/v1/scheduling", {"on": on})
    caller.show(answer, f"scheduling {'on' if answer['on'] else 'off'}")


@command.command("on")
@click.pass_obj
def switch_on(caller: Caller) -> None:
    """Schedule again."""
    _switch(caller, True)


@command.command("off")
@click.pass_obj
def switch_off(caller: Caller) -> None:
    """Let everybody run at once, ungated."""
    _switch(caller, False)


@command.command()
@click.pass_obj
def token(caller: Caller) -> None:
    """The secret that the dashboard will ask for."""
    answer = caller.ask("GET", "/v1/token")
    caller.show(answer, answer["token"])
