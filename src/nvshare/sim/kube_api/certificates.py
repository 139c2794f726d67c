"""A certificate authority of its own and what it signs, made with the ``openssl`` command."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import Final

_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_NAMES: Final = "IP:127.0.0.1,IP:::1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default.svc"
_VALID_DAYS: Final = 30
_PATIENCE_SEC: Final = 60


class CertificateError(Exception):
    """Certificates cannot be made here; the text says why."""


def _openssl(*arguments: str) -> None:
    try:
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=_PATIENCE_SEC)
    except FileNotFoundError as error:
        raise CertificateError("no `openssl` here; on Debian and Ubuntu: apt-get install openssl") from error
    if done.returncode:
        raise CertificateError(f"openssl {arguments[0]} failed: {done.stderr.strip()[-300:]}")


class Authority:
    """Signs certificates into a directory, where ``ca.crt`` is the one that clients trust."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self.certificate = directory / f"{name}.crt"
        self._key = directory / f"{name}.key"
        if not self.certificate.exists():
            subject = ("-subj", f"/CN=nvshare simulated {name}", "-days", str(_VALID_DAYS))
            _openssl(
                "req", "-x509", *_NEW_KEY, *subject, "-keyout", str(self._key), "-out", str(self.certificate)
            )

    def sign(self, name: str, *, names: str = _NAMES, days: int = _VALID_DAYS) -> tuple[Path, Path]:
        """Certificate and key; with days below 0 it has expired already."""
        certificate, key = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        request = self.directory / f"{name}.csr"
        if not certificate.exists():
            wanted = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={names}")
            _openssl("req", *_NEW_KEY, *wanted, "-keyout", str(key), "-out", str(request))
            signer = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-copy_extensions", "copy")
            _openssl(
                "x509", "-req", "-in", str(request), *signer, "-days", str(days), "-out", str(certificate)
            )
        return certificate, key

    def context(self, name: str, *, names: str = _NAMES, days: int = _VALID_DAYS) -> ssl.SSLContext:
        """For a server that presents such a certificate."""
        certificate, key = self.sign(name, names=names, days=days)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate, key)
        context.set_alpn_protocols(["http/1.1"])
        return context
