"""What kubectl makes of deploy/kustomize."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
KUSTOMIZE: Final = ROOT / "deploy/kustomize"
OVERLAYS: Final = ("gpu", "sim")
COMPONENTS: Final = ("monitoring", "runtime-class")
NAMESPACE: Final = "nvshare-system"
DAEMON_SETS: Final = ("nvshare-scheduler", "nvshare-device-plugin")
LEAST_KUBECTL: Final = 27
Json = dict[str, Any]


@cache
def kubectl() -> str:
    """Of ``make kubectl``, or the machine's. Overlays with components need 1.27 or later."""
    found = shutil.which(str(ROOT / "build/tools/kubectl")) or shutil.which("kubectl")
    if found is None:
        pytest.skip("needs kubectl >= 1.27, and there is none; `make kubectl` installs it")
    done = subprocess.run([found, "version", "--client", "-o", "json"], capture_output=True, text=True)
    version = json.loads(done.stdout)["clientVersion"]
    minor = int("".join(filter(str.isdigit, version["minor"])))
    if minor < LEAST_KUBECTL:
        pytest.skip(
            f"needs kubectl >= 1.27, and {found} is {version['gitVersion']}; `make kubectl` installs it"
        )
    return found


def rendered(directory: Path) -> list[Json]:
    done = subprocess.run([kubectl(), "kustomize", str(directory)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@cache
def overlay(name: str) -> tuple[Json, ...]:
    return tuple(rendered(KUSTOMIZE / "overlays" / name))


def with_components(directory: Path, name: str, *components: str) -> list[Json]:
    """An overlay with components, as a user writes it."""
    copy = directory / "kustomize"
    shutil.copytree(KUSTOMIZE, copy, dirs_exist_ok=True)
    own = copy / "overlays/own"
    own.mkdir(exist_ok=True)
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"../{name}"],
        "components": [f"../../components/{one}" for one in components],
    }
    (own / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return rendered(own)


def key(document: Json) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def by_key(documents: Any) -> dict[tuple[str, str], Json]:
    found = {key(document): document for document in documents}
    assert len(found) == len(list(documents)), "two objects of one name"
    return found


def pod_of(documents: Any, name: str) -> Json:
    """The pod's specification of a DaemonSet."""
    spec: Json = by_key(documents)["DaemonSet", name]["spec"]["template"]["spec"]
    return spec


def container_of(documents: Any, name: str) -> Json:
    [container] = pod_of(documents, name)["containers"]
    found: Json = container
    return found


def environment_of(documents: Any, name: str) -> dict[str, Any]:
    return {
        one["name"]: one.get("value", one.get("valueFrom")) for one in container_of(documents, name)["env"]
    }
