"""A node that runs what the manifests say: both DaemonSets as containers, and pods with what Allocate
returned.

1. A DaemonSet's container gets its arguments, variables, capabilities and mounts from the rendered manifest
   of overlays/sim, and a user of the API server with the rights of its ClusterRole and no others.
2. Directories of the node are below one of the test: /var/run/nvshare is HOST/var/run/nvshare, for daemons
   and for pods alike. Ports and the number of cards are the test's.
3. The programs come from the image root (`make image-root`), or from the checkout.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import yaml

from nvshare.sim.containers import Container, Mount, SimulatedPod
from nvshare.sim.gpu import SimulatedNode
from nvshare.sim.kube_api import KubeApi
from nvshare.sim.kubelet import PodRequest, SimulatedKubelet
from tests.deploy.manifests import Json, by_key, container_of, overlay, pod_of
from tests.exporters.node import Scrape, free_port
from tests.plugin.harness import PATIENCE_SEC, wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
IMAGE: Final = ROOT / "build/image"
NODE: Final = "n1"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Image:
    """How a target of the Dockerfile is started; ``built``: from the image root, else from the checkout."""

    def __init__(self, target: str, built: bool, empty: Path) -> None:
        self.root = IMAGE / "root" if built else empty
        self.environment: dict[str, str] = {}
        self.directory = Path("/")
        if built:
            settings = json.loads((IMAGE / f"{target}.json").read_text())
            self.environment = settings["env"]
            self.entrypoint = settings["entrypoint"]
            self.user = int(settings["user"].partition(":")[0] or 0)
        else:
            module = ["nvshare.workloads"] if target == "workloads" else ["nvshare"]
            self.entrypoint = [sys.executable, "-m", *module]
            self.directory, self.user = ROOT, 0


class Daemon:
    """The pod of a DaemonSet on this node, with its container."""

    def __init__(self, node: DaemonSetNode, name: str, **variables: str) -> None:
        self.name = name
        self.port = free_port()
        self.log: list[str] = []
        self._node = node
        self._variables = variables
        self._change = threading.Condition()
        self._pod: SimulatedPod | None = None
        self._container: Container | None = None
        self._reader: threading.Thread | None = None

    def start(self, **variables: str) -> None:
        spec, container = pod_of(overlay("sim"), self.name), container_of(overlay("sim"), self.name)
        self.log.clear()
        self._pod = SimulatedPod(self._node.directory)
        image = self._node.daemon_image
        added = container["securityContext"]["capabilities"].get("add", ())
        environment = {**image.environment, **self._environment(container), **self._variables, **variables}
        self._container = self._pod.start(
            *image.entrypoint,
            *container["args"],
            environment=environment,
            mounts=[*self._mounts(spec, container), Mount(self._node.account(self.name), ACCOUNT)],
            directory=image.directory,
            host_pids=spec.get("hostPID", False),
            capabilities=[f"CAP_{name}" for name in added],
            user=container["securityContext"]["runAsUser"],
            image=image.root,
        )
        self._reader = threading.Thread(
            target=self._read, args=(self._container.process.stderr,), daemon=True
        )
        self._reader.start()
        wait_until(self.is_ready, f"{self.name} is ready: {self.log}")

    def _environment(self, container: Json) -> dict[str, str]:
        found = {"NVSHARE_METRICS_ADDR": f"127.0.0.1:{self.port}", **self._node.api_environment}
        for variable in container["env"]:
            field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            assert field in (None, "spec.nodeName")
            found[variable["name"]] = NODE if field else variable["value"]
        if self._node.driver is not None:  # there is no image with one
            found |= {"LD_LIBRARY_PATH": self._node.driver, "NVSHARE_SIM_LIB": self._node.driver}
        return found

    def _mounts(self, spec: Json, container: Json) -> Iterator[Mount]:
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in container["volumeMounts"]:
            volume = volumes[mount["name"]]
            if "hostPath" in volume:
                place = self._node.on_host(volume["hostPath"]["path"])
                if volume["hostPath"]["type"] == "DirectoryOrCreate":
                    place.mkdir(mode=0o755, parents=True, exist_ok=True)
                yield Mount(place, Path(mount["mountPath"]), writable=not mount.get("readOnly", False))
            else:
                assert "emptyDir" in volume  # a container here has a /tmp of its own

    def _read(self, stream: Any) -> None:
        for line in stream:
            self.log.append(line.rstrip("\n"))

    def is_ready(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=PATIENCE_SEC) as answer:
                return bool(answer.status == 200)
        except OSError:
            assert self._container is not None
            assert self._container.process.poll() is None, self.log
            return False

    def scrape(self) -> Scrape:
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=PATIENCE_SEC) as answer:
            return Scrape(answer.read().decode())

    def kill(self) -> None:
        """SIGKILL, and its pod goes."""
        if self._pod is not None:
            self._pod.close()
            self._pod = None
        if self._reader is not None:
            self._reader.join()
            self._reader = None


class DaemonSetNode:
    def __init__(self, directory: Path, api: KubeApi, built: bool) -> None:
        self.directory = directory
        self.api = api
        empty = directory / "empty"
        empty.mkdir()
        self.daemon_image = Image("scheduler", built, empty)
        self.program_image = Image("workloads", built, empty)
        self.driver = None if built else str(ROOT / "build/simgpu")
        self.kubelet = SimulatedKubelet(self.on_host("/var/lib/kubelet"))
        self.api_environment: Mapping[str, str] = {}
        pack = {"NVSHARE_ALLOCATION_POLICY": "pack", "NVSHARE_SIM": "t4:2"}
        self.scheduler = Daemon(self, "nvshare-scheduler", NVSHARE_CHECK="1")
        self.plugin = Daemon(self, "nvshare-device-plugin", **pack)
        self._pods: list[SimulatedPod] = []

    def on_host(self, path: str) -> Path:
        return self.directory / "host" / path.lstrip("/")

    def account(self, name: str) -> Path:
        """The service account's directory; its user has the rights of the ClusterRole of that name."""
        place = self.directory / f"account-{name}"
        if not place.exists():
            rules = by_key(overlay("sim"))["ClusterRole", name]["rules"]
            rights = [(rule["verbs"], rule["resources"]) for rule in rules]
            token = self.api.add_user(f"system:serviceaccount:nvshare-system:{name}", *rights)
            self.api_environment = self.api.service_account(place, token=token, namespace="nvshare-system")
        return place

    def cards(self) -> SimulatedNode:
        return SimulatedNode.find(self.on_host("/var/lib/nvshare-sim"))

    # ---- pods -----------------------------------------------------------------------------------

    def run(
        self,
        manifest: Path,
        *arguments: str,
        command: Sequence[str] = (),
        image_environment: Mapping[str, str] | None = None,
        **annotations: str,
    ) -> Container:
        """The pod of a manifest, admitted by the kubelet, with what the plugin adds to its container.

        ``command`` takes the place of the image's entry point and arguments.
        """
        pod = yaml.safe_load(manifest.read_text())
        made = SimulatedPod(self.directory)
        self._pods.append(made)
        named = {f"nvshare.com/{name.replace('_', '-')}": text for name, text in annotations.items()}
        pod["metadata"] |= {"uid": made.uid, "annotations": named}
        pod["spec"]["nodeName"] = NODE
        self.api.create("pods", pod)
        [container] = pod["spec"]["containers"]
        count = int(container["resources"]["limits"]["nvshare.com/gpu"])
        request = PodRequest(pod["metadata"]["name"], {container["name"]: count}, uid=made.uid)
        self.kubelet.admit(request)
        options = self.kubelet.options(request, container["name"])
        image = self.program_image
        return made.start(
            *(command or (*image.entrypoint, *container["args"], *arguments)),
            environment=options.environment_of({**image.environment, **(image_environment or {})}, {}),
            mounts=[
                Mount(self.on_host(one.host_path), Path(one.container_path), writable=not one.read_only)
                for one in options.mounts
            ],
            directory=image.directory,
            user=image.user,
            image=image.root,
        )

    def shares(self, containers: list[Container], seconds: float) -> list[float]:
        """Percent of the card that each gets in the next seconds, by the driver's own count."""
        cards = self.cards()
        before = cards.status().cards
        time.sleep(seconds)  # how long they are watched
        after = cards.status().cards
        cards.close()
        found = []
        for container in containers:
            busy_ns = [
                sum(row.busy_ns for card in status for row in card.processes if row.pid == container.host_pid)
                for status in (before, after)
            ]
            found.append(100 * (busy_ns[1] - busy_ns[0]) / (after[0].now_ns - before[0].now_ns))
        return found

    def close(self) -> None:
        for pod in self._pods:
            pod.close()
        for daemon in (self.plugin, self.scheduler):
            daemon.kill()
        self.kubelet.stop()


@contextmanager
def daemon_set_node(directory: Path, built: bool) -> Iterator[DaemonSetNode]:
    """With both daemons ready."""
    directory.chmod(0o711)
    with KubeApi(directory / "api", nodes=(NODE,)) as api:
        node = DaemonSetNode(directory, api, built)
        try:
            node.kubelet.start()
            for daemon in (node.scheduler, node.plugin):
                node.account(daemon.name)
                daemon.start()
            yield node
        finally:
            node.close()
