"""Objects to begin with."""

from __future__ import annotations

from nvshare.sim.kube_api.errors import Json


def pod(
    name: str,
    *,
    node: str = "",
    namespace: str = "default",
    uid: str = "",
    annotations: dict[str, str] | None = None,
    phase: str = "Running",
    size_bytes: int = 0,
) -> Json:
    """With ``size_bytes`` its text is about that long, as the pods of real clusters are."""
    metadata: Json = {"name": name, "namespace": namespace}
    if uid:
        metadata["uid"] = uid
    if annotations:
        metadata["annotations"] = dict(annotations)
    spec: Json = {"containers": [{"name": "main", "image": "registry.example/program:1"}]}
    if node:
        spec["nodeName"] = node
    if size_bytes:
        padding = [{"name": f"VARIABLE_{number}", "value": "x" * 64} for number in range(size_bytes // 100)]
        spec["containers"][0]["env"] = padding
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {"phase": phase}}
