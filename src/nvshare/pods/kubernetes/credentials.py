"""Where the API server is, and how we prove who we are.

1. In a cluster: the service account's directory. The kubelet replaces its token before it expires, so the
   token is read again whenever its file has changed, and so is the CA.
2. Elsewhere: what ``KUBECONFIG`` names.
3. The server's certificate and name are always verified. A configuration that asks for less is refused.
4. All of this runs in the threads that talk to the server.
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


class Credentials:
    """``token`` returns the present bearer token, empty if certificates tell who we are."""

    def __init__(
        self, endpoint: Endpoint, ca: Callable[[], bytes], token: Callable[[], str], user: User | None = None
    ) -> None:
        self.endpoint = endpoint
        self.token = token
        self._ca = ca
        self._user = user
        self._made_for = b""
        self._context: ssl.SSLContext | None = None

    def tls(self) -> ssl.SSLContext:
        """Raises AccessError."""
        authority = self._ca()
        if self._context is None or authority != self._made_for:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates and names
            try:
                if authority:
                    context.load_verify_locations(cadata=authority.decode("ascii"))
                else:
                    context.load_default_certs()
                if self._user is not None:
                    _load_certificate(context, self._user)
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                raise AccessError(f"a certificate for the API server cannot be used: {error}") from error
            self._context, self._made_for = context, authority
        return self._context


def _load_certificate(context: ssl.SSLContext, user: User) -> None:
    """OpenSSL reads certificates and keys from files alone."""
    if user.client_certificate_data:
        with tempfile.TemporaryDirectory(prefix="nvshare-") as directory:  # of mode 0700
            certificate, key = Path(directory, "certificate"), Path(directory, "key")
            certificate.write_bytes(decoded("client-certificate-data", user.client_certificate_data))
            key.write_bytes(decoded("client-key-data", user.client_key_data))
            context.load_cert_chain(certificate, key)
    elif user.client_certificate:
        context.load_cert_chain(user.client_certificate, user.client_key)


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
    return Credentials(Endpoint(host, int(port)), authority.read, lambda: _token(token.read()))


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
    return Credentials(
        _endpoint(cluster), _authority(cluster, found.cluster_directory), _token_of(user), user
    )


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
        return WatchedFile(directory / cluster.certificate_authority, CA_BYTES_MAX).read
    return lambda: b""  # those that the machine trusts


def _token_of(user: User) -> Callable[[], str]:
    if user.token_file:
        file = WatchedFile(Path(user.token_file), TOKEN_BYTES_MAX)
        return lambda: _token(file.read())
    if user.exec is not None:
        return ExecCredentials(user.exec).token
    return lambda: user.token


def _with_paths(user: User, directory: Path) -> User:
    """Paths are relative to the file's directory."""
    names = ("token_file", "client_certificate", "client_key")
    return msgspec.structs.replace(
        user, **{name: os.path.join(directory, path) for name in names if (path := getattr(user, name))}
    )
