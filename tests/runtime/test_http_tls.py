"""TLS, users and client certificates of an HTTP port."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest

from nvshare.runtime import http_server
from tests.runtime.certificates import make_certificate
from tests.runtime.http_port import Port, on_loop
from tests.runtime.test_http_server import read_to_end, rejected, until
from tests.runtime.test_web_config import HASH, basic, write


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
