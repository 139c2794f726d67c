"""The metrics port against scrapers that are slow, idle, broken or too many."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from nvshare.node.bounds import Bounds
from nvshare.node.counters import Counters
from nvshare.runtime import http_server
from nvshare.runtime.endpoints import Endpoints
from nvshare.runtime.http_server import HEADER_BYTES, Server, _Connection
from nvshare.runtime.listener import Listener
from nvshare.runtime.negotiate import OPENMETRICS_TYPE, TEXT_TYPE
from nvshare.runtime.web_config import Guard
from tests.runtime.certificates import make_certificate
from tests.runtime.test_web_config import HASH, basic, write

BODY = b"nvshare_x 1\n" * 1000
PATIENCE_SEC = 30


class Port:
    """A metrics port on loopback, on this test's own loop."""

    def __init__(self, web_config: Path | None = None, connections: int = 512) -> None:
        self.asked: list[tuple[bool, frozenset[str]]] = []
        self.unready = ""
        self.hold: asyncio.Event | None = None

        async def scrape(openmetrics: bool, names: frozenset[str]) -> list[bytes]:
            self.asked.append((openmetrics, names))
            if self.hold is not None:
                await self.hold.wait()
            return [BODY[:5000], BODY[5000:]]

        async def page() -> str:
            return "<h1>nvshare</h1>"

        self.server = Server(
            Endpoints(scrape, page, lambda: self.unready).app(), Guard(web_config, print), connections
        )
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        listening.setblocking(False)
        self.port: int = listening.getsockname()[1]
        self.listener = Listener(
            self.server.loop, listening, self.server.welcome, self.server.full, Bounds(), Counters()
        )
        self.server.room_made = self.listener.start
        self.listener.start()

    def close(self) -> None:
        self.listener.close()
        self.server.close()

    async def open(self, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, **options)

    async def ask(self, head: str, **options: Any) -> tuple[str, bytes]:
        """Send a request, and read until the other side is done."""
        reader, writer = await self.open(**options)
        writer.write(head.replace("\n", "\r\n").encode() + b"Connection: close\r\n\r\n")
        raw = await asyncio.wait_for(reader.read(), PATIENCE_SEC)
        writer.close()
        header, _, body = raw.partition(b"\r\n\r\n")
        return header.decode(), body

    async def get(self, path: str, **headers: str) -> tuple[int, str, bytes]:
        lines = "".join(f"{name.replace('_', '-')}: {value}\n" for name, value in headers.items())
        header, body = await self.ask(f"GET {path} HTTP/1.1\nHost: x\n{lines}")
        return int(header.split()[1]), header, body


def on_loop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(work(), 4 * PATIENCE_SEC))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()  # only of a test that passed: with open connections it would not return


async def until(found: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SEC):
        while not found():
            await asyncio.sleep(0.01)


def test_routes() -> None:
    async def work() -> None:
        port = Port()
        status, header, body = await port.get("/metrics")
        assert (status, body) == (200, BODY)
        assert f"\r\nContent-Type: {TEXT_TYPE}\r\n" in header
        assert TEXT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
        for path in ("/healthz", "/readyz", "/-/healthy", "/-/ready"):
            assert (await port.get(path))[::2] == (200, b"OK\n")
        port.unready = "nobody can reach it"
        assert (await port.get("/readyz"))[0] == (await port.get("/-/ready"))[0] == 503
        assert (await port.get("/readyz"))[2] == b"not ready: nobody can reach it\n"
        assert (await port.get("/healthz"))[0] == 200
        assert b"nvshare" in (await port.get("/"))[2]
        for path in ("/metricsX", "/metrics/", "/notexist", "/healthz/x", "//", "/%00", "/../metrics"):
            assert (await port.get(path))[0] == 404, path
        port.close()

    on_loop(work)


def test_head_has_the_header_and_no_body() -> None:
    async def work() -> None:
        port = Port()
        header, body = await port.ask("HEAD /metrics HTTP/1.1\nHost: x\n")
        assert body == b""
        assert f"Content-Type: {TEXT_TYPE}" in header
        assert f"Content-Length: {len(BODY)}" in header
        assert (await port.ask("POST /metrics HTTP/1.1\nHost: x\nContent-Length: 0\n"))[0].split()[1] == "405"
        port.close()

    on_loop(work)


def test_formats_compression_and_names() -> None:
    async def work() -> None:
        port = Port()
        _, header, _ = await port.get("/metrics", Accept="application/openmetrics-text;version=1.0.0")
        assert f"Content-Type: {OPENMETRICS_TYPE}" in header
        _, header, body = await port.get("/metrics?name[]=a&name[]=b", Accept_Encoding="gzip")
        assert "Content-Encoding: gzip" in header
        assert gzip.decompress(body) == BODY
        assert len(body) < len(BODY) / 10
        assert port.asked == [(True, frozenset()), (False, frozenset({"a", "b"}))]
        port.close()

    on_loop(work)


def test_slow_and_silent_ones_are_ended_and_disturb_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    assert http_server.HEADER_SEC == 10
    monkeypatch.setattr(http_server, "HEADER_SEC", 0.3)
    monkeypatch.setattr(http_server, "ANSWER_SEC", 0.3)

    async def work() -> None:
        port = Port()
        silent = [await port.open() for _ in range(20)]
        trickling_reader, trickling = await port.open()

        async def trickle() -> None:
            for byte in b"GET /metrics HTTP/1.1\r\nHost: " + b"x" * 10_000:
                trickling.write(bytes([byte]))
                await asyncio.sleep(0.02)

        drip = asyncio.create_task(trickle())
        assert (await port.get("/healthz"))[0] == 200, "while the others dawdle"
        for reader, writer in silent:
            assert await read_to_end(reader) == b""
            writer.close()
        assert await read_to_end(trickling_reader) == b""
        drip.cancel()
        trickling.close()
        # One whose first request was fine, and which dawdles with the second.
        reader, writer = await port.open()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /hea")
        assert (await read_to_end(reader)).count(b"200 OK") == 1
        writer.close()
        # One whose answer takes too long.
        port.hold = asyncio.Event()
        reader, writer = await port.open()
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await read_to_end(reader) == b""
        writer.close()
        port.hold.set()
        await until(lambda: port.server.open_connections() == 0)
        port.close()

    on_loop(work)


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE_SEC)
    except ConnectionResetError:
        return b""


def test_one_more_takes_the_place_of_the_longest_idle() -> None:
    assert http_server.CONNECTIONS == 512

    async def work() -> None:
        port = Port(connections=4)
        opened = []
        for number in range(4):
            opened.append(await port.open())
            await until(lambda number=number: port.server.open_connections() == number + 1)  # type: ignore[misc]
        assert (await port.get("/metrics"))[0] == 200
        assert await read_to_end(opened[0][0]) == b"", "the first to come is the first to go"
        opened[1][1].write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in await read_to_end(opened[1][0])
        for _, writer in opened:
            writer.close()
        port.close()

    on_loop(work)


def test_all_places_answering_make_the_next_wait() -> None:
    async def work() -> None:
        port = Port(connections=2)
        port.hold = asyncio.Event()
        asking = [asyncio.create_task(port.get("/metrics")) for _ in range(3)]
        await until(lambda: len(port.asked) == 2)
        port.hold.set()
        assert [(await one)[0] for one in asking] == [200, 200, 200]
        port.close()

    on_loop(work)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"y" * (HEADER_BYTES + 1),
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["binary", "no version", "odd version", "long header", "bad chunk"],
)
def test_broken_ones_are_told_and_disturb_nobody(raw: bytes) -> None:
    async def work() -> None:
        port = Port()
        reader, writer = await port.open()
        writer.write(raw)
        answer = await asyncio.wait_for(reader.read(64), PATIENCE_SEC)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 2"))
        writer.close()
        assert (await port.get("/healthz"))[0] == 200
        port.close()

    on_loop(work)


def test_a_header_of_32_kib_is_taken() -> None:
    async def work() -> None:
        port = Port()
        status, _, _ = await port.get("/healthz", X_Long="y" * (HEADER_BYTES - 200))
        assert status == 200
        port.close()

    on_loop(work)


def test_a_header_of_many_lines_is_refused() -> None:
    """They cost more than their bytes: 4000 lines of one connection would stop the daemon for 10 ms."""

    async def work() -> None:
        port = Port()
        status, _, _ = await port.get("/healthz", **{f"X_{number}": "y" for number in range(100)})
        assert status == 200
        status, _, _ = await port.get("/healthz", **{f"X_{number}": "y" for number in range(200)})
        assert status == 431
        port.close()

    on_loop(work)


def test_one_connection_is_read_in_each_round_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []

    async def work() -> None:
        port = Port()
        connections = [await port.open() for _ in range(50)]
        for _, writer in connections:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        number = 0

        def count() -> None:
            nonlocal number
            number += 1
            asyncio.get_running_loop().call_soon(count)

        taken = _Connection.take

        def take(connection: _Connection, data: bytes) -> None:
            rounds.append(number)
            taken(connection, data)

        monkeypatch.setattr(_Connection, "take", take)
        count()
        for reader, writer in connections:
            line = await asyncio.wait_for(reader.readline(), PATIENCE_SEC)
            assert line.split()[1] == b"200"
            writer.close()
        port.close()

    on_loop(work)
    assert len(rounds) == 50
    assert len(set(rounds)) == 50


def test_a_larger_one_is_refused_also_in_one_piece() -> None:
    async def work() -> None:
        port = Port()
        for extra in (1, 40_000 - HEADER_BYTES):
            status, _, _ = await port.get("/metrics", X_Long="y" * (HEADER_BYTES + extra))
            assert status in (400, 431), extra
        assert port.asked == []
        port.close()

    on_loop(work)


def test_a_larger_one_is_refused_behind_another_request() -> None:
    async def work() -> None:
        port = Port()
        reader, writer = await port.open()
        large = b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 40_000 + b"\r\n\r\n"
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + large)
        answers = await asyncio.wait_for(reader.read(), PATIENCE_SEC)
        assert [line.split()[1] for line in answers.splitlines() if line.startswith(b"HTTP/")][1:] in (
            [b"400"],
            [b"431"],
        )
        assert port.asked == []
        writer.close()
        port.close()

    on_loop(work)


def test_a_connection_counts_once_and_never_more_than_there_are_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[int] = []
    alive: list[int] = []
    made: list[Any] = []

    async def work() -> None:
        port = Port(connections=8)
        make = http_server._Connection.connection_made

        def note(connection: Any, transport: Any) -> None:
            make(connection, transport)
            made.append(transport)
            shown.append(port.server.open_connections())
            alive.append(sum(not one.is_closing() for one in made))

        monkeypatch.setattr(http_server._Connection, "connection_made", note)
        writers = [(await port.open())[1] for _ in range(3)]
        await until(lambda: len(made) == 3)
        assert shown == [1, 2, 3]
        writers += [writer for _, writer in await asyncio.gather(*(port.open() for _ in range(40)))]
        await until(lambda: len(made) == 43)
        assert max(shown) <= 8
        assert max(alive) <= 8
        await until(lambda: port.server.open_connections() == 8)
        for writer in writers:
            writer.close()
        await until(lambda: port.server.open_connections() == 0)
        port.close()

    on_loop(work)


def test_tls_and_users(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    other = make_certificate(tmp_path, "other-")
    path = write(
        tmp_path / "web.yml",
        f"tls_server_config: {{cert_file: cert.pem, key_file: key.pem}}\nbasic_auth_users: {{ann: '{HASH}'}}",
    )

    def trust(authority: Path) -> dict[str, Any]:
        return {"ssl": ssl.create_default_context(cafile=str(authority)), "server_hostname": "localhost"}

    async def status(port: Port, authorization: str, **options: Any) -> str:
        line = f"Authorization: {authorization}\n" if authorization else ""
        header, _ = await port.ask(f"GET /metrics HTTP/1.1\nHost: x\n{line}", **options)
        return header

    async def work() -> None:
        port = Port(path)
        assert "200 OK" in await status(port, basic("ann", "open sesame"), **trust(certificate))
        refused = await status(port, basic("ann", "wrong"), **trust(certificate))
        assert "401" in refused
        assert 'WWW-Authenticate: Basic realm="nvshare"' in refused
        assert "401" in await status(port, "", **trust(certificate))
        assert await status(port, "") == "", "plain HTTP to a TLS port gets nothing"
        changed = path.read_text().replace("cert.pem", "other-cert.pem").replace("key.pem", "other-key.pem")
        write(path, changed.replace("ann", "bob"))
        await rejected(status(port, "", **trust(certificate)))
        assert "200 OK" in await status(port, basic("bob", "open sesame"), **trust(other)), "read again"
        port.close()

    on_loop(work)


def test_silent_connections_do_not_keep_others_from_agreeing_on_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HEADER_SEC", 1000.0)
    certificate = make_certificate(tmp_path)
    path = write(tmp_path / "web.yml", "tls_server_config: {cert_file: cert.pem, key_file: key.pem}")
    options = {"ssl": ssl.create_default_context(cafile=str(certificate)), "server_hostname": "localhost"}

    async def work() -> None:
        port = Port(path, connections=4)
        silent = []
        for number in range(4):
            silent.append(await port.open())
            await until(lambda number=number: port.server.open_connections() == number + 1)  # type: ignore[misc]
        header, _ = await port.ask("GET /healthz HTTP/1.1\nHost: x\n", **options)
        assert "200 OK" in header
        assert await read_to_end(silent[0][0]) == b"", "the first to come is the first to go"
        assert port.server.open_connections() <= 4
        more = [await port.open() for _ in range(20)]
        header, _ = await port.ask("GET /healthz HTTP/1.1\nHost: x\n", **options)
        assert "200 OK" in header
        assert port.server.open_connections() <= 4
        for _, writer in (*silent, *more):
            writer.close()
        await until(lambda: port.server.open_connections() == 0)
        assert not port.server._ending
        port.close()

    on_loop(work)


async def rejected(asking: Awaitable[str]) -> None:
    with pytest.raises(ssl.SSLError):
        await asking


def test_client_certificates(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    path = write(
        tmp_path / "web.yml",
        "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_ca_file: cert.pem,"
        " client_auth_type: RequireAndVerifyClientCert}",
    )

    async def work() -> None:
        port = Port(path)
        context = ssl.create_default_context(cafile=str(certificate))
        options: dict[str, Any] = {"ssl": context, "server_hostname": "localhost"}
        answer = ""
        with contextlib.suppress(ssl.SSLError, ConnectionResetError):  # or the end, without a word
            answer, _ = await port.ask("GET /healthz HTTP/1.1\nHost: x\n", **options)
        assert answer == ""
        context.load_cert_chain(certificate, tmp_path / "key.pem")
        header, _ = await port.ask("GET /healthz HTTP/1.1\nHost: x\n", **options)
        assert "200 OK" in header
        port.close()

    on_loop(work)
