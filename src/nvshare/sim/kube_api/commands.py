"""What whoever runs the double may tell it: objects, faults, users. One method is one command.

Commands come from the same process, or as lines of JSON on a unix socket: ``{"do": "create", ...}`` is
answered by ``{"ok": ...}`` or ``{"error": "..."}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from nvshare.sim.kube_api.access import Right
from nvshare.sim.kube_api.errors import ApiError, Json
from nvshare.sim.kube_api.faults import parse_rule
from nvshare.sim.kube_api.objects import TRUSTED
from nvshare.sim.kube_api.patches import merge_patch
from nvshare.sim.kube_api.resources import PODS, Resource, resource_named
from nvshare.sim.kube_api.server import Server
from nvshare.sim.kube_api.store import Key, decode, encode

LINE_MAX: Final = 8 << 20
CHURN: Final = "nvshare.com/simulated-change"


class CommandError(Exception):
    """A command that was refused; the text says why."""


class Commands:
    """As the server sees them: these bypass HTTP, rights and faults."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._store = server.service.store
        self._objects = server.service.objects
        self._access = server.service.access
        self._by_name: dict[str, Callable[..., Any]] = {
            name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")
        }

    async def do(self, command: str, /, **arguments: Any) -> Any:
        act = self._by_name.get(command)
        if act is None:
            raise CommandError(f"no command {command!r}; there are: {', '.join(self._by_name)}")
        try:
            done = act(**arguments)
            return await done if asyncio.iscoroutine(done) else done
        except (ApiError, ValueError, TypeError, KeyError) as error:
            raise CommandError(f"{command}: {error}") from error

    # Objects

    def do_create(self, resource: str, given: Json) -> Json:
        row = resource_named(resource)
        namespace = given.get("metadata", {}).get("namespace", "")
        if (
            row.namespaced
            and namespace
            and self._store.get(resource_named("namespaces"), ("", namespace)) is None
        ):
            self._objects.create(resource_named("namespaces"), "", {"metadata": {"name": namespace}}, TRUSTED)
        return self._objects.create(row, namespace, given, TRUSTED).fields

    def do_get(self, resource: str, name: str) -> Json:
        row = resource_named(resource)
        return self._objects.read(row, _key(row, name)).fields

    def do_objects(self, resource: str) -> list[Json]:
        return [stored.fields for _, stored in self._store.all(resource_named(resource))]

    def do_patch(self, resource: str, name: str, patch: Json) -> Json:
        row = resource_named(resource)
        key = _key(row, name)
        patched = merge_patch(self._objects.read(row, key).fields, patch)
        return self._objects.replace(row, key, patched, TRUSTED).fields

    def do_delete(self, resource: str, name: str, grace_sec: int | None = None) -> Json:
        row = resource_named(resource)
        return self._objects.delete(row, _key(row, name), TRUSTED, grace_sec=grace_sec)[0].fields

    def do_set_log(self, pod: str, text: str, container: str = "main") -> None:
        """What `kubectl logs` shows; a pod without a log is answered by 500, as without a kubelet."""
        self._server.service.pods.set_log(_key(PODS, pod), container, text.encode())

    async def do_churn(self, resource: str, count: int, per_second: float) -> int:
        """Change objects one after the other, that many times, that often; how many changes were made."""
        row, begun = resource_named(resource), time.monotonic()
        keys = [key for key, _ in self._store.all(row)]
        if not keys:
            raise ValueError(f"no {resource} to change")
        for number in range(count):
            patch = {"metadata": {"annotations": {CHURN: str(number)}}}
            key = keys[number % len(keys)]
            self._objects.replace(row, key, merge_patch(self._objects.read(row, key).fields, patch), TRUSTED)
            due = begun + (number + 1) / per_second
            if number % 10 == 9 and (ahead := due - time.monotonic()) > 0:
                await asyncio.sleep(ahead)
        return count

    # Faults

    async def do_fault(self, **rule: Any) -> None:
        self._server.faults.add(parse_rule(rule))
        await self._server.faults_changed()

    async def do_clear_faults(self) -> None:
        self._server.faults.clear()
        await self._server.faults_changed()

    def do_compact(self) -> int:
        return self._store.compact()

    def do_bookmark(self, every_sec: float | None = None) -> None:
        """Send one to every watch now, and from now on that often."""
        if every_sec is not None:
            self._server.bookmark_sec = float(every_sec)
        self._server.wake_watches(bookmark=True)

    # Users

    def do_add_user(self, name: str, rights: list[Json], token: str = "") -> str:
        parsed = tuple(
            Right(frozenset(right["verbs"]), frozenset(right["resources"]), right.get("namespace", ""))
            for right in rights
        )
        return self._access.add_user(name, parsed, token)

    def do_new_token(self, name: str) -> str:
        return self._access.new_token(name)

    def do_revoke(self, name: str) -> None:
        self._access.revoke(name)

    # Figures

    def do_stats(self) -> Json:
        return {
            **self._server.counters,
            "version": self._store.version,
            "compacted": self._store.compacted,
            "watches": len(self._store.observers),
            "connections": self._server.connections,
            "faults": self._server.faults.hits,
        }

    def do_requests(self, clear: bool = False) -> list[Json]:
        """The last ones, oldest first."""
        shown = list(self._server.requests)
        if clear:
            self._server.requests.clear()
        return shown

    # As lines on a socket

    async def serve_at(self, path: Path) -> asyncio.Server:
        return await asyncio.start_unix_server(self._talk, path, limit=LINE_MAX)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                writer.write(await self._reply(line) + b"\n")
                await writer.drain()
        writer.close()

    async def _reply(self, line: bytes) -> bytes:
        try:
            given = decode(line)
            if not isinstance(given, dict) or not isinstance(given.get("do"), str):
                raise CommandError('a command is an object with "do" and its arguments')
            return encode({"ok": await self.do(given.pop("do"), **given)})
        except (CommandError, ValueError) as error:
            return encode({"error": str(error)})


def _key(resource: Resource, name: str) -> Key:
    """``namespace/name``; without a namespace it is ``default``."""
    if not resource.namespaced:
        return "", name
    namespace, slash, rest = name.partition("/")
    return (namespace, rest) if slash else ("default", name)
