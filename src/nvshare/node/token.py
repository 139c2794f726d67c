"""The secret that lets a browser in: made once, kept over restarts."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Final

from nvshare.runtime import files, logs
from nvshare.runtime.errors import StartError

FILE: Final = "token"
_BYTES_MAX: Final = 4096
_TOKEN: Final = re.compile("[!-~]+")


def read_token(directory: Path) -> str:
    """The token of the private directory, made if there is none. Raises StartError."""
    path = directory / FILE
    try:
        token = files.read(path, _BYTES_MAX).decode("ascii", "replace").strip()
        if _TOKEN.fullmatch(token):
            return token
        logs.warning("token replaced", file=path, why="it is not a token")
    except FileNotFoundError:
        pass
    except files.Unusable as error:
        logs.warning("token replaced", file=path, why=error)
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from error
    token = secrets.token_urlsafe(32)
    try:
        write_token(directory, token)
    except OSError as error:
        raise StartError(f"{path} cannot be written: {error.strerror}") from error
    return token


def write_token(directory: Path, token: str) -> None:
    """Raises OSError."""
    files.write(directory / FILE, f"{token}\n".encode())
