"""Which API server a kubeconfig names, and as whom to speak to it. Pure, except that files are read.

``KUBECONFIG`` may name several files, separated by colons: what an earlier one says counts. Paths in a file
are relative to its directory.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import yaml

from nvshare.runtime import files

_BYTES_MAX: Final = 4 << 20


class AccessError(Exception):
    """The API server cannot be spoken to as the configuration stands; the text says what to do."""


class Exec(msgspec.Struct, frozen=True, rename="camel"):
    """A program that prints a token or a certificate."""

    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[dict[str, str]] | None = None


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class User(msgspec.Struct, frozen=True, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    exec: Exec | None = None
    auth_provider: Any = None
    as_user: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] | None = None
    as_user_extra: Any = None

    @property
    def impersonates(self) -> bool:
        return bool(self.as_user or self.as_uid or self.as_groups or self.as_user_extra)


class _Context(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: Cluster | None = None


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: User | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context = _Context()


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    current_context: str = ""
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


class Kubeconfig(NamedTuple):
    """The cluster and the user of the current context, and the directories of the files that name them."""

    cluster: Cluster
    user: User
    cluster_directory: Path
    user_directory: Path


_Named = TypeVar("_Named", _NamedCluster, _NamedUser, _NamedContext)


def read_kubeconfig(paths: Sequence[Path]) -> Kubeconfig:
    """Raises AccessError."""
    files = [(path, _read(path)) for path in paths if path.exists()]
    if not files:
        raise AccessError(f"KUBECONFIG={':'.join(map(str, paths))}: there is no such file")
    current = next((file.current_context for _, file in files if file.current_context), "")
    if not current:
        raise AccessError(f"{files[0][0]} has no current-context; set one: kubectl config use-context NAME")
    context, path = _find("context", current, [(path, file.contexts) for path, file in files])
    cluster, cluster_path = _find(
        "cluster", context.context.cluster, [(path, file.clusters) for path, file in files]
    )
    if not context.context.user:
        return Kubeconfig(cluster.cluster or Cluster(), User(), cluster_path.parent, path.parent)
    user, user_path = _find("user", context.context.user, [(path, file.users) for path, file in files])
    directories = (cluster_path.parent, user_path.parent)
    return Kubeconfig(cluster.cluster or Cluster(), user.user or User(), *directories)


def _find(kind: str, name: str, lists: list[tuple[Path, list[_Named] | None]]) -> tuple[_Named, Path]:
    for path, named in lists:
        for one in named or ():
            if one.name == name:
                return one, path
    raise AccessError(f"{lists[0][0]} has no {kind} called {name!r}")


def _read(path: Path) -> _File:
    try:
        raw = files.read_regular(path, _BYTES_MAX)
        return msgspec.convert(yaml.safe_load(raw) or {}, _File)
    except (OSError, files.Unusable, ValueError, RecursionError, yaml.YAMLError) as error:
        raise AccessError(f"{path} is not a kubeconfig: {error}") from error


def decoded(what: str, data: str) -> bytes:
    """The content of a field whose name ends in ``-data``."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise AccessError(f"the kubeconfig's {what} is not base64: {error}") from error
