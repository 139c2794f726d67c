"""A certificate for localhost that signs itself."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(directory: Path, name: str = "") -> Path:
    """cert.pem and key.pem in the directory; the certificate's path."""
    certificate, key = directory / f"{name}cert.pem", directory / f"{name}key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return certificate
