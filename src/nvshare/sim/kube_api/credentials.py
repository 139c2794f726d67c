"""How clients find the double: a kubeconfig, or the files that a kubelet mounts into a pod."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from nvshare.sim.kube_api.store import encode


def write_kubeconfig(path: Path, url: str, ca_path: Path, token: str, namespace: str) -> Path:
    """Its paths are absolute: clients take others as relative to the file."""
    name = "simulated"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": url, "certificate-authority": str(ca_path.resolve())}}
        ],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "current-context": name,
    }
    _replace(path, encode(content) + b"\n")  # JSON is YAML
    return path


def write_service_account(directory: Path, ca_path: Path, token: str, namespace: str) -> None:
    """Like a projected volume: the files are links through ``..data``, which is exchanged as a whole."""
    directory.mkdir(parents=True, exist_ok=True)
    generation = directory / f"..{secrets.token_hex(8)}"
    generation.mkdir()
    contents = {"token": token.encode(), "ca.crt": ca_path.read_bytes(), "namespace": namespace.encode()}
    for name, content in contents.items():
        (generation / name).write_bytes(content)
    data, link = directory / "..data", directory / "..data_tmp"
    former = data.resolve() if data.is_symlink() else None
    link.unlink(missing_ok=True)
    link.symlink_to(generation.name)
    link.rename(data)
    for name in contents:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")
    if former is not None:
        shutil.rmtree(former, ignore_errors=True)


def in_cluster_environment(port: int) -> dict[str, str]:
    return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}


def _replace(path: Path, content: bytes) -> None:
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
    new.rename(path)
