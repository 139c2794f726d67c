"""Starts a double: what it is made of, and what is in it from the beginning."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nvshare.sim.kube_api.access import ADMIN, Access, Right
from nvshare.sim.kube_api.commands import Commands
from nvshare.sim.kube_api.kubelets import SimulatedKubelets
from nvshare.sim.kube_api.objects import TRUSTED
from nvshare.sim.kube_api.resources import NAMESPACES, NODES
from nvshare.sim.kube_api.server import Server
from nvshare.sim.kube_api.service import Service
from nvshare.sim.kube_api.store import HISTORY_BYTES, HISTORY_CHANGES, Store

ADMIN_SOCKET: Final = "admin.sock"
READY_FILE: Final = "port"
_TOKEN_FILE: Final = "admin-token"
_ALL: Final = Right(frozenset({"*"}), frozenset({"*"}))
_NAMESPACES: Final = ("default", "kube-system")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    directory: Path
    nodes: tuple[str, ...] = ()
    history: int = HISTORY_CHANGES
    history_bytes: int = HISTORY_BYTES
    bookmark_sec: float = 60.0
    kubelet_sec: float | None = None  # after which a pod to be deleted is gone; None: nobody ends it
    streaming_lists: bool = False


def admin_token(directory: Path) -> str:
    return (directory / _TOKEN_FILE).read_text()


def start(options: Options) -> tuple[Server, Commands]:
    """Within a running event loop; it listens when this returns."""
    options.directory.mkdir(parents=True, exist_ok=True)
    access = Access()
    token = access.add_user(ADMIN, (_ALL,))
    (options.directory / _TOKEN_FILE).write_text(token)
    store = Store(changes=options.history, size_bytes=options.history_bytes)
    service = Service(store, access, streaming_lists=options.streaming_lists)
    server = Server(options.directory, service)
    if options.kubelet_sec is not None:
        store.subscribe(SimulatedKubelets(service.objects, options.kubelet_sec))
    server.bookmark_sec = options.bookmark_sec
    for name in _NAMESPACES:
        server.service.objects.create(NAMESPACES, "", {"metadata": {"name": name}}, TRUSTED)
    for name in options.nodes:
        server.service.objects.create(NODES, "", {"metadata": {"name": name}}, TRUSTED)
    server.listen()
    return server, Commands(server)
