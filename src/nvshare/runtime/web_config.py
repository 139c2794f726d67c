"""The web configuration file of Prometheus exporters: TLS and basic authentication.

1. The keys are those of Prometheus exporters, of which TLS with client certificates and basic_auth_users are
   supported. Any other key is refused by name: a file that is half obeyed is worse than one that is not.
2. The file, certificates and keys are read again when one of them changes. An unusable change is logged once
   and counted, and the last good configuration stays. The files that the unusable configuration names are
   watched as well, since one of them may appear late.
3. Reading again never opens the port: a file that is gone, empty or half written keeps what protects it. To
   reduce the protection, restart the daemon.
4. bcrypt is slow by intent. A password is checked in a thread, the result is cached, and both the cache and
   the number of checks under way are bounded. Wrong passwords are cached apart, so that they never push out a
   right one.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
import re
import ssl
import stat
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from nvshare.runtime.daemon_threads import DaemonThreads

FILE_BYTES_MAX: Final = 1 << 20
ANSWERS_MAX: Final = 128
CHECKS_MAX: Final = 16
FILES_SEC: Final = 1.0
"""How long a request waits for the files to be looked at."""
_KEYS: Final = ("tls_server_config", "basic_auth_users")
_TLS_KEYS: Final = ("cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version")
_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
# Cost, then 16 bytes of salt and 23 of hash in bcrypt's own alphabet; a last character holds 2 or 4 bits.
_HASH: Final = re.compile(
    r"\$2[aby]\$(?:0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{30}[.CGKOSWaeimquy26]"
)
# For unknown users, so that the response time does not reveal which users exist.
_NOBODY: Final = b"$2b$10$gARmymq4zIPIaCXk35JlluzqPgOU6QFjthILblU5j1i0yB4qay0q2"


class WebConfigError(Exception):
    """The file cannot be used; the text names the file, the key, and what is accepted."""

    def __init__(self, text: str, files: tuple[Path, ...] = ()) -> None:
        super().__init__(text)
        self.files = files  # that it names


class TooBusy(Exception):  # noqa: N818 - a state of ours
    """Too many passwords are being checked."""


@dataclass(frozen=True, slots=True)
class WebConfig:
    tls: ssl.SSLContext | None = None
    users: dict[str, bytes] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()


def load(path: Path) -> WebConfig:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait
            raise WebConfigError(f"{path} is not a file")
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
        content = yaml.safe_load(raw) if len(raw) <= FILE_BYTES_MAX else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise WebConfigError(f"{path} cannot be read: {error}") from error
    content = {} if content is None and not raw.strip() else content
    tables = _table(path, "the file", content, _KEYS)
    users = _users(path, tables.get("basic_auth_users") or {})
    tls: ssl.SSLContext | None = None
    files: tuple[Path, ...] = (path,)
    if tables.get("tls_server_config") is not None:
        tls_table = _table(path, "tls_server_config", tables["tls_server_config"], _TLS_KEYS)
        tls, more = _tls(path, tls_table)
        files += more
    return WebConfig(tls, users, files, _warnings(tables.get("tls_server_config") or {}, path))


def _warnings(tls_table: dict[str, Any], path: Path) -> tuple[str, ...]:
    if not tls_table:
        return ()
    key = path.parent / str(tls_table["key_file"])
    if not key.stat().st_mode & stat.S_IROTH:
        return ()
    return (f"every user of this machine can read the key {key}: chmod o= {key}",)


def _table(path: Path, name: str, content: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise WebConfigError(f"{path}: {name} is not a mapping; accepted keys: {', '.join(keys)}")
    for key in content:
        if key not in keys:
            raise WebConfigError(f"{path}: {key!r} in {name} is not accepted; accepted: {', '.join(keys)}")
    return content


def _users(path: Path, content: Any) -> dict[str, bytes]:
    if not isinstance(content, dict):
        raise WebConfigError(f"{path}: basic_auth_users is not a mapping of names to bcrypt hashes")
    users = {}
    for name, hashed in content.items():
        text = str(hashed)
        if not isinstance(name, str) or not _HASH.fullmatch(text):
            raise WebConfigError(
                f"{path}: the hash of {name!r} in basic_auth_users is not a bcrypt hash ($2y$...)"
            )
        users[name] = text.encode()
    return users


def _tls(path: Path, table: dict[str, Any]) -> tuple[ssl.SSLContext, tuple[Path, ...]]:
    files = {}
    for key in ("cert_file", "key_file", "client_ca_file"):
        if table.get(key):
            files[key] = path.parent / str(table[key])
    if "cert_file" not in files or "key_file" not in files:
        raise WebConfigError(f"{path}: tls_server_config needs cert_file and key_file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _one_of(path, table, "min_version", _VERSIONS, "TLS12")
    verify = _one_of(path, table, "client_auth_type", _CLIENT_AUTH, "NoClientCert")
    if verify is not ssl.CERT_NONE and "client_ca_file" not in files:
        raise WebConfigError(f"{path}: client_auth_type {table['client_auth_type']} needs client_ca_file")
    try:
        context.load_cert_chain(files["cert_file"], files["key_file"])
        if "client_ca_file" in files:
            context.load_verify_locations(files["client_ca_file"])
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(str(file) for file in files.values())
        text = f"{path}: tls_server_config: {names}: {error}"
        raise WebConfigError(text, tuple(files.values())) from error
    context.verify_mode = verify
    return context, tuple(files.values())


def _one_of(path: Path, table: dict[str, Any], key: str, accepted: dict[str, Any], default: str) -> Any:
    value = str(table.get(key) or default)
    if value not in accepted:
        raise WebConfigError(f"{path}: {key} {value!r} is not accepted; accepted: {', '.join(accepted)}")
    return accepted[value]


def _stamp(files: tuple[Path, ...]) -> tuple[tuple[int, int, int] | None, ...]:
    stamps: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            found = os.stat(file)
            stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        except OSError:
            stamps.append(None)
    return tuple(stamps)


def _lost(old: WebConfig, new: WebConfig) -> str:
    """The protection that the old configuration has and the new one lacks (rule 3)."""
    if old.users and not new.users:
        return "basic_auth_users"
    if old.tls is not None and new.tls is None:
        return "tls_server_config"
    if old.tls is not None and new.tls is not None and new.tls.verify_mode < old.tls.verify_mode:
        return "client_auth_type as strict as before"
    return ""


def _load_again(path: Path, old: WebConfig) -> WebConfig:
    new = load(path)
    lost = _lost(old, new)
    if lost:
        raise WebConfigError(f"{path} has no {lost} any more; restart if that is meant", new.files)
    return new


class Guard:
    """The present configuration, and the users it admits."""

    def __init__(self, path: Path | None, warn: Callable[[str], None]) -> None:
        """Raises WebConfigError."""
        self._path = path
        self._warn = warn
        self.config = load(path) if path is not None else WebConfig()
        self.failures = 0  # failed attempts to read it again
        for warning in self.config.warnings:
            warn(warning)
        self._watched = self.config.files
        self._stamp = _stamp(self._watched)
        self._admitted: OrderedDict[bytes, bool] = OrderedDict()
        self._rejected: OrderedDict[bytes, bool] = OrderedDict()
        self._checks = 0
        self._threads = DaemonThreads(1)  # apart from all else: passwords take a core's time
        self._reading: asyncio.Task[None] | None = None

    async def refresh(self) -> WebConfig:
        """The configuration as the files are now (rule 2).

        A thread looks at the files, one at a time. While their file system does not answer, the last good
        configuration holds.
        """
        if self._path is None:
            return self.config
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_again(self._path))
        await asyncio.wait({self._reading}, timeout=FILES_SEC)
        return self.config

    async def _read_again(self, path: Path) -> None:
        stamp = await asyncio.to_thread(_stamp, self._watched)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._take(await asyncio.to_thread(_load_again, path, self.config))
        except WebConfigError as error:
            self._watched = tuple(dict.fromkeys((*self.config.files, *error.files)))
            self.failures += 1
            self._warn(f"web configuration not read again, the old one stays: {error}")
        self._stamp = await asyncio.to_thread(_stamp, self._watched)

    def _take(self, config: WebConfig) -> None:
        for warning in config.warnings:
            if warning not in self.config.warnings:
                self._warn(warning)
        self.config = config
        self._watched = config.files
        self._admitted.clear()
        self._rejected.clear()

    async def admits(self, authorization: str) -> bool:
        """Whether an Authorization header has a user and the right password. Raises TooBusy."""
        users = (await self.refresh()).users
        if not users:
            return True
        user, password = _credentials(authorization)
        if user is None:
            return False
        hashed = users.get(user, _NOBODY)
        key = hashlib.sha256(b"\0".join((user.encode(), password, hashed))).digest()
        if key in self._admitted:
            return True
        if key in self._rejected:
            return False
        known = await self._check(password, hashed) and user in users
        answers = self._admitted if known else self._rejected
        answers[key] = known
        if len(answers) > ANSWERS_MAX:
            answers.popitem(last=False)
        return known

    async def _check(self, password: bytes, hashed: bytes) -> bool:
        import bcrypt  # needed only where there are passwords

        if self._checks >= CHECKS_MAX:
            raise TooBusy
        self._checks += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, bcrypt.checkpw, password[:72], hashed)
        except ValueError:
            return False  # a hash or password that bcrypt rejects
        finally:
            self._checks -= 1

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()


def _credentials(authorization: str) -> tuple[str | None, bytes]:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None, b""
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).partition(b":")
        return (user.decode() if colon else None), password
    except (binascii.Error, ValueError):
        return None, b""
