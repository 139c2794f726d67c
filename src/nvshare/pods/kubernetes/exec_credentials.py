"""Tokens from a program that a kubeconfig names, as clouds have them; kept until they are about to expire."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from nvshare.pods.kubernetes.kubeconfig import AccessError, Exec

_RUN_SEC: Final = 30.0
_EARLY_SEC: Final = 30.0
_KEPT_SEC: Final = 600.0
"""A token that does not say when it expires."""
_SHOWN: Final = 200


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class ExecCredentials:
    def __init__(
        self, program: Exec, directory: Path = Path(), wall_clock: Callable[[], float] = time.time
    ) -> None:
        """``directory``: of the kubeconfig, which the command is relative to if it is a path."""
        self._program = program
        self._command = program.command
        if "/" in program.command:
            self._command = os.path.join(directory, program.command)
        self._wall_clock = wall_clock
        self._token = ""
        self._until_sec = 0.0

    def renew(self) -> None:
        """The token is not accepted any more, whenever it expires."""
        self._token = ""

    def token(self) -> str:
        """Raises AccessError."""
        if not self._token or self._wall_clock() >= self._until_sec:
            status = self._run()
            expires = status.expiration_timestamp
            self._token = status.token
            self._until_sec = self._wall_clock() + _KEPT_SEC
            if expires is not None:
                self._until_sec = expires.astimezone(UTC).timestamp() - _EARLY_SEC
        return self._token

    def _run(self) -> _Status:
        program = self._program
        info = {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = {**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        environment |= {
            one.get("name", ""): one.get("value", "") for one in program.env or () if one.get("name")
        }
        try:
            found = subprocess.run(
                [self._command, *(program.args or ())],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_RUN_SEC,
                check=True,
            )
            status = msgspec.json.decode(found.stdout, type=_ExecCredential).status
        except subprocess.CalledProcessError as error:
            words = error.stderr.decode(errors="replace").strip()[-_SHOWN:]
            raise AccessError(f"{program.command} ended with code {error.returncode}: {words}") from error
        except (OSError, subprocess.TimeoutExpired, msgspec.MsgspecError) as error:
            raise AccessError(f"{program.command} gave no token: {error}") from error
        if not status.token:
            raise AccessError(
                f"{program.command} gave no token; certificates of such programs are not supported"
            )
        return status
