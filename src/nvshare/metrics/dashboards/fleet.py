"""All nodes, for who looks after them."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.dashboards import promql as p
from nvshare.metrics.dashboards.model import Column, Dashboard, Label, Mapped, Panel, Query, Section, Variable

_PODS: Final = "instance, namespace, pod, gpu_uuid"
_GPUS: Final = "instance, gpu_uuid"
_TO_GPU: Final = (
    "/d/nvshare-node?var-instance=${__data.fields.Node}&var-gpu=${__data.fields.UUID}"
    "&${datasource:queryparam}&${__url_time_range}"
)
_MEMORY_IN_USE: Final = (
    f"nvshare_gpu_memory_used_bytes{{{p.NODES}}} / nvshare_gpu_memory_total_bytes{{{p.NODES}}}"
)


def _by_gpu(expr: str) -> str:
    return f"sum by (instance, gpu_index, gpu_uuid) ({expr})"


def _count(title: str, text: str, expr: str, bad: bool = False) -> Panel:
    """Of what should be none, any is red."""
    return Panel(
        title=title,
        help=text,
        kind="stat",
        width=4,
        height=4,
        steps=((0, "green"), (1, "red")) if bad else (),
        queries=(Query(f"{expr} or vector(0)"),),
    )


_FIRING: Final = 'ALERTS{alertname=~"Nvshare.+",alertstate="firing"}'
_GLANCE: Final = (
    _count("Nodes", "Schedulers that are scraped.", f"count(nvshare_build_info{{{p.NODES}}})"),
    _count("GPUs", "That NVML tells of.", f"count(nvshare_gpu_info{{{p.NODES}}})"),
    _count(
        "Simulated GPUs",
        "Of these GPUs. Their figures are those of a model, not of a card.",
        f"count(nvshare_gpu_simulated{{{p.NODES}}} == 1)",
    ),
    _count(
        "Pods",
        "That have a process on a GPU now.",
        f"count(count by (instance, namespace, pod) (nvshare_client_info{{{p.NODES}}}))",
    ),
    _count("Alerts", "Of alert-rules.yml, that are firing.", f"count({_FIRING})", bad=True),
    _count(
        "Sources down",
        "NVML of a node, or a GPU, that does not answer.",
        f"count(nvshare_source_up{{{p.NODES}}} == 0)",
        bad=True,
    ),
    Panel(
        title="All GPUs",
        help="The last five minutes. Billed far below 100 % with few processes waiting: there is room."
        " Processes waiting while little is billed: quotas are small, or memory does not fit.",
        kind="table",
        width=24,
        height=9,
        labels=(Label("instance", "Node"), Label("gpu_index", "GPU", _TO_GPU), Label("gpu_uuid", "UUID")),
        columns=(
            Column(
                "Kind",
                _by_gpu(f"nvshare_gpu_simulated{{{p.NODES}}}"),
                mapped=(Mapped(0, "real", "text"), Mapped(1, "simulated", "purple")),
            ),
            Column(
                "Pods",
                _by_gpu(
                    p.on_node(f"count by ({_GPUS}) (count by ({_PODS}) (nvshare_client_info{{{p.NODES}}}))")
                ),
            ),
            Column("Billed", _by_gpu(p.on_node(p.got(p.NODES, _GPUS, p.RECENT))), "percentunit", gauge=True),
            Column(
                "Utilization",
                _by_gpu(f"avg_over_time(nvshare_gpu_utilization_ratio{{{p.NODES}}}[{p.RECENT}])"),
                "percentunit",
                gauge=True,
            ),
            Column("Memory in use", _by_gpu(_MEMORY_IN_USE), "percentunit", gauge=True),
            Column(
                "Waiting",
                _by_gpu(
                    f"avg_over_time(nvshare_scheduler_request_queue_clients{{{p.NODES}}}[{p.RECENT}])"
                    f" + avg_over_time(nvshare_scheduler_wait_queue_clients{{{p.NODES}}}[{p.RECENT}])"
                ),
            ),
            Column("Temperature", _by_gpu(f"nvshare_gpu_temperature_celsius{{{p.NODES}}}"), "celsius"),
            Column("Power", _by_gpu(f"nvshare_gpu_power_watts{{{p.NODES}}}"), "watt"),
        ),
    ),
)

_ROOM: Final = (
    Panel(
        title="GPU time billed, by node",
        help="Average over the GPUs of a node. What is missing from 100 % was billed to nobody.",
        unit="percentunit",
        axis_to=1,
        width=8,
        queries=(Query(f"avg by (instance) ({p.got(p.NODES, _GPUS)})", "{{instance}}"),),
    ),
    Panel(
        title="GPU memory in use, by node",
        help="Of all GPUs of a node together, as NVML counts it.",
        unit="percentunit",
        axis_to=1,
        width=8,
        queries=(
            Query(
                f"sum by (instance) (nvshare_gpu_memory_used_bytes{{{p.NODES}}})"
                f" / sum by (instance) (nvshare_gpu_memory_total_bytes{{{p.NODES}}})",
                "{{instance}}",
            ),
        ),
    ),
    Panel(
        title="Power, by node",
        help="Of all GPUs of a node together, as NVML reports it.",
        unit="watt",
        width=8,
        queries=(Query(f"sum by (instance) (nvshare_gpu_power_watts{{{p.NODES}}})", "{{instance}}"),),
    ),
)

_WHO: Final = (
    Panel(
        title="GPU time by namespace",
        help="In GPUs: 2 is two whole GPUs. As billed.",
        stacked=True,
        width=8,
        queries=(Query(p.got(p.NODES, "namespace"), "{{namespace}}"),),
    ),
    Panel(
        title="GPU memory by namespace",
        help="As allocated by pods through nvshare.",
        unit="bytes",
        stacked=True,
        width=8,
        queries=(Query(p.allocated(p.NODES, "namespace"), "{{namespace}}"),),
    ),
    Panel(
        title="Pods with the most GPU time",
        help="The ten that were billed most, over all their GPUs.",
        unit="percentunit",
        width=8,
        queries=(Query(f"topk(10, {p.got(p.NODES, 'namespace, pod')})", p.POD),),
    ),
)

_TROUBLE: Final = (
    Panel(
        title="Pods furthest below their quota",
        help="Time billed over what the quota came to while the pod had work, the ten with the least. Lines"
        " that stay well below 100 % are pods that do not get what they were promised, or have little work.",
        unit="percentunit",
        axis_to=1,
        width=8,
        queries=(
            Query(
                f"bottomk(10, min by (namespace, pod) ({p.got_of_due(p.NODES, _PODS, p.INTERVAL)}))", p.POD
            ),
        ),
    ),
    Panel(
        title="Pods most held back by their quota",
        help="Part of the time they wanted a GPU and had used up their quota: the ten with most.",
        unit="percentunit",
        axis_to=1,
        width=8,
        queries=(
            Query(f"topk(10, max by (namespace, pod) ({p.held_back_by_quota(p.NODES, _PODS)}))", p.POD),
        ),
    ),
    Panel(
        title="Pods most kept out for want of memory",
        help="Part of the time they wanted a GPU and did not fit beside the others: the ten with"
        " most. All zero where pods fit.",
        unit="percentunit",
        axis_to=1,
        width=8,
        queries=(Query(f"topk(10, max by (namespace, pod) ({p.no_room(p.NODES, _PODS)}))", p.POD),),
    ),
)

FLEET: Final = Dashboard(
    name="fleet",
    title="nvshare: fleet",
    question="Which node needs me, where is there room, and who uses the GPUs?",
    variables=(Variable("instance", "Node", "label_values(nvshare_build_info, instance)", several=True),),
    sections=(
        Section("At a glance", _GLANCE),
        Section("Where is there room?", _ROOM),
        Section("Who uses the GPUs?", _WHO),
        Section("Who does not get enough?", _TROUBLE),
    ),
)
