"""Where the API server is, and how we prove who we are.

1. In a cluster: the service account's directory. The kubelet replaces its token before it expires, so the
   token is read again whenever its file has changed, and so is the CA.
2. Elsewhere: what ``KUBECONFIG`` names.
3. So do certificates of ours: they are read again when their files have changed.
4. The server's certificate and name are always verified. A configuration that asks for less is refused.
5. All of this runs in the threads that talk to the server.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from nvshare.pods.kubernetes.exec_credentials import ExecCredentials
from nvshare.pods.kubernetes.kubeconfig import (
    AccessError,
    Cluster,
    Kubeconfig,
    User,
    decoded,
    read_kubeconfig,
)
from nvshare.runtime import files

SERVICE_ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_BYTES_MAX: Final = 65_536
CA_BYTES_MAX: Final = 4 << 20
"""A bundle of all authorities that a machine trusts is about 0.2 MiB."""
HOST_VARIABLE: Final = "KUBERNETES_SERVICE_HOST"
PORT_VARIABLE: Final = "KUBERNETES_SERVICE_PORT"


class Endpoint(NamedTuple):
    host: str
    port: int
    path: str = ""  # before those of the API
    server_name: str = ""  # of its certificate, if it is not the host


class WatchedFile:
    """The content of a small file, read again when it has changed."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._stamp: tuple[int, ...] = ()
        self._content = b""

    def read(self) -> bytes:
        """Raises AccessError."""
        try:
            found = self._path.stat()
            stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if stamp != self._stamp:
                self._content = files.read_regular(self._path, self._bytes_max)
                self._stamp = stamp
        except OSError as error:
            raise AccessError(f"{self._path} cannot be read: {error.strerror}") from error
        except files.Unusable as error:
            raise AccessError(f"{self._path} cannot be used: {error}") from error
        return self._content


Identity = tuple[bytes, bytes]
"""Certificate and key; both empty if there are none."""


class Credentials:
    """``token`` returns the present bearer token, empty if certificates tell who we are."""

    def __init__(
        self,
        endpoint: Endpoint,
        ca: Callable[[], bytes],
        token: Callable[[], str],
        identity: Callable[[], Identity] = lambda: (b"", b""),
        renew: Callable[[], None] = lambda: None,
    ) -> None:
        """``renew``: called when the server has refused the token."""
        self.endpoint = endpoint
        self.token = token
        self.renew = renew
        self._ca = ca
        self._identity = identity
        self._made_for: tuple[bytes, Identity] | None = None
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def tls(self) -> ssl.SSLContext:
        """Raises AccessError."""
        authority, identity = wanted = self._ca(), self._identity()
        if wanted != self._made_for:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates and names
            try:
                if authority:  # comments may be in any encoding
                    context.load_verify_locations(cadata=authority.decode("ascii", errors="ignore"))
                else:
                    context.load_default_certs()
                if any(identity):
                    _load_identity(context, identity)
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                raise AccessError(f"a certificate for the API server cannot be used: {error}") from error
            self._context, self._made_for = context, wanted
        return self._context


def _load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    """OpenSSL reads certificates and keys from files alone."""
    with tempfile.TemporaryDirectory(prefix="nvshare-") as directory:  # of mode 0700
        certificate, key = Path(directory, "certificate"), Path(directory, "key")
        certificate.write_bytes(identity[0])
        key.write_bytes(identity[1])
        context.load_cert_chain(certificate, key)


def is_in_cluster(environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT_DIR) -> bool:
    return bool(environment.get(HOST_VARIABLE)) and (directory / "token").exists()


def find_credentials(environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT_DIR) -> Credentials:
    """Of the cluster we are in, else of KUBECONFIG. Raises AccessError."""
    if is_in_cluster(environment, directory):
        return _in_cluster(environment, directory)
    named = environment.get("KUBECONFIG", "")
    if not named:
        raise AccessError(
            f"this is no pod of a cluster ({HOST_VARIABLE} is not set, or {directory / 'token'} is missing)"
            " and KUBECONFIG is not set"
        )
    return of_kubeconfig(read_kubeconfig([Path(path) for path in named.split(":") if path]))


def _in_cluster(environment: Mapping[str, str], directory: Path) -> Credentials:
    host, port = environment[HOST_VARIABLE], environment.get(PORT_VARIABLE, "443")
    if not port.isdigit():
        raise AccessError(f"{PORT_VARIABLE}={port!r} is not a port")
    token = WatchedFile(directory / "token", TOKEN_BYTES_MAX)
    authority = WatchedFile(directory / "ca.crt", CA_BYTES_MAX)
    return Credentials(
        Endpoint(host, int(port)), lambda: _present("ca.crt", authority.read()), lambda: _token(token.read())
    )


def _present(name: str, authority: bytes) -> bytes:
    """Without any, those that the machine trusts would count, which nobody has asked for."""
    if not authority.strip():
        raise AccessError(
            f"{name} is empty; it has to hold the certificates that the API server's is signed by"
        )
    return authority


def _token(content: bytes) -> str:
    token = content.decode(errors="replace").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise AccessError("the token's file does not hold a token")
    return token


def of_kubeconfig(found: Kubeconfig) -> Credentials:
    """Raises AccessError."""
    cluster, user = found.cluster, _with_paths(found.user, found.user_directory)
    if cluster.insecure_skip_tls_verify:
        raise AccessError(
            "the kubeconfig has insecure-skip-tls-verify, which is not accepted;"
            " give certificate-authority instead"
        )
    if cluster.proxy_url:
        raise AccessError("the kubeconfig has proxy-url, which is not supported")
    if user.username or user.auth_provider is not None:
        raise AccessError(
            "the kubeconfig's user has username or auth-provider, which are not supported;"
            " accepted: token, tokenFile, client-certificate, exec"
        )
    if user.impersonates:
        raise AccessError("the kubeconfig's user has `as`, which is not supported; remove it")
    program = ExecCredentials(user.exec, found.user_directory) if user.exec is not None else None
    return Credentials(
        _endpoint(cluster),
        _authority(cluster, found.cluster_directory),
        program.token if program is not None else _token_of(user),
        _identity_of(user),
        program.renew if program is not None else lambda: None,
    )


def _identity_of(user: User) -> Callable[[], Identity]:
    certificate = _content("client-certificate", user.client_certificate, user.client_certificate_data)
    key = _content("client-key", user.client_key, user.client_key_data)
    if (certificate is None) != (key is None):
        raise AccessError(
            "the kubeconfig's user has only one of client-certificate and client-key; give both, or none"
        )
    if certificate is None or key is None:
        return lambda: (b"", b"")
    return lambda: (certificate(), key())


def _content(what: str, path: str, data: str) -> Callable[[], bytes] | None:
    """The data counts, otherwise the file."""
    if data:
        content = decoded(f"{what}-data", data)
        return lambda: content
    return WatchedFile(Path(path), TOKEN_BYTES_MAX).read if path else None


def _endpoint(cluster: Cluster) -> Endpoint:
    url = urlsplit(cluster.server)
    try:
        port = url.port or 443
    except ValueError:
        port = 0
    if url.scheme != "https" or not url.hostname or not port:
        raise AccessError(
            f"the kubeconfig's server {cluster.server!r} is not accepted; accepted: https://HOST"
        )
    return Endpoint(url.hostname, port, url.path.rstrip("/"), cluster.tls_server_name)


def _authority(cluster: Cluster, directory: Path) -> Callable[[], bytes]:
    if cluster.certificate_authority_data:
        content = decoded("certificate-authority-data", cluster.certificate_authority_data)
        return lambda: content
    if cluster.certificate_authority:
        file = WatchedFile(directory / cluster.certificate_authority, CA_BYTES_MAX)
        return lambda: _present(cluster.certificate_authority, file.read())
    return lambda: b""  # those that the machine trusts


def _token_of(user: User) -> Callable[[], str]:
    if user.token_file:
        file = WatchedFile(Path(user.token_file), TOKEN_BYTES_MAX)
        return lambda: _token(file.read())
    return lambda: user.token


def _with_paths(user: User, directory: Path) -> User:
    """Paths are relative to the file's directory."""
    names = ("token_file", "client_certificate", "client_key")
    return msgspec.structs.replace(
        user, **{name: os.path.join(directory, path) for name in names if (path := getattr(user, name))}
    )
