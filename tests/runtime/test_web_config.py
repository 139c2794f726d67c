"""The web configuration: what is accepted, what is refused and how, who is let in."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path

import bcrypt
import pytest

from nvshare.runtime.web_config import ANSWERS_MAX, CHECKS_MAX, Guard, TooBusy, WebConfigError, load
from tests.runtime.certificates import make_certificate

HASH = bcrypt.hashpw(b"open sesame", b"$2b$04$" + b"abcdefghijklmnopqrstuO").decode()
"""The same each time: tests are named by it."""


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def write(path: Path, text: str) -> Path:
    """Change a file so that its time differs, however fast this machine is."""
    stamp = path.stat().st_mtime_ns + 1_000_000_000 if path.exists() else None
    path.write_text(text)
    if stamp is not None:
        os.utime(path, ns=(stamp, stamp))
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http_server_config: {http2: false}", "'http_server_config' in the file"),
        ("rate_limit: {}", "'rate_limit' in the file"),
        ("tls_server_config: {cipher_suites: []}", "'cipher_suites' in tls_server_config"),
        ("tls_server_config: {}", "needs cert_file and key_file"),
        ("tls_server_config: [a]", "tls_server_config is not a mapping"),
        ("tls_server_config: {cert_file: c, key_file: k, min_version: TLS10}", "'TLS10' is not accepted"),
        ("tls_server_config: {cert_file: c, key_file: k, client_auth_type: x}", "'x' is not accepted"),
        (
            "tls_server_config: {cert_file: c, key_file: k, client_auth_type: RequireAndVerifyClientCert}",
            "needs client_ca_file",
        ),
        ("tls_server_config: {cert_file: absent, key_file: absent}", "absent"),
        ("basic_auth_users: {ann: plain}", "the hash of 'ann'"),
        (f"basic_auth_users: {{ann: '{HASH[:7]}{'?' * 53}'}}", "the hash of 'ann'"),
        (f"basic_auth_users: {{ann: '{HASH[:59]}A'}}", "the hash of 'ann'"),
        (f"basic_auth_users: {{ann: '{HASH[:28]}A{HASH[29:]}'}}", "the hash of 'ann'"),
        (f"basic_auth_users: {{ann: '$2b$03{HASH[6:]}'}}", "the hash of 'ann'"),
        (f"basic_auth_users: {{ann: '$2b$32{HASH[6:]}'}}", "the hash of 'ann'"),
        ("basic_auth_users: [ann]", "not a mapping of names"),
        ("- a", "the file is not a mapping"),
        ("{", "cannot be read"),
    ],
)
def test_what_is_refused_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path / "web.yml", text)
    with pytest.raises(WebConfigError) as error:
        load(path)
    assert words in str(error.value)
    assert str(path) in str(error.value)


def test_nothing_asked_is_nothing_asked(tmp_path: Path) -> None:
    config = load(write(tmp_path / "web.yml", ""))
    assert config.tls is None
    assert config.users == {}


def test_tls_files_are_beside_the_file(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    config = load(
        write(
            tmp_path / "web.yml",
            "tls_server_config: {cert_file: cert.pem, key_file: key.pem, min_version: TLS13}",
        )
    )
    assert config.tls is not None
    assert {path.name for path in config.files} == {"web.yml", "cert.pem", "key.pem"}


def test_users_and_passwords(tmp_path: Path) -> None:
    path = write(tmp_path / "web.yml", f"basic_auth_users: {{ann: '{HASH}'}}")
    warnings: list[str] = []

    async def check() -> None:
        guard = Guard(path, warnings.append)
        assert await guard.admits(basic("ann", "open sesame"))
        assert await guard.admits(basic("ann", "open sesame")), "from memory"
        for wrong in (
            basic("ann", "wrong"),
            basic("bob", "open sesame"),
            basic("", ""),
            "",
            "Basic ???",
            "Bearer x",
            "Basic " + base64.b64encode(b"nocolon").decode(),
            "Basic " + base64.b64encode(b"\xff:\x00").decode(),
            basic("ann", "x" * 5000),
        ):
            assert not await guard.admits(wrong), wrong
        for number in range(ANSWERS_MAX):
            await guard.admits(basic("ann", f"wrong {number}"))
        assert len(guard._rejected) == ANSWERS_MAX
        guard._checks = CHECKS_MAX
        assert await guard.admits(basic("ann", "open sesame")), "no number of wrong ones makes it check again"
        guard._checks = 0
        write(path, "nonsense: 1")
        assert await guard.admits(basic("ann", "open sesame")), "the last good one stays"
        assert not await guard.admits("")
        assert len(warnings) == 1, "told once"
        assert "nonsense" in warnings[0]
        write(path, f"basic_auth_users: {{bob: '{HASH}'}}")
        assert not await guard.admits(basic("ann", "open sesame"))
        assert await guard.admits(basic("bob", "open sesame"))
        guard.close()

    asyncio.run(check())


TLS = "tls_server_config: {cert_file: cert.pem, key_file: key.pem%s}"
STRICT = TLS % ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: cert.pem"
USERS = f"basic_auth_users: {{ann: '{HASH}'}}"


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (USERS, ""),
        (USERS, "# nothing left"),
        (USERS, "{}"),
        (USERS, "basic_auth_users: {}"),
        (USERS, "basic_auth_users:"),
        (USERS, USERS[:-10] + "'}"),
        (USERS, TLS % ""),
        (USERS, None),
        (TLS % "", ""),
        (TLS % "", USERS),
        (TLS % "", None),
        (STRICT, TLS % ""),
        (f"{USERS}\n{TLS % ''}", USERS),
        (f"{USERS}\n{TLS % ''}", TLS % ""),
    ],
)
def test_reading_again_never_opens_the_port(tmp_path: Path, good: str, bad: str | None) -> None:
    make_certificate(tmp_path)
    (tmp_path / "key.pem").chmod(0o600)
    path = write(tmp_path / "web.yml", good)
    warnings: list[str] = []

    async def check() -> None:
        guard = Guard(path, warnings.append)
        before = guard.config
        if bad is None:
            path.unlink()
        else:
            write(path, bad)
        for _ in range(3):
            assert await guard.refresh() is before
        assert guard.failures == 1
        assert len(warnings) == 1, "told once"
        assert str(path) in warnings[0]
        write(path, good + "\n")
        await guard.refresh()
        assert guard.config is not before, "what is good again is taken"
        assert guard.failures == 1
        guard.close()

    asyncio.run(check())


def test_a_key_that_everybody_can_read_is_reported(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    key = tmp_path / "key.pem"
    path = write(tmp_path / "web.yml", TLS % "")
    warnings: list[str] = []

    async def check() -> None:
        key.chmod(0o640)
        guard = Guard(path, warnings.append)
        assert warnings == []
        key.chmod(0o644)
        for text in ("", " # again"):
            write(path, TLS % "" + text + "\n")
            await guard.refresh()
            assert warnings == [f"every user of this machine can read the key {key}: chmod o= {key}"]
        guard.close()
        Guard(path, warnings.append).close()
        assert len(warnings) == 2

    asyncio.run(check())


def test_a_pipe_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "web.yml")
    with pytest.raises(WebConfigError, match="is not a file"):
        load(tmp_path / "web.yml")


def test_a_certificate_that_comes_late_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "web.yml", "")
    warnings: list[str] = []

    async def check() -> None:
        guard = Guard(path, warnings.append)
        write(path, "tls_server_config: {cert_file: cert.pem, key_file: key.pem}")
        assert (await guard.refresh()).tls is None, "the last good one stays"
        assert (await guard.refresh()).tls is None
        assert len(warnings) == 1, "told once"
        assert str(tmp_path / "cert.pem") in warnings[0]
        make_certificate(tmp_path)
        assert (await guard.refresh()).tls is not None
        assert len(warnings) == 1
        guard.close()

    asyncio.run(check())


def test_checks_under_way_are_bounded(tmp_path: Path) -> None:
    path = write(tmp_path / "web.yml", f"basic_auth_users: {{ann: '{HASH}'}}")

    async def check() -> None:
        guard = Guard(path, print)
        tries = [guard.admits(basic("ann", f"wrong {number}")) for number in range(CHECKS_MAX + 5)]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(answer, TooBusy) for answer in answers) == 5
        assert sum(answer is False for answer in answers) == CHECKS_MAX
        guard.close()

    asyncio.run(check())
