"""``nvshare run``: a command as a local pod."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import click

from nvshare.cli.errors import EXIT_BAD_INPUT, control_client, daemon_errors, fail
from nvshare.core.units import UnitError, parse_memory, parse_percent
from nvshare.local.job import JobError
from nvshare.local.run import RunInputError, RunOrder, default_pod_name, run
from nvshare.pods.tenant_name import ACCEPTED, TenantName
from nvshare.runtime.libraries import InterposerMissingError
from nvshare.runtime.paths import CONTROL_SOCKET

_Value = TypeVar("_Value")
POLICIES = ("cap", "share")


def _amount(flag: str, text: str | None, parse: Callable[[str], _Value]) -> _Value | None:
    try:
        return None if text is None else parse(text)
    except UnitError as error:
        fail(f"{flag} {error}", EXIT_BAD_INPUT)


def _pod(pod: str | None, namespace: str | None, command: str) -> str:
    if pod is not None and "/" in pod and namespace is not None:
        fail(
            f"--pod {pod!r} and --namespace {namespace!r} both name a namespace; accepted: one of the two",
            EXIT_BAD_INPUT,
        )
    name = pod if pod is not None else default_pod_name(command)
    found = TenantName.parse(name if "/" in name else f"{namespace or 'default'}/{name}")
    if found is None:
        what = f"--pod {pod!r}" if namespace is None else f"--namespace {namespace!r} with --pod {pod!r}"
        fail(f"{what} is not a pod name; accepted: {ACCEPTED}", EXIT_BAD_INPUT)
    return found.key


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option(
    "--pod", metavar="[NS/]NAME", help="Its pod: all processes of a pod share its limits.  [default: CMD-PID]"
)
@click.option("--namespace", metavar="NS", help="Namespace of the pod.  [default: default]")
@click.option(
    "--gpu", "gpus", metavar="0", help="GPUs it may see: index, UUID, a list, or all.  [default: all]"
)
@click.option("--gpu-memory-limit", "memory", metavar="4Gi", help="Memory on each GPU; 0 means no limit.")
@click.option(
    "--gpu-core-limit", "core", metavar="30", help="Percent of each GPU's time; 100 means no quota."
)
@click.option(
    "--core-policy",
    "policy",
    metavar="cap|share",
    help="cap: never more than the quota. share: idle time too.  [default: cap]",
)
@click.option("--oversub", is_flag=True, help="Let one process use more memory than a GPU has.")
@click.option("--private-dir", metavar="DIR", help=f"Directory of {CONTROL_SOCKET} [NVSHARE_PRIVATE_DIR].")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
def command(
    pod: str | None,
    namespace: str | None,
    gpus: str | None,
    memory: str | None,
    core: str | None,
    policy: str | None,
    oversub: bool,
    private_dir: str | None,
    command: tuple[str, ...],
) -> None:
    """Run CMD with a part of a GPU, on the node that `nvshare up` started.

    CMD needs no changes. Its child processes share its limits, and `nvshare ctl quota set` changes them
    while it runs. Runs that name the same pod share one quota and one memory limit, those of the latest run.

    \b
    Examples:
      nvshare run --gpu-core-limit 30 --gpu-memory-limit 4Gi -- python train.py
      nvshare run --pod ml/train --gpu 0 --gpu-core-limit 50 -- ./train
      nvshare run --gpu-core-limit 50 --core-policy share -- ./train
      nvshare ctl quota set ml/train --core 80

    \b
    Exit codes: that of CMD, or 128 plus the number of the signal that ended it;
    126 CMD cannot be executed; 127 CMD not found; 2 bad input; 3 no daemon;
    5 not permitted.
    """
    if not command:
        fail("no command; accepted: nvshare run [OPTIONS] -- CMD...", EXIT_BAD_INPUT)
    if policy not in (None, *POLICIES):
        fail(f"--core-policy {policy!r} is not a policy; accepted: {', '.join(POLICIES)}", EXIT_BAD_INPUT)
    order = RunOrder(
        command,
        _pod(pod, namespace, command[0]),
        gpus,
        _amount("--gpu-memory-limit", memory, parse_memory),
        _amount("--gpu-core-limit", core, parse_percent),
        policy,
        oversub,
    )
    hints = {
        "no_daemon": "; start one with `nvshare up`",
    }
    try:
        with daemon_errors(**hints):
            sys.exit(run(order, control_client(private_dir)))
    except RunInputError as error:
        fail(f"--gpu {error}", EXIT_BAD_INPUT)
    except JobError as error:
        fail(error, error.code)
    except InterposerMissingError as error:
        fail(error, 1)
