"""One connection: requests in, answers out, and the faults that strike in between."""

from __future__ import annotations

import asyncio
import secrets
import socket
import struct
import time
import uuid
from typing import TYPE_CHECKING, Final

import h11

from nvshare.sim.kube_api.answers import Answer, WatchAnswer, refusal
from nvshare.sim.kube_api.errors import ApiError
from nvshare.sim.kube_api.faults import STATUS_FAULTS, Fault, Point, Rule
from nvshare.sim.kube_api.requests import Request, parse_head
from nvshare.sim.kube_api.watches import error_line

if TYPE_CHECKING:
    from nvshare.sim.kube_api.server import Server

BODY_MAX: Final = 4 << 20
_READ_BYTES: Final = 1 << 16
_IDLE_SEC: Final = 600.0
_PIECE: Final = b" " * (1 << 16)


class _Ended(Exception):  # noqa: N818 - the end of a connection is no error
    """The connection is over."""


def reset(sock: socket.socket) -> None:
    """Make closing send RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Connection:
    def __init__(
        self, server: Server, sock: socket.socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._socket = sock
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.SERVER)
        self._gone: asyncio.Future[bytes] | None = None  # during a watch: the client has ended it

    async def serve(self) -> None:
        try:
            while True:
                request = await self._next_request()
                if request is None:
                    return
                await self._answer(request)
                if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                    return
                self._http.start_next_cycle()
        except (_Ended, OSError, h11.ProtocolError, TimeoutError):
            return
        finally:
            if self._gone is not None:
                self._gone.cancel()

    async def _next_request(self) -> Request | None:
        request: Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                async with asyncio.timeout(_IDLE_SEC):
                    self._http.receive_data(await self._reader.read(_READ_BYTES))
            elif isinstance(event, h11.Request):
                headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
                request = parse_head(event.method.decode(), event.target.decode(), headers)
                if headers.get("expect", "").lower() == "100-continue":
                    await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > BODY_MAX:
                    await self._whole(
                        refusal(ApiError(413, f"Request entity too large: limit is {BODY_MAX}"))
                    )
                    raise _Ended
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                request.body = bytes(body)
                return request
            else:
                return None

    # Answering

    async def _answer(self, request: Request) -> None:
        request.started_ns = time.monotonic_ns()
        answer = await self._server.service.answer(request)
        request.status = answer.status
        self._server.record(request)
        try:
            await self._strike(request, Point.BEFORE_HEADERS, body=False)
            if request.query.get("continue"):
                await self._strike(request, Point.BETWEEN_PAGES, body=False)
            if isinstance(answer, WatchAnswer):
                await self._stream(request, answer)
            else:
                await self._respond(request, answer)
        finally:
            if isinstance(answer, WatchAnswer):
                answer.watch.close()

    async def _respond(self, request: Request, answer: Answer) -> None:
        if request.operation != "list" or answer.status != 200:
            await self._whole(answer, head_only=request.method == "HEAD")
            return
        await self._head(200, answer.content_type, chunked=True)
        await self._strike(request, Point.AFTER_HEADERS, body=True)
        half = len(answer.body) // 2
        await self._send(h11.Data(data=answer.body[:half]))
        await self._strike(request, Point.MID_OBJECT, body=True)
        await self._send(h11.Data(data=answer.body[half:]))
        await self._send(h11.EndOfMessage())

    async def _stream(self, request: Request, answer: WatchAnswer) -> None:
        watch, loop = answer.watch, asyncio.get_running_loop()
        self._gone = gone = asyncio.ensure_future(self._reader.read(1))
        gone.add_done_callback(lambda _: watch.wake())
        ends = loop.time() + answer.seconds
        await self._head(200, "application/json", chunked=True)
        await self._strike(request, Point.AFTER_HEADERS, body=True)
        for line in answer.first:
            await self._send(h11.Data(data=line))
        bookmark_at = loop.time() + self._server.bookmark_sec
        while not answer.first and not watch.overflown:
            await self._strike(request, Point.BETWEEN_EVENTS, body=True)
            event = watch.next_line()
            if event is not None:
                await self._line(request, event)
                continue
            now = loop.time()
            if now >= bookmark_at or now >= ends or watch.bookmark_due:
                bookmark_at = now + self._server.bookmark_sec
                if watch.bookmarks:
                    await self._strike(request, Point.BOOKMARK, body=True)
                    await self._send(h11.Data(data=watch.take_bookmark()))
            if now >= ends:
                break
            await watch.wait(min(ends, bookmark_at) - now)
            if gone.done():
                raise _Ended
        await self._send(h11.EndOfMessage())
        raise _Ended  # something is still reading from the client

    async def _line(self, request: Request, line: bytes) -> None:
        half = len(line) // 2
        rule = self._server.faults.strike(Point.MID_OBJECT, request.operation, request.resource_name)
        if rule is None:
            await self._send(h11.Data(data=line))
            return
        await self._send(h11.Data(data=line[:half]))
        await self._apply(rule, request, body=True)
        await self._send(h11.Data(data=line[half:]))

    # Faults

    async def _strike(self, request: Request, point: Point, *, body: bool) -> None:
        rule = self._server.faults.strike(point, request.operation, request.resource_name)
        if rule is not None:
            await self._apply(rule, request, body=body)

    async def _apply(self, rule: Rule, request: Request, *, body: bool) -> None:
        fault = rule.fault
        if fault is Fault.HANG and body and self._gone is not None:
            await self._gone  # a watch
            raise _Ended
        if fault is Fault.HANG:
            await self._server.faults.until_cleared()
        elif fault is Fault.DELAY:
            await asyncio.sleep(rule.seconds)
        elif fault is Fault.CUT:
            await self._writer.drain()
            reset(self._socket)
            self._writer.transport.abort()
            raise _Ended
        elif fault is Fault.HALF_CLOSE:
            await self._writer.drain()
            self._socket.shutdown(socket.SHUT_WR)
            await (self._gone or self._reader.read())
            raise _Ended
        elif fault in STATUS_FAULTS:
            await self._injected_status(rule, request, body=body)
        else:
            await self._wrong_bytes(rule, request, body=body)

    async def _injected_status(self, rule: Rule, request: Request, *, body: bool) -> None:
        code = int(rule.fault)
        retry = rule.retry_after_sec if code == 429 else None
        error = ApiError(code, retry_after_sec=retry)
        if not body:
            await self._whole(refusal(error))
            raise _Ended
        line = error_line(error) if request.operation == "watch" else refusal(error).body
        await self._send(h11.Data(data=line))
        await self._finish()

    async def _wrong_bytes(self, rule: Rule, request: Request, *, body: bool) -> None:
        fault = rule.fault
        if fault is Fault.GARBAGE and not body:
            self._writer.write(secrets.token_bytes(512) + b"\r\n\r\n")
            await self._finish()
        if not body:
            await self._head(200, "application/json", chunked=True)
        if fault is Fault.GARBAGE:
            await self._send(h11.Data(data=secrets.token_bytes(512) + b"\n"))
        elif fault is Fault.TRUNCATED_JSON:
            await self._send(h11.Data(data=b'{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"na'))
        elif fault is Fault.WRONG_TYPE:
            wrong = b'{"type":7,"object":[],"kind":false,"metadata":"none","items":{"a":1}}\n'
            await self._send(h11.Data(data=wrong))
        else:
            await self._enormous(rule.size_bytes, request)
        await self._finish()

    async def _enormous(self, size_bytes: int, request: Request) -> None:
        """An object that is right except for its size."""
        watch = request.operation == "watch"
        await self._send(h11.Data(data=b'{"type":"ADDED","object":{' if watch else b'{"items":[],'))
        await self._send(h11.Data(data=b'"metadata":{"annotations":{"enormous":"'))
        for _ in range(size_bytes // len(_PIECE)):
            await self._send(h11.Data(data=_PIECE))
        await self._send(h11.Data(data=b'"}}}}\n' if watch else b'"}}}\n'))

    async def _finish(self) -> None:
        """A clean end, after which the connection is of no use."""
        if self._http.our_state is h11.SEND_BODY:
            await self._send(h11.EndOfMessage())
        await self._writer.drain()
        raise _Ended

    # Writing

    async def _whole(self, answer: Answer, *, head_only: bool = False) -> None:
        length = ("Content-Length", str(len(answer.body)))
        await self._head(answer.status, answer.content_type, (length, *answer.headers))
        if not head_only:
            await self._send(h11.Data(data=answer.body))
        await self._send(h11.EndOfMessage())

    async def _head(
        self,
        status: int,
        content_type: str,
        more: tuple[tuple[str, str], ...] = (),
        *,
        chunked: bool = False,
    ) -> None:
        headers = [("Audit-Id", str(uuid.uuid4())), ("Cache-Control", "no-cache, private")]
        headers += [("Content-Type", content_type), *more]
        if status != 401:
            headers += self._server.flow_headers
        if chunked:
            headers.append(("Transfer-Encoding", "chunked"))
        await self._send(h11.Response(status_code=status, headers=headers))

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()
