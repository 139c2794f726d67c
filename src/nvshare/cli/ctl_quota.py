"""``nvshare ctl quota``: a pod's limits, and who set them."""

from __future__ import annotations

import click

from nvshare.cli.ctl_context import Caller, table_of, with_json
from nvshare.cli.errors import EXIT_BAD_INPUT, fail
from nvshare.core.units import UnitError, parse_memory, parse_percent
from nvshare.local.limit_description import (
    core_words,
    describe,
    memory_words,
    origin,
    said_lines,
    terms_note,
)
from nvshare.local.run import beyond_memory
from nvshare.pods.tenant_name import ACCEPTED, LOCAL_PREFIX, TenantName


def pod_argument(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    pod = TenantName.parse(value)
    if pod is None:
        fail(f"{value!r} is not a pod name; accepted: {ACCEPTED}", EXIT_BAD_INPUT)
    return value if value.startswith(LOCAL_PREFIX) else pod.key


@click.group()
def quota() -> None:
    """Show, set or unset the limits of pods.

    \b
    Examples:
      nvshare ctl quota list
      nvshare ctl quota get ml/train
      nvshare ctl quota set ml/train --core 80 --memory 8Gi
      nvshare ctl quota unset ml/train
    """


@quota.command("list")
@with_json
def quota_list(context: Caller) -> None:
    """Show the limits of all pods that are here or have any, and who set them.

    \b
    Examples:
      nvshare ctl quota list
      nvshare ctl quota list --json
    """
    answer = context.ask("GET", "/v1/quotas")
    table = table_of("pod", "compute", "set by", "memory", "set by")
    for row in answer["quotas"]:
        limits = row["limits"]
        origins = [origin(row, source) or "-" for source in ("core_source", "memory_source")]
        table.add_row(row["pod"], core_words(limits), origins[0], memory_words(limits), origins[1])
    context.show(answer, table, *terms_note(answer["quotas"]))


@quota.command("get")
@click.argument("pod", callback=pod_argument)
@with_json
def quota_get(context: Caller, pod: str) -> None:
    """Show the limits of POD, who set them, and what others said.

    \b
    Examples:
      nvshare ctl quota get ml/train
    """
    answer = context.ask("GET", f"/v1/quotas/{pod}")
    lines = (f"{answer['pod']}: {describe(answer)}", *said_lines(answer), *terms_note([answer]))
    context.show(answer, *lines)


@quota.command("set")
@click.argument("pod", callback=pod_argument)
@click.option("--memory", "--gpu-memory-limit", "memory", metavar="4Gi", help="Memory limit; 0 means none.")
@click.option(
    "--core", "--gpu-core-limit", "core", metavar="30", help="Compute quota in percent; 100 means none."
)
@click.option(
    "--core-policy",
    "--policy",
    "policy",
    type=click.Choice(["cap", "share"]),
    help="cap: never more than the quota. share: idle time too.",
)
@with_json
def quota_set(context: Caller, pod: str, memory: str | None, core: str | None, policy: str | None) -> None:
    """Limit POD from now on, over restarts of the daemon. What is not named stays as it was.

    What an operator sets holds until it is unset, also for a pod of that name that
    is started later. What a user of root's node sets for a pod of his own ends with
    the pod.

    \b
    Examples:
      nvshare ctl quota set ml/train --core 80 --memory 8Gi
      nvshare ctl quota set ml/train --core 30 --core-policy share
    """
    if memory is None and core is None and policy is None:
        fail("nothing to set; accepted: --memory, --core, --core-policy", EXIT_BAD_INPUT)
    try:
        memory_bytes = None if memory is None else parse_memory(memory)
        core_percent = None if core is None else parse_percent(core)
    except UnitError as error:
        fail(error, EXIT_BAD_INPUT)
    body = {"memory_bytes": memory_bytes, "core_percent": core_percent, "policy": policy}
    answer = context.ask("PUT", f"/v1/quotas/{pod}", body)
    above = beyond_memory(answer["limits"]["memory_bytes"], context.ask("GET", "/v1/gpus")["gpus"])
    if memory is not None and above:
        click.echo(f"Warning: --memory: {above}", err=True)
    context.show(answer, f"{answer['pod']}: {describe(answer, core_percent, memory_bytes)}")


@quota.command("unset")
@click.argument("pod", callback=pod_argument)
@with_json
def quota_unset(context: Caller, pod: str) -> None:
    """Take back what ctl set for POD; its other limits count again.

    \b
    Examples:
      nvshare ctl quota unset ml/train
    """
    answer = context.ask("DELETE", f"/v1/quotas/{pod}")
    context.show(answer, f"{answer['pod']}: {describe(answer)}")
