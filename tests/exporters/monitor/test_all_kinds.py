"""One node with everything at once, in real containers: HAMi's, nvshare's, a whole-card pod, and a plain
process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nvshare.sim.gpu import library_directory
from tests.exporters.monitor.harness import ROOT, V12, MonitoredNode, with_process
from tests.hami.samples import expected
from tests.pods.node_of_pods import CARDS, KERNEL_US, NODE, node_of_pods

WITHOUT_LIBRARY = {"LD_PRELOAD": ""}


@pytest.mark.slow
def test_every_process_is_counted_once_and_the_sums_are_the_drivers(place: Path) -> None:
    with node_of_pods(place) as node:
        simulation = {"NVSHARE_SIM": CARDS, "NVSHARE_SIM_DIR": str(place / "sim")}
        simulation["LD_LIBRARY_PATH"] = str(library_directory())
        watched = MonitoredNode(place, node.api, node.cards, simulation)
        plain = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.hold_context"],
            env={**os.environ, **simulation},
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        try:
            assert plain.stdout is not None
            assert plain.stdout.readline() == "holding\n"
            [card] = node.cards.status().cards
            tenants = [
                node.pod(name, annotations={"gpu-core-limit": "30"}) for name in ("tenant-a", "tenant-b")
            ]
            containers = {
                f"tenant-{letter}": [node.work(one)] for letter, one in zip("ab", tenants, strict=True)
            }
            command = (node.saturate, KERNEL_US, "direct")
            whole = node.pod("whole")
            containers["whole"] = [
                node.start(whole, *command, says="ready", environment=WITHOUT_LIBRARY) for _ in range(2)
            ]
            hamis = node.pod("hamis")
            allocated = f"{card.uuid},NVIDIA,4096,30:;"
            annotations = {"hami.io/vgpu-node": NODE, "hami.io/vgpu-devices-allocated": allocated}
            node.api.patch("pods", "default/hamis", {"metadata": {"annotations": annotations}})
            containers["hamis"] = [node.start(hamis, *command, says="ready", environment=WITHOUT_LIBRARY)]
            host_pid = containers["hamis"][0].host_pid
            watched.region(hamis.uid, "main", with_process(V12, 1, host_pid))
            monitor = watched.monitor()

            [card] = node.cards.status().cards
            used = {process.pid: process.used_bytes for process in card.processes}
            assert len(used) == 6
            wanted = {
                name: sum(used[one.host_pid] for one in started)
                for name, started in containers.items()
                if name != "hamis"
            }
            gpu = {"gpu_uuid": card.uuid}

            def settled(scrape: object) -> bool:
                found = {s.labels["pod"]: s.value for s in scrape.of("nvshare_monitor_pod_memory_used_bytes")}  # type: ignore[attr-defined]
                return found == wanted

            scrape = monitor.wait_scrape(settled)
            assert scrape.value("nvshare_monitor_gpu_hami_memory_used_bytes", **gpu) == used[host_pid]
            assert scrape.value("nvshare_monitor_gpu_other_memory_used_bytes", **gpu) == used[plain.pid]
            shown = sum(wanted.values()) + used[host_pid] + used[plain.pid]
            assert (
                shown
                == sum(used.values())
                == sum(p.used_bytes for p in node.cards.status().cards[0].processes)
            )
            assert scrape.value("HostGPUMemoryUsage", deviceuuid=card.uuid) == card.used_bytes
            usage = scrape.of("vGPU_device_memory_usage_in_bytes")
            assert {(s.labels["podname"], s.value) for s in usage} == {
                ("hamis", device["used_bytes"]) for device in expected(V12)["devices"]
            }
            assert scrape.value("nvshare_monitor_unverified_processes", pod="hamis") == 0
            assert scrape.value("nvshare_monitor_pod_processes", pod="whole") == 2
            containers["hamis"][0].kill()
            monitor.wait_scrape(
                lambda s: (
                    s.value("nvshare_monitor_dead_processes", pod="hamis") == 1
                    and s.value("nvshare_monitor_gpu_hami_memory_used_bytes", **gpu) == 0
                )
            )
        finally:
            watched.close()
            plain.kill()
            plain.communicate()
