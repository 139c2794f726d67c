"""The metrics port against scrapers that are slow, idle, broken or too many."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nvshare.runtime import http_server
from nvshare.runtime.http_server import HEADER_BYTES, _Connection
from nvshare.runtime.negotiate import OPENMETRICS_TYPE, TEXT_TYPE
from tests.runtime.http_port import BODY, PATIENCE_SEC, Port, on_loop


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
def test_broken_ones_are_reported_and_disturb_nobody(raw: bytes) -> None:
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


async def rejected(asking: Awaitable[str]) -> None:
    with pytest.raises(ssl.SSLError):
        await asking
