"""One GPU of one node, for who runs it."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.dashboards import promql as p
from nvshare.metrics.dashboards.model import (
    Axis,
    Column,
    Dashboard,
    Label,
    Mapped,
    Panel,
    Query,
    Section,
    Variable,
)

_HERE: Final = 'instance="$instance",gpu_uuid="$gpu"'
_PODS: Final = "namespace, pod"
_TO_POD: Final = (
    "/d/nvshare-pod?var-namespace=${__data.fields.Namespace}&var-pod=${__data.fields.Pod}"
    "&${datasource:queryparam}&${__url_time_range}"
)

_GLANCE: Final = (
    Panel(
        title="Card",
        help="What NVML calls the GPU, and whether it is a simulated one.",
        kind="stat",
        width=7,
        height=4,
        names_only=True,
        empty="NVML does not answer",
        queries=(
            Query(p.cards(_HERE, simulated=True), "{{gpu_name}} (simulated)", quiet=True),
            Query(p.cards(_HERE, simulated=False), "{{gpu_name}}", quiet=True),
        ),
    ),
    Panel(
        title="Pods",
        help="Pods that have a process on the GPU now.",
        kind="stat",
        width=3,
        height=4,
        queries=(Query(f"count(count by ({_PODS}) (nvshare_client_info{{{_HERE}}})) or vector(0)"),),
    ),
    Panel(
        title="State",
        help="Draining: `nvshare ctl drain` keeps new pods away. Memory overloaded: the pods that want to run"
        " do not fit together, and take long slices in turn.",
        kind="stat",
        width=5,
        height=4,
        mapped=(
            Mapped(0, "Open to pods", "green"),
            Mapped(1, "Memory overloaded", "orange"),
            Mapped(2, "Draining", "blue"),
            Mapped(3, "Draining, overloaded", "orange"),
        ),
        queries=(
            Query(
                f"2 * nvshare_scheduler_gpu_draining{{{_HERE}}}"
                f" + nvshare_scheduler_memory_overloaded{{{_HERE}}}"
            ),
        ),
    ),
    Panel(
        title="Processes past nvshare",
        help="Processes that compute on the GPU and are no clients of the scheduler: they have no quota, and"
        " nobody is billed for their time.",
        kind="stat",
        width=4,
        height=4,
        steps=((0, "green"), (1, "orange")),
        queries=(Query(f"count(nvshare_unmanaged_process_info{{{_HERE}}}) or vector(0)"),),
    ),
    Panel(
        title="Hardware errors",
        help="In the time shown: XID events, and memory errors that could not be corrected.",
        kind="stat",
        width=5,
        height=4,
        decimals=0,
        steps=((0, "green"), (1, "red")),
        queries=(
            Query(p.increase("nvshare_gpu_xid_errors_total", _HERE, "gpu_uuid", p.RANGE), "XID"),
            Query(p.increase("nvshare_gpu_ecc_uncorrected_errors_total", _HERE, "gpu_uuid", p.RANGE), "ECC"),
        ),
    ),
)

_TABLE: Final = Panel(
    title="Pods on this GPU",
    help="Quota, share, waits and memory: the last five minutes. Late drains and disputed bills: in the time"
    " shown. A pod without a quota takes what quotas leave. One whose quota is missing has gone.",
    kind="table",
    width=24,
    labels=(Label("namespace", "Namespace"), Label("pod", "Pod", _TO_POD)),
    columns=(
        Column(
            "Quota",
            f"max by ({_PODS}) (nvshare_client_core_quota_config_percent{{{_HERE}}}) / 100",
            "percentunit",
            mapped=(Mapped(1, "none", "text"),),
        ),
        Column("Got", p.got(_HERE, _PODS, p.RECENT), "percentunit", gauge=True),
        Column("Got of what was due", p.got_of_due(_HERE, _PODS, p.RECENT), "percentunit"),
        Column("Held back by quota", p.held_back_by_quota(_HERE, _PODS, p.RECENT), "percentunit"),
        Column("Waits for others", p.others_turns(_HERE, _PODS, p.RECENT), "percentunit"),
        Column(
            "Wait, 99th percentile",
            p.quantile(0.99, "nvshare_pod_gpu_lock_wait_seconds", _HERE, _PODS, p.RECENT),
            "s",
        ),
        Column("Memory", p.allocated(_HERE, _PODS), "bytes"),
        Column("Memory limit", p.memory_limit(_HERE, _PODS), "bytes"),
        Column("Late drains", p.increase("nvshare_pod_late_drains_total", _HERE, _PODS, p.RANGE), "short"),
        Column(
            "Disputed bills", p.increase("nvshare_pod_disputed_bills_total", _HERE, _PODS, p.RANGE), "short"
        ),
    ),
)

_SHARES: Final = (
    Panel(
        title="Who has the GPU",
        help="Time billed to each pod, stacked. What is missing from 100 % was billed to nobody: the GPU was"
        " idle, or those who wanted it had used up their quotas.",
        unit="percentunit",
        axis_to=1,
        stacked=True,
        queries=(Query(p.got(_HERE, _PODS), p.POD),),
    ),
    Panel(
        title="Quota against got",
        help="Solid: time billed to the pod. Dashed: what its quota came to while it had work. A pod whose"
        " solid line stays below the dashed one does not get what it was promised. Pods without a quota have"
        " no dashed line.",
        unit="percentunit",
        dashed=" due$",
        queries=(
            Query(p.got(_HERE, _PODS), f"{p.POD} got"),
            Query(p.due(_HERE, _PODS), f"{p.POD} due"),
        ),
    ),
)

_WAITS: Final = (
    Panel(
        title="Held back by their own quota",
        help="Part of the time in which the pod wanted the GPU and had used up its quota. The remedy is a"
        " larger quota.",
        unit="percentunit",
        axis_to=1,
        width=8,
        queries=(Query(p.held_back_by_quota(_HERE, _PODS), p.POD),),
    ),
    Panel(
        title="Waiting for others' turns",
        help="Part of the last five minutes in which a process of the pod waited while others had the GPU:"
        " the price of sharing.",
        unit="percentunit",
        axis_to=1,
        width=8,
        queries=(Query(p.others_turns(_HERE, _PODS), p.POD),),
    ),
    Panel(
        title="Kept out for want of memory",
        help="Part of the time in which the pod wanted the GPU and its memory did not fit beside the others'."
        " The remedies are memory limits, or another GPU for one of the pods.",
        unit="percentunit",
        axis_to=1,
        width=8,
        queries=(Query(p.no_room(_HERE, _PODS), p.POD),),
    ),
    Panel(
        title="What changing hands costs",
        help="Length of a turn, how much of it is lost when the GPU changes hands, and how long pods take to"
        " let go of it (both the 99th percentile). Long kernels make the last one long.",
        unit="s",
        queries=(
            Query(f"nvshare_scheduler_turn_seconds{{{_HERE}}}", "turn"),
            Query(p.quantile(0.99, "nvshare_scheduler_handover_seconds", _HERE, ""), "lost", quiet=True),
            Query(
                p.quantile(0.99, "nvshare_scheduler_drop_to_release_seconds", _HERE, ""),
                "letting go",
                quiet=True,
            ),
        ),
    ),
    Panel(
        title="Processes running and waiting",
        help="A look at each scrape: processes that have the GPU, that wait for their turn, and that wait for"
        " memory or for their quota.",
        stacked=True,
        queries=(
            Query(f"nvshare_scheduler_running_clients{{{_HERE}}}", "running"),
            Query(f"nvshare_scheduler_request_queue_clients{{{_HERE}}}", "waiting for a turn"),
            Query(f"nvshare_scheduler_wait_queue_clients{{{_HERE}}}", "waiting for memory or quota"),
        ),
    ),
)

_CARD: Final = (
    Panel(
        title="Memory against the card",
        help="What each pod has allocated, and what no client reported: contexts of the driver, and processes"
        " past nvshare. Dashed: what pods may fill together, and all the card has.",
        unit="bytes",
        width=8,
        stacked=True,
        dashed="^(safe limit|card)$",
        queries=(
            Query(p.allocated(_HERE, _PODS), p.POD),
            Query(f"nvshare_scheduler_stranger_memory_bytes{{{_HERE}}}", "driver and strangers"),
            Query(f"nvshare_scheduler_memory_safe_limit_bytes{{{_HERE}}}", "safe limit"),
            Query(f"nvshare_gpu_memory_total_bytes{{{_HERE}}}", "card"),
        ),
    ),
    Panel(
        title="GPU utilization",
        help="As NVML reports it: part of the time in which a kernel ran, and in which memory was read or"
        " written. Beside it the time that was billed to pods: far more than the kernels' means that pods"
        " hold the GPU without using it.",
        unit="percentunit",
        width=8,
        axis_to=1,
        dashed="^billed$",
        queries=(
            Query(f"nvshare_gpu_utilization_ratio{{{_HERE}}}", "kernels"),
            Query(f"nvshare_gpu_memory_utilization_ratio{{{_HERE}}}", "memory"),
            Query(p.got(_HERE, "gpu_uuid"), "billed"),
        ),
    ),
    Panel(
        title="Temperature and power",
        help="As NVML reports them.",
        unit="celsius",
        width=8,
        right=Axis("^power$", "watt"),
        queries=(
            Query(f"nvshare_gpu_temperature_celsius{{{_HERE}}}", "temperature"),
            Query(f"nvshare_gpu_power_watts{{{_HERE}}}", "power"),
        ),
    ),
)

NODE: Final = Dashboard(
    name="node",
    title="nvshare: GPU of a node",
    question="Is this GPU shared fairly, who waits, and why?",
    variables=(
        Variable("instance", "Node", "label_values(nvshare_build_info, instance)"),
        Variable(
            "gpu",
            "GPU",
            'query_result(nvshare_scheduler_gpu_draining{instance="$instance"})',
            regex='/gpu_index="(?<text>[^"]+)".*gpu_uuid="(?<value>[^"]+)"/',
        ),
    ),
    sections=(
        Section("At a glance", (*_GLANCE, _TABLE)),
        Section("Shares", _SHARES),
        Section("Waits", _WAITS),
        Section("The card", _CARD),
    ),
)
