"""The units: commands that exist with options that are accepted, and as few rights as the manifests give.

systemd itself is not asked: it does not run where these tests do.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
UNITS: Final = sorted((ROOT / "deploy/systemd").glob("*.service"))
HARDENED: Final = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "PrivateTmp": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectControlGroups": "yes",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "SystemCallArchitectures": "native",
    "SystemCallFilter": "@system-service",
}


def settings(unit: Path) -> dict[str, str]:
    """Of all sections; keys that occur once."""
    found: dict[str, str] = {}
    for line in unit.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, equals, value = line.partition("=")
            assert equals, line
            assert name not in found, f"{name} twice"
            found[name] = value
    return found


def test_both_daemons_have_one() -> None:
    assert [unit.name for unit in UNITS] == ["nvshare-device-plugin.service", "nvshare-scheduler.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.stem))
def test_its_command_accepts_its_options(unit: Path) -> None:
    program, *arguments = shlex.split(settings(unit)["ExecStart"])
    assert program == "/usr/local/bin/nvshare"
    environment = {name: text for name, text in os.environ.items() if not name.startswith("NVSHARE_")}
    command = [sys.executable, "-m", "nvshare", *arguments, "--print-config"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "NVSHARE_SOCK_DIR" in done.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.stem))
def test_it_is_hardened_and_started_again(unit: Path) -> None:
    found = settings(unit)
    assert HARDENED.items() <= found.items()
    assert (found["Restart"], found["Type"]) == ("always", "exec")
    assert "2" in found["RestartPreventExitStatus"].split(), "a bad setting does not mend itself"
    assert found["WantedBy"] == "multi-user.target"


def test_programs_keep_their_directory_over_restarts() -> None:
    scheduler = settings(UNITS[1])
    assert scheduler["RuntimeDirectory"].split()[0] == "nvshare"
    assert scheduler["RuntimeDirectoryPreserve"] == "yes"
    assert set(scheduler["CapabilityBoundingSet"].split()) >= {"CAP_KILL", "CAP_SYS_PTRACE"}
    assert settings(UNITS[0])["CapabilityBoundingSet"] == ""
