"""One pod, for its owner."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.dashboards import promql as p
from nvshare.metrics.dashboards.model import Column, Dashboard, Label, Mapped, Panel, Query, Section, Variable

_WHERE: Final = f'{p.NODES},namespace="$namespace",pod="$pod"'
_GPUS: Final = "instance, gpu_uuid"
_INDEX: Final = "GPU {{gpu_index}}"
_CLIENTS: Final = f"nvshare_client_info{{{_WHERE}}}"
_PROCESS: Final = "instance, gpu_index, host_pid"
_BUSY: Final = f"avg_over_time(nvshare_client_sm_utilization_ratio{{{_WHERE}}}[{p.RECENT}])"
_BILLED: Final = "nvshare_pod_gpu_billed_seconds_total"


def _per_gpu(expr: str, what: str) -> Query:
    return Query(p.on_node(expr), f"{_INDEX} {what}")


def _of_processes(figure: str) -> str:
    same = "instance, namespace, pod, client_id, gpu_uuid"
    joined = f"{figure} * on ({same}) group_left (gpu_index, host_pid) {_CLIENTS}"
    return f"sum by ({_PROCESS}) ({joined})"


_GLANCE: Final = (
    Panel(
        title="Where it runs",
        help="Node, GPU and model. Simulated GPUs are called so.",
        kind="stat",
        width=8,
        height=4,
        names_only=True,
        empty="Not connected, or NVML is down",
        queries=(
            Query(
                p.cards(p.NODES, simulated=True, among=_CLIENTS),
                "{{instance}} GPU {{gpu_index}}: {{gpu_name}} (simulated)",
                quiet=True,
            ),
            Query(
                p.cards(p.NODES, simulated=False, among=_CLIENTS),
                "{{instance}} GPU {{gpu_index}}: {{gpu_name}}",
                quiet=True,
            ),
        ),
    ),
    Panel(
        title="Compute quota",
        help="As configured. The smallest, if it differs between GPUs.",
        kind="stat",
        unit="percentunit",
        width=3,
        height=4,
        empty="-",
        mapped=(Mapped(1, "None", "text"),),
        queries=(Query(f"min(nvshare_client_core_quota_config_percent{{{_WHERE}}}) / 100"),),
    ),
    Panel(
        title="Got of what was due",
        help="In the time shown: time billed to the pod over what its quota came to while it had work, on the"
        " GPU where that is least. A little below 100 % is normal for a pod that does not always have work.",
        kind="stat",
        unit="percentunit",
        width=4,
        height=4,
        decimals=0,
        empty="No quota",
        steps=((0, "red"), (0.8, "orange"), (0.95, "green")),
        queries=(Query(f"min({p.got_of_due(_WHERE, _GPUS, p.RANGE)})"),),
    ),
    Panel(
        title="Memory limit in use",
        help="What the pod has allocated, over its limit, on the GPU where that is most.",
        kind="stat",
        unit="percentunit",
        width=3,
        height=4,
        decimals=0,
        empty="No limit",
        steps=((0, "green"), (0.9, "orange"), (1.001, "red")),
        queries=(Query(f"max({p.allocated(_WHERE, _GPUS)} / {p.memory_limit(_WHERE, _GPUS)})"),),
    ),
    Panel(
        title="Memory limit set by",
        help="annotation, env, ctl, run or default; none if there is no limit.",
        kind="stat",
        width=3,
        height=4,
        names_only=True,
        empty="-",
        queries=(
            Query(f"max by (source) (nvshare_client_memory_quota_source_info{{{_WHERE}}})", "{{source}}"),
        ),
    ),
    Panel(
        title="Since its last kernel",
        help="How long ago the pod last worked on a GPU.",
        kind="stat",
        unit="s",
        width=3,
        height=4,
        decimals=0,
        empty="Never worked",
        queries=(Query(f"min(time() - (nvshare_pod_last_kernel_timestamp_seconds{{{_WHERE}}} > 0))"),),
    ),
)

_PROMISE: Final = (
    Panel(
        title="Quota against got",
        help="Got: time billed to the pod, which is what counts against its quota. Due: what the quota came"
        " to while the pod had work. Quota: as configured, 100 % if there is none. Got should follow due; due"
        " is below the quota while the pod is idle, or where the quotas of all pods exceed the GPU.",
        unit="percentunit",
        dashed=" (due|quota)$",
        queries=(
            _per_gpu(p.got(_WHERE, _GPUS), "got"),
            _per_gpu(p.due(_WHERE, _GPUS), "due"),
            _per_gpu(
                f"max by ({_GPUS}) (nvshare_client_core_quota_config_percent{{{_WHERE}}}) / 100", "quota"
            ),
        ),
    ),
    Panel(
        title="Memory against limit",
        help="What the pod has allocated, what NVML counts of its processes (with what the driver takes), and"
        " its limit, if it has one.",
        unit="bytes",
        dashed=" limit$",
        queries=(
            _per_gpu(p.allocated(_WHERE, _GPUS), "allocated"),
            _per_gpu(f"sum by ({_GPUS}) (nvshare_client_nvml_used_bytes{{{_WHERE}}})", "NVML"),
            _per_gpu(p.memory_limit(_WHERE, _GPUS), "limit"),
        ),
    ),
)

_TOTAL: Final = f"sum by ({_GPUS}) (rate({_BILLED}{{{p.NODES}}}[{p.INTERVAL}]))"
_OWN: Final = p.got(_WHERE, _GPUS)
_WORKED: Final = p.rate("nvshare_pod_gpu_occupied_seconds_total", _WHERE, _GPUS)
_REASONS: Final = (
    Panel(
        title="Where its time goes",
        help="Stacked: it had the GPU; its own quota held it back (a larger quota helps); others had their"
        " turns (the price of sharing); its memory did not fit beside the others' (limits, or another GPU)."
        " What is missing from 100 % is time without work of its own. Averages over its GPUs and processes,"
        " and of waits for others over five minutes.",
        unit="percentunit",
        axis_to=1,
        stacked=True,
        queries=(
            Query(f"avg({_OWN})", "has the GPU"),
            Query(f"avg({p.held_back_by_quota(_WHERE, _GPUS)})", "own quota"),
            Query(f"avg({p.others_turns(_WHERE, _GPUS)})", "others' turns"),
            Query(f"avg({p.no_room(_WHERE, _GPUS)})", "no room in memory"),
        ),
    ),
    Panel(
        title="How long it waits for the GPU",
        help="From a process's request until it has the GPU: half of its waits are shorter than the one, 99"
        " of 100 shorter than the other.",
        unit="s",
        queries=(
            Query(p.quantile(0.5, "nvshare_pod_gpu_lock_wait_seconds", _WHERE, ""), "median"),
            Query(p.quantile(0.99, "nvshare_pod_gpu_lock_wait_seconds", _WHERE, ""), "99th percentile"),
        ),
    ),
    Panel(
        title="Its GPU, and who else has it",
        help="Time billed to this pod, to others, and to nobody. An average, if it has several GPUs.",
        unit="percentunit",
        axis_to=1,
        stacked=True,
        queries=(
            Query(f"avg({_OWN})", "this pod"),
            Query(f"avg(clamp_min({_TOTAL} - {_OWN}, 0))", "other pods"),
            Query(f"avg(clamp_min(1 - {_TOTAL}, 0) and {_OWN})", "nobody"),
        ),
    ),
    Panel(
        title="Ahead of its quota",
        help="How far what was billed is ahead of what was due. A pod that is ahead waits until its quota has"
        " caught up. A turn's length is normal; more comes from long kernels, or from memory that does not"
        " fit, where a pod works ahead before it is kept out.",
        unit="ms",
        queries=(_per_gpu(f"max by ({_GPUS}) (nvshare_client_quota_debt_ms{{{_WHERE}}})", "ahead"),),
    ),
)


def _misdeed(metric: str, legend: str) -> Query:
    return Query(p.increase(metric, _WHERE, "namespace, pod"), legend)


_OWN_DOING: Final = (
    Panel(
        title="How well it uses what it gets",
        help="Part of the time billed to it in which the GPU really worked for it. Far below 100 %: it waits"
        " between its kernels, and gets more out of the same quota if it launches them ahead.",
        unit="percentunit",
        axis_to=1,
        width=8,
        queries=(_per_gpu(f"clamp_max({_WORKED} / ({_OWN} > 0), 1)", "worked"),),
    ),
    Panel(
        title="Where it broke the rules",
        help="Late drains: turns it did not let go of in time, so that others ran beside it. Disputed bills:"
        " NVML saw it work longer than it said. False holds: it said it had the GPU and had not. Memory"
        " claims cut: it claimed more memory than it can have. All zero for a pod that behaves.",
        width=8,
        decimals=0,
        queries=(
            _misdeed("nvshare_pod_late_drains_total", "late drains"),
            _misdeed("nvshare_pod_disputed_bills_total", "disputed bills"),
            _misdeed("nvshare_pod_false_holds_total", "false holds"),
            _misdeed("nvshare_pod_memory_claims_cut_total", "memory claims cut"),
        ),
    ),
    Panel(
        title="Its processes",
        help="Of those connected now: the process ID on the node, memory as allocated and as NVML counts it,"
        " and how busy they kept multiprocessors in the last five minutes.",
        kind="table",
        width=8,
        labels=(Label("instance", "Node"), Label("gpu_index", "GPU"), Label("host_pid", "Process")),
        columns=(
            Column(
                "Allocated", _of_processes(f"nvshare_client_managed_allocated_bytes{{{_WHERE}}}"), "bytes"
            ),
            Column("NVML", _of_processes(f"nvshare_client_nvml_used_bytes{{{_WHERE}}}"), "bytes"),
            Column("Busy", _of_processes(_BUSY), "percentunit"),
        ),
    ),
)

_SEEN: Final = "nvshare_pod_last_seen_timestamp_seconds"
POD: Final = Dashboard(
    name="pod",
    title="nvshare: pod",
    question="Does my pod get what it was promised, and if not, what holds it back?",
    variables=(
        Variable("namespace", "Namespace", f"label_values({_SEEN}, namespace)"),
        Variable("pod", "Pod", f'label_values({_SEEN}{{namespace="$namespace"}}, pod)'),
        Variable(
            "instance",
            "Node",
            f'label_values({_SEEN}{{namespace="$namespace",pod="$pod"}}, instance)',
            several=True,
        ),
    ),
    sections=(
        Section("At a glance", _GLANCE),
        Section("What it was promised", _PROMISE),
        Section("What holds it back", _REASONS),
        Section("Its own doing", _OWN_DOING),
    ),
)
