"""A client that asks an API server, real or double, and shows its answers as they came."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from nvshare.sim.kube_api import Handle

PATIENCE_SEC: Final = 60
MERGE: Final = "application/merge-patch+json"


class Got(NamedTuple):
    status: int
    headers: dict[str, str]  # their names in lower case
    body: Any
    """Decoded, if it was JSON."""


class Asker:
    """One user of one server."""

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext,
        token: str,
        accept: str = "application/json",
        patience_sec: float = PATIENCE_SEC,
    ) -> None:
        self.address = (host, port)
        self.context = context
        self.token = token
        self._accept = accept
        self._patience_sec = patience_sec

    def as_user(self, token: str) -> Asker:
        return Asker(*self.address, self.context, token)

    @contextmanager
    def open(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        **query: Any,
    ) -> Iterator[http.client.HTTPResponse]:
        host, port = self.address
        connection = http.client.HTTPSConnection(host, port, context=self.context, timeout=self._patience_sec)
        headers = {"Accept": self._accept}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            headers["Content-Type"] = content_type
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path + (f"?{urlencode(query)}" if query else ""), body, headers)
            yield connection.getresponse()
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Got:
        with self.open(method, path, body, **options) as response:
            raw = response.read()
            headers = {name.lower(): value for name, value in response.headers.items()}
        try:
            return Got(response.status, headers, json.loads(raw))
        except ValueError:
            return Got(response.status, headers, raw)

    @contextmanager
    def watching(self, path: str, **query: Any) -> Iterator[Iterator[Any]]:
        """The events, as they come."""
        with self.open("GET", path, watch="true", **query) as response:
            assert response.status == 200, response.read()
            yield (json.loads(line) for line in response)


def asker_of(api: Handle, token: str | None = None, patience_sec: float = PATIENCE_SEC) -> Asker:
    context = ssl.create_default_context(cafile=str(api.ca_path))
    token = api.admin_token if token is None else token
    return Asker("127.0.0.1", api.port, context, token, patience_sec=patience_sec)
