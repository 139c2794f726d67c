"""A cluster exporter as a process of its own, beside a double of the API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from nvshare.sim.kube_api import KubeApi, pod
from tests.exporters.monitor.harness import ExporterProcess
from tests.exporters.node import free_port

A: Final = "GPU-00000000-1111-2222-3333-44444444aaaa"
B: Final = "GPU-55555555-6666-7777-8888-99999999bbbb"
REGISTERED: Final = (
    f'[{{"id":"{A}","count":10,"devmem":24576,"devcore":100,"type":"NVIDIA A10","health":true}},'
    f'{{"id":"{B}","index":1,"count":10,"devmem":24576,"devcore":100,"type":"NVIDIA A10","health":true}}]'
)
ALLOCATED: Final = f"{A},NVIDIA,3000,30:;{A},NVIDIA,2000,20:{B},NVIDIA,2000,20:;"
"""HAMi's own example of two containers."""


def gpu_pod(
    name: str, node: str, allocated: str = ALLOCATED, containers: int = 2, **more: Any
) -> dict[str, Any]:
    annotations = {"hami.io/vgpu-node": node, "hami.io/vgpu-devices-allocated": allocated}
    made = pod(name, node=node, namespace=more.get("namespace", "default"), annotations=annotations)
    image = made["spec"]["containers"][0]["image"]
    made["spec"]["containers"] = [{"name": f"c{n}", "image": image} for n in range(containers)]
    return made


class RunningCluster:
    def __init__(self, api: KubeApi) -> None:
        self.api = api
        self._exporters: list[ExporterProcess] = []

    def annotate_node(self, name: str, **annotations: str | None) -> None:
        """``register``, ``handshake`` and ``own``; None removes one."""
        keys = {
            "register": "hami.io/node-nvidia-register",
            "handshake": "hami.io/node-handshake",
            "own": "nvshare.com/node-gpus",
        }
        patch = {"metadata": {"annotations": {keys[key]: text for key, text in annotations.items()}}}
        self.api.patch("nodes", name, patch)

    def exporter(self, *arguments: str) -> ExporterProcess:
        port = free_port()
        environment = {"KUBECONFIG": str(self.api.kubeconfig())}
        made = ExporterProcess(["cluster", "--addr", f"127.0.0.1:{port}", *arguments], environment, port)
        self._exporters.append(made)
        made.wait_words("cluster exporter started")
        return made

    def close(self) -> None:
        for exporter in self._exporters:
            exporter.close()


@contextmanager
def running_cluster(directory: Path, *nodes: str) -> Iterator[RunningCluster]:
    with KubeApi(directory / "api", nodes=nodes) as api:
        cluster = RunningCluster(api)
        try:
            yield cluster
        finally:
            cluster.close()
