"""Where the tests of answers run: the double, and a real cluster if ``NVSHARE_TEST_KUBECONFIG`` names one.

In a real cluster they touch a namespace of their own and nothing else.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from nvshare.sim.kube_api import Handle, KubeApi, pod
from tests.sim.kube_api.asking import PATIENCE_SEC, Asker, Got, asker_of

REAL: Final = os.environ.get("NVSHARE_TEST_KUBECONFIG", "")
NODE: Final = "nvshare-test-no-such-node"  # so that no kubelet ever starts what the tests make


@dataclass(frozen=True)
class Cluster:
    """A namespace to test in, with three pods on a node."""

    asker: Asker
    namespace: str
    api: Handle | None  # of the double

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Got:
        return self.asker.ask(method, path.format(pods=self.pods, ns=self.namespace), body, **options)

    def add_pod(self, name: str, **options: Any) -> dict[str, Any]:
        given = pod(name, namespace=self.namespace, node=NODE, **options)
        got = self.ask("POST", "{pods}", given)
        assert got.status == 201, got
        made: dict[str, Any] = got.body
        return made


@contextmanager
def prepared(asker: Asker, api: Handle | None) -> Iterator[Cluster]:
    namespace = f"nvshare-test-{uuid.uuid4().hex[:8]}"
    cluster = Cluster(asker, namespace, api)
    made = asker.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    assert made.status == 201, made
    try:
        _wait_for_service_account(cluster)
        for number in range(3):
            cluster.add_pod(f"p{number}")
        yield cluster
    finally:
        asker.ask("DELETE", f"/api/v1/namespaces/{namespace}")


def _wait_for_service_account(cluster: Cluster) -> None:
    """A real cluster makes one in each namespace, and no pod before it."""
    deadline = time.monotonic() + PATIENCE_SEC
    while True:
        if cluster.ask("GET", "/api/v1/namespaces/{ns}/serviceaccounts/default").status == 200:
            return
        assert time.monotonic() < deadline, "the namespace gets no service account"
        time.sleep(0.1)


@contextmanager
def double(directory: Path, **options: Any) -> Iterator[Cluster]:
    with KubeApi(directory, **options) as api, prepared(asker_of(api), api) as cluster:
        yield cluster


@contextmanager
def real() -> Iterator[Cluster]:
    with (
        tempfile.TemporaryDirectory() as directory,
        prepared(_asker_of_kubeconfig(Path(REAL), Path(directory)), None) as cluster,
    ):
        yield cluster


def _asker_of_kubeconfig(path: Path, directory: Path) -> Asker:
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    server = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    authority = _file(server, "certificate-authority", directory)
    tls = ssl.create_default_context(cafile=str(authority) if authority else None)
    certificate, key = _file(user, "client-certificate", directory), _file(user, "client-key", directory)
    if certificate and key:
        tls.load_cert_chain(certificate, key)
    token = user.get("token") or (Path(user["tokenFile"]).read_text() if "tokenFile" in user else "")
    assert token or certificate, (
        f"{path}: user {context['user']}: a token or a client certificate is accepted"
    )
    address = urlsplit(server["server"])
    return Asker(address.hostname or "", address.port or 443, tls, token.strip())


def _named(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["name"] == name)


def _file(given: dict[str, Any], name: str, directory: Path) -> Path | None:
    if name in given:
        return Path(given[name])
    if f"{name}-data" not in given:
        return None
    path = directory / name
    path.write_bytes(base64.b64decode(given[f"{name}-data"]))
    return path
