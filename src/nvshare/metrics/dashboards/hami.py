"""The dashboard of HAMi's documentation: its four groups of panels and ten queries.

Where a query of the documentation cannot work, or doubles with two replicas of the cluster exporter, its
panel says what is different.
"""

from __future__ import annotations

from typing import Final

from nvshare.metrics.dashboards.model import Dashboard, Panel, Query, Section, Variable

_REPLICAS: Final = "max by (...) makes one series of what several replicas of the cluster exporter say."
LIMIT: Final = "max by (nodeid, deviceuuid) (GPUDeviceMemoryLimit)"
ALLOCATED: Final = "max by (nodeid, deviceuuid) (GPUDeviceMemoryAllocated)"
_USED: Final = "vGPU_device_memory_usage_in_bytes"
_VLIMIT: Final = "(vGPU_device_memory_limit_in_bytes > 0)"
_CONTAINER: Final = "{{podnamespace}}/{{podname}} {{ctrname}} {{vdeviceid}}"

HAMI: Final = Dashboard(
    "hami",
    "HAMi: GPUs and vGPUs",
    "What is allocated in the cluster, and what do GPUs and containers use of it?",
    (
        Variable("node", "Node", "label_values(GPUDeviceMemoryLimit, nodeid)", several=True),
        Variable(
            "namespace",
            "Namespace",
            "label_values(vGPU_device_memory_limit_in_bytes, podnamespace)",
            several=True,
        ),
    ),
    (
        Section(
            "集群 GPU 概览",
            (
                Panel(
                    title="集群总显存",
                    help=f"Memory that may be allocated. {_REPLICAS}",
                    kind="stat",
                    unit="bytes",
                    width=8,
                    queries=(Query(f"sum({LIMIT})"),),
                ),
                Panel(
                    title="集群已分配显存",
                    help=f"Memory that pods were allocated. {_REPLICAS}",
                    kind="stat",
                    unit="bytes",
                    width=8,
                    queries=(Query(f"sum({ALLOCATED})"),),
                ),
                Panel(
                    title="集群 GPU 分配率",
                    help=f"Allocated memory in percent. {_REPLICAS}",
                    kind="stat",
                    unit="percent",
                    width=8,
                    queries=(Query(f"sum({ALLOCATED}) / sum({LIMIT}) * 100"),),
                ),
            ),
        ),
        Section(
            "节点级 GPU 使用率",
            (
                Panel(
                    title="各节点物理显存使用率",
                    help="Memory in use in percent of the device's limit, with the node, which the usage does"
                    f" not name. {_REPLICAS}",
                    unit="percent",
                    queries=(
                        Query(
                            "HostGPUMemoryUsage / on (deviceuuid) group_left (nodeid)"
                            ' max by (deviceuuid, nodeid) (GPUDeviceMemoryLimit{nodeid=~"$node"}) * 100',
                            "{{nodeid}} {{deviceidx}}",
                        ),
                    ),
                ),
                Panel(
                    title="各节点 GPU 核心利用率",
                    help="Percent of the time in which a kernel ran.",
                    unit="percent",
                    queries=(Query("HostCoreUtilization", "{{instance}} {{deviceidx}}"),),
                ),
            ),
        ),
        Section(
            "容器级 vGPU 监控",
            (
                Panel(
                    title="容器 vGPU 显存使用率",
                    help="Memory in use in percent of the limit. Without a limit, 0, there is no percentage.",
                    unit="percent",
                    width=8,
                    queries=(
                        Query(
                            f'{_USED}{{podnamespace=~"$namespace"}} / {_VLIMIT} * 100',
                            _CONTAINER,
                        ),
                    ),
                ),
                Panel(
                    title="容器设备利用率",
                    help="Percent of the whole GPU's time, of all processes added up.",
                    unit="percent",
                    width=8,
                    queries=(
                        Query('Device_utilization_desc_of_container{podnamespace=~"$namespace"}', _CONTAINER),
                    ),
                ),
                Panel(
                    title="容器空闲检测",
                    help="Seconds since the last kernel, of containers that launched none for five minutes.",
                    unit="s",
                    width=8,
                    queries=(
                        Query(
                            'Device_last_kernel_of_container{podnamespace=~"$namespace"} > 300', _CONTAINER
                        ),
                    ),
                ),
            ),
        ),
        Section(
            "GPU 共享与碎片化",
            (
                Panel(
                    title="每个 GPU 上的容器数",
                    help=f"Containers that share the GPU. {_REPLICAS}",
                    queries=(
                        Query(
                            'max by (nodeid, deviceuuid, deviceidx) (GPUDeviceSharedNum{nodeid=~"$node"})',
                            "{{nodeid}} {{deviceidx}}",
                        ),
                    ),
                ),
                Panel(
                    title="GPU 显存碎片率",
                    help="What containers may have and do not use, in percent of what they may have.",
                    unit="percent",
                    queries=(Query(f"({_VLIMIT} - {_USED}) / {_VLIMIT} * 100", _CONTAINER),),
                ),
            ),
        ),
    ),
)


def config_map() -> str:
    """The ConfigMap from which HAMi's documentation takes the dashboard."""
    from nvshare.metrics.dashboards.grafana import dashboard_json

    lines = [
        "# Made from src/nvshare/metrics/dashboards/hami.py by `make docs`.",
        "apiVersion: v1",
        "kind: ConfigMap",
        "metadata:",
        "  name: hami-grafana-dashboard",
        "  namespace: hami-system",
        "  labels:",
        '    grafana_dashboard: "1"',
        "data:",
        "  dashboard.json: |",
        *(f"    {line}" for line in dashboard_json(HAMI).splitlines()),
        "",
    ]
    return "\n".join(lines)
