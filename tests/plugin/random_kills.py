"""Kills and faults at random moments, while pods come and go: ``python -m tests.plugin.random_kills --kills
200``.

After each of them:
1. all devices are offered and healthy again, and how long that took is measured;
2. each pod holds the devices it held, no device is held twice, and its container would start as it did;
3. the program of each pod runs, and has the library mapped that it began with.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from nvshare.sim.kubelet import ContainerOptions, PodRequest
from tests.plugin.harness import Node, running_node

PODS_MAX: Final = 12
LONGEST_SEC: Final = 5.0
_STARTING_SEC: Final = 0.6
"""A plugin that is killed has run for up to so long: that includes all of its start."""


class Running(NamedTuple):
    """A pod, as it was when it began."""

    request: PodRequest
    devices: list[str]
    options: ContainerOptions
    program: subprocess.Popen[bytes]
    library: str

    def is_untouched(self, node: Node) -> bool:
        same = (self.devices, self.options) == (
            node.kubelet.held(self.request),
            node.kubelet.options(self.request),
        )
        return same and self.program.poll() is None and self.library == mapped_library(self.program.pid)


def mapped_library(pid: int) -> str:
    """Device and inode of what is mapped under the library's name."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "libnvshare.so" in line:
            return " ".join(line.split()[3:5])
    return ""


class Trial:
    def __init__(self, node: Node, seed: int) -> None:
        self.node = node
        self.random = random.Random(seed)
        self.pods: list[Running] = []
        self.longest_sec = 0.0
        self._number = 0
        self._former = 0  # registrations before the last start of the plugin
        self._faults: list[Callable[[], None]] = [
            self.restart_kubelet,
            self.refuse,
            self.delete_socket,
            self.delete_library,
            self.lose_a_card,
            self.driver_away,
        ]

    # ---- pods -----------------------------------------------------------------------------------

    def begin_pod(self) -> None:
        self._number += 1
        request = PodRequest(f"p{self._number}", {"main": self.random.choice((1, 1, 2))})
        self.node.kubelet.admit(request)
        options = self.node.kubelet.options(request)
        library = self.node.plugin.sock_dir / "libnvshare.so"
        program = subprocess.Popen(["sleep", "86400"], env={"LD_PRELOAD": str(library)})
        while not (mapped := mapped_library(program.pid)):  # the loader has not come to it yet
            assert program.poll() is None
            time.sleep(0.001)
        held = self.node.kubelet.held(request)
        self.pods.append(Running(request, held, options, program, mapped))

    def end_pod(self) -> None:
        pod = self.pods.pop(self.random.randrange(len(self.pods)))
        pod.program.kill()
        pod.program.wait()
        self.node.kubelet.remove(pod.request)

    def close(self) -> None:
        while self.pods:
            self.end_pod()

    # ---- faults ---------------------------------------------------------------------------------

    def kill_plugin(self) -> None:
        if self.random.random() < 0.5:  # again, while it starts
            self.node.plugin.kill()
            self.node.plugin.start()
            time.sleep(self.random.uniform(0, _STARTING_SEC))
        self.node.plugin.kill()
        if self.random.random() < 0.3:
            self.random.choice(self._faults)()
        self._former = self.node.kubelet.registrations
        self.node.plugin.start()

    def restart_kubelet(self) -> None:
        self.node.kubelet.restart()

    def refuse(self) -> None:
        self.node.kubelet.refuse_registrations("not now", self.random.randint(1, 3))
        self.delete_socket()

    def delete_socket(self) -> None:
        (self.node.kubelet.plugin_dir / "nvshare.sock").unlink(missing_ok=True)

    def delete_library(self) -> None:
        (self.node.plugin.sock_dir / "libnvshare.so").unlink(missing_ok=True)

    def lose_a_card(self) -> None:
        uuid = self.random.choice(self.node.uuids())
        self.node.cards.fault("lost", uuid)
        time.sleep(self.random.uniform(0, 0.5))
        self.node.cards.fault("back", uuid)

    def driver_away(self) -> None:
        self.node.cards.fault("nvml-down")
        time.sleep(self.random.uniform(0, 0.5))
        self.node.cards.fault("nvml-up")

    # ---- one step -------------------------------------------------------------------------------

    def step(self) -> None:
        if len(self.pods) < PODS_MAX and self.random.random() < 0.5:
            self.begin_pod()
        elif self.pods and self.random.random() < 0.5:
            self.end_pod()
        self.kill_plugin()
        if self.random.random() < 0.3:
            self.random.choice(self._faults)()
        began = time.monotonic()
        self.node.registered_again(self._former)
        self.longest_sec = max(self.longest_sec, time.monotonic() - began)
        self.check()

    def check(self) -> None:
        touched = [pod.request.name for pod in self.pods if not pod.is_untouched(self.node)]
        assert touched == [], touched
        held = [device for pod in self.pods for device in self.node.kubelet.held(pod.request)]
        assert len(held) == len(set(held)), held


def run(directory: Path, kills: int, seed: int) -> Trial:
    with running_node(directory) as node:
        node.scheduler_is_there()
        trial = Trial(node, seed)
        try:
            for _ in range(kills):
                trial.step()
        finally:
            trial.close()
    return trial


def main() -> int:
    """The exit code: 1 if the plugin was not back in time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nvp") as name:
        trial = run(Path(name), options.kills, options.seed)
    longest = f"all devices back after at most {trial.longest_sec:.1f} s"
    print(f"{options.kills} kills, seed {options.seed}: no device lost, no pod touched, {longest}")
    return int(trial.longest_sec > LONGEST_SEC)


if __name__ == "__main__":
    sys.exit(main())
