"""``nvshare ctl explain``: why a pod waits, and where its limits come from."""

from __future__ import annotations

from typing import Any

import click

from nvshare.cli.ctl_context import Caller, with_json
from nvshare.cli.ctl_quota import pod_argument
from nvshare.core.units import format_bytes, format_ns
from nvshare.core.view.explain import REASONS
from nvshare.local.limit_description import describe, said_lines, says_anything


@click.command()
@click.argument("pod", callback=pod_argument)
@with_json
def explain(context: Caller, pod: str) -> None:
    """Say why POD waits, since when, what would let it run, and where its limits come from.

    \b
    Examples:
      nvshare ctl explain ml/train
      nvshare ctl explain ml/train --json
    """
    answer = context.ask("GET", f"/v1/tenants/{pod}")
    lines = []
    for tenant in answer["tenants"]:
        reason = tenant["explanation"]
        since_ns = max(0, answer["now_ns"] - reason["since_ns"])
        lines += [
            f"{answer['pod']} on GPU {tenant['gpu_index']}: {reason['state']} for {format_ns(since_ns)}",
            f"  why: {REASONS[reason['reason']]}",
            f"  would help: {reason['remedy']}",
            f"  quota: {_quota_words(tenant)}",
            f"  memory: {_memory_words(tenant)}",
        ]
    for process in answer["expected_back"]:
        index = process["gpu_index"]
        lines += [
            f"{answer['pod']} on GPU {'-' if index is None else index}: process {process['pid']} has not come"
            " back since the daemon restarted",
            f"  would help: continuing it if it is stopped, or nvshare ctl kill {process['pid']}",
        ]
    quotas = answer["quotas"]
    if says_anything(quotas):
        lines += [f"limits: {describe(quotas)}", *said_lines(quotas)]
    context.show(answer, *lines)


def _quota_words(tenant: dict[str, Any]) -> str:
    """What it asked for, what the others leave of that, and its state."""
    if tenant["core_percent"] >= 100:
        return "none"
    words = f"{tenant['core_percent']} %"
    if round(tenant["effective_percent"], 1) < tenant["core_percent"]:
        words += f", now {tenant['effective_percent']:.1f} % because all quotas together exceed the GPU"
    lag_ns = round(tenant["lag_ns"], -6)
    if lag_ns:
        ahead = "ahead of its quota" if lag_ns < 0 else "behind its quota"
        words += f"; {format_ns(abs(lag_ns))} {ahead}"
    return words


def _memory_words(tenant: dict[str, Any]) -> str:
    used, limit_bytes = format_bytes(tenant["used_bytes"]), tenant["memory_limit_bytes"]
    return f"{used} of {format_bytes(limit_bytes)}" if limit_bytes else f"{used}, no limit"
