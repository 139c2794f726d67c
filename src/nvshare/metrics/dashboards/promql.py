"""Expressions that several dashboards ask, so that they mean the same everywhere.

Windows: ``$__rate_interval`` is Grafana's shortest window that always has two scrapes, ``$__range`` the time
that the dashboard shows. Tables, and waits for others, ask for the last five minutes: a rate over the whole
range would be too low for what began within it.
"""

from __future__ import annotations

from typing import Final

INTERVAL: Final = "$__rate_interval"
RANGE: Final = "$__range"
RECENT: Final = "5m"
POD: Final = "{{namespace}}/{{pod}}"
NODES: Final = 'instance=~"$instance"'


def rate(metric: str, where: str, by: str, window: str = INTERVAL) -> str:
    return f"sum by ({by}) (rate({metric}{{{where}}}[{window}]))"


def increase(metric: str, where: str, by: str, window: str = INTERVAL) -> str:
    """Of counts: Prometheus extrapolates, and nobody expects 1.09 events."""
    return f"round(sum by ({by}) (increase({metric}{{{where}}}[{window}])))"


def quantile(share: float, metric: str, where: str, by: str, window: str = INTERVAL) -> str:
    labels = ", ".join(filter(None, (by, "le")))
    rates = rate(f"{metric}_bucket", where, labels, window)
    return f"histogram_quantile({share}, {rates}) >= 0"  # the quantile of nothing is not a number


def got(where: str, by: str, window: str = INTERVAL) -> str:
    """Quotas hold for what is billed."""
    return rate("nvshare_pod_gpu_billed_seconds_total", where, by, window)


def with_quota(where: str, by: str) -> str:
    """True of pods that have a compute quota: what others are due is the whole GPU, and tells nothing."""
    return f"and on ({by}) max by ({by}) (nvshare_client_core_quota_config_percent{{{where}}}) < 100"


def due(where: str, by: str, window: str = INTERVAL) -> str:
    return f"{rate('nvshare_pod_gpu_entitled_seconds_total', where, by, window)} {with_quota(where, by)}"


def got_of_due(where: str, by: str, window: str) -> str:
    entitled = rate("nvshare_pod_gpu_entitled_seconds_total", where, by, window)
    return f"{got(where, by, window)} / ({entitled} > 0) {with_quota(where, by)}"


def held_back_by_quota(where: str, by: str, window: str = INTERVAL) -> str:
    return rate("nvshare_pod_gpu_throttled_seconds_total", where, by, window)


def no_room(where: str, by: str, window: str = INTERVAL) -> str:
    return rate("nvshare_pod_gpu_swap_seconds_total", where, by, window)


def others_turns(where: str, by: str, window: str = RECENT) -> str:
    """All waits of an average process, less those for which its own quota or its memory is the reason.

    A wait is counted when it ends, its reasons while it lasts: over a short window they would not meet.
    """
    waits = rate("nvshare_pod_gpu_lock_wait_seconds_sum", where, by, window)
    processes = f"count by ({by}) (nvshare_client_info{{{where}}})"
    rest = f"{waits} / {processes} - {held_back_by_quota(where, by, window)} - {no_room(where, by, window)}"
    return f"clamp({rest}, 0, 1)"


def allocated(where: str, by: str) -> str:
    return f"sum by ({by}) (nvshare_client_managed_allocated_bytes{{{where}}})"


def memory_limit(where: str, by: str) -> str:
    """Nothing of pods without a limit."""
    return f"max by ({by}) (nvshare_client_memory_quota_bytes{{{where}}} > 0)"


def on_node(expr: str) -> str:
    """With the GPU's index, by which people know it: metrics of pods have its UUID alone."""
    index = "0 * nvshare_scheduler_gpu_draining"
    return f"({expr}) + on (instance, gpu_uuid) group_left (gpu_index) {index}"


def cards(where: str, simulated: bool, among: str = "") -> str:
    """GPUs that are simulated or are not, so that the one kind can be called so."""
    kind = f"(nvshare_gpu_simulated{{{where}}} == {int(simulated)})"
    chosen = f" and on (instance, gpu_uuid) {among}" if among else ""
    return f"nvshare_gpu_info{{{where}}} and on (instance, gpu_uuid) {kind}{chosen}"
