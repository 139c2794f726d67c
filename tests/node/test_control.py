"""``nvshare ctl`` and the control socket: what they show, change and refuse."""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path

import pytest

from nvshare.cli.ctl import command as ctl_command
from nvshare.client.control import Rejected
from tests.node.commands import ctl, nvshare
from tests.node.harness import DaemonProcess, gpu_key, in_child


def test_ctl_shows_and_changes(daemon: DaemonProcess) -> None:
    daemon.client("web").lock()
    assert f"{daemon.pid}" in ctl(daemon, "status").stdout
    assert gpu_key() in ctl(daemon, "gpus", "--wide").stdout
    assert gpu_key() not in ctl(daemon, "gpus").stdout, "it would fill the line"
    assert "default/web" in ctl(daemon, "clients").stdout
    assert "running" in ctl(daemon, "explain", "web").stdout
    assert ctl(daemon, "off").stdout == "scheduling off\n"
    assert daemon.status()["scheduling_on"] is False
    assert ctl(daemon, "on").stdout == "scheduling on\n"
    assert json.loads(ctl(daemon, "--json", "tq", "5").stdout) == {"seconds": 5}
    assert ctl(daemon, "token").stdout.strip() == (daemon.private_dir / "token").read_text().strip()
    answer = json.loads(
        ctl(daemon, "quota", "set", "web", "--core", "30", "--core-policy", "share", "--json").stdout
    )
    assert (answer["limits"]["core_percent"], answer["limits"]["share"]) == (30, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("quota", "set", "web", "--core", "0"),
            "'0' is not understood; accepted: a whole number from 1 to 100",
        ),
        (("quota", "set", "web", "--memory", "lots"), "'lots' is not understood"),
        (("quota", "set", "WEB", "--core", "5"), "'WEB' is not a pod name; accepted: "),
        (("quota", "set", "web"), "nothing to set"),
        (("tq", "0"), "'0' is not a slice; accepted: whole seconds, 1 to 86400"),
        (("explain", "absent"), "default/absent has no process on this node; nvshare ctl clients lists"),
        (("quota", "set", "web", "--memory", "4"), "did you mean 4Gi?"),
    ],
)
def test_ctl_names_what_is_not_accepted(
    daemon: DaemonProcess, arguments: tuple[str, ...], words: str
) -> None:
    result = ctl(daemon, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert words in result.stderr


def test_ctl_without_a_daemon(tmp_path: Path) -> None:
    result = nvshare("ctl", "status", NVSHARE_PRIVATE_DIR=str(tmp_path))
    assert result.returncode == 3
    assert f"no daemon is running: there is no {tmp_path / 'control.sock'}" in result.stderr
    assert "start one with `nvshare up`" in result.stderr
    assert "Errno" not in result.stderr


def test_ids_of_clients_are_one_text_everywhere(daemon: DaemonProcess) -> None:
    """As numbers they would be wrong in every reader of JSON that has only doubles."""
    client = daemon.client("web")
    known = f"{client.client_id:016x}"
    [row] = daemon.control.ask("GET", "/v1/clients")["clients"]
    [gpu] = daemon.control.ask("GET", "/v1/gpus")["gpus"]
    [tenant] = daemon.control.ask("GET", "/v1/tenants/default/web")["tenants"]
    shown = [row["client"], gpu["tenants"][0]["clients"][0]["client"], tenant["clients"][0]["client"]]
    assert shown == [known] * 3
    assert _numbers_too_large(daemon.control.ask("GET", "/v1/status")) == []


def _numbers_too_large(answer: object, name: str = "") -> list[str]:
    if isinstance(answer, dict):
        return [
            found for key, value in answer.items() for found in _numbers_too_large(value, f"{name}.{key}")
        ]
    too_large = isinstance(answer, int) and abs(answer) > 2**53
    return [name] if too_large else []


def test_explain_speaks_to_people(daemon: DaemonProcess) -> None:
    daemon.client("web").lock()
    lines = ctl(daemon, "explain", "web").stdout.splitlines()
    assert lines[0].startswith("default/web on GPU 0: running for ")
    assert lines[1:3] == ["  why: it has the GPU", "  would help: nothing: it is running"]
    assert lines[3:] == ["  quota: none", "  memory: 0 B, no limit"]


def ctl_of_a_stranger(daemon: DaemonProcess, *arguments: str) -> int:
    """The exit code of ctl run by nobody, who could not execute what lies in a private directory."""

    def stranger() -> None:
        os.setuid(65_534)
        try:
            ctl_command(["--private-dir", str(daemon.private_dir), *arguments])
        except SystemExit as ended:
            os._exit(int(ended.code or 0))

    _, status = os.waitpid(in_child(stranger), 0)
    return os.waitstatus_to_exitcode(status)


def test_ctl_of_a_stranger(daemon: DaemonProcess) -> None:
    assert ctl_of_a_stranger(daemon, "status") == 5


def test_control_checks_credentials_at_accept(daemon: DaemonProcess) -> None:
    """Even if the directory let strangers in."""
    daemon.private_dir.chmod(0o711)
    (daemon.private_dir / "control.sock").chmod(0o666)
    assert ctl_of_a_stranger(daemon, "off") == 5
    assert daemon.status()["scheduling_on"] is True
    assert daemon.counters()["refused"] == {"not_permitted": 1}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/quotas/web", {"core_percent": 101}),
        ("PUT", "/v1/quotas/web", {"memory_bytes": -1}),
        ("PUT", "/v1/quotas/web", {"policy": "greedy"}),
        ("PUT", "/v1/quotas/web", {"colour": 1}),
        ("PUT", "/v1/quotas/We%20b", {"core_percent": 1}),
        ("PUT", "/v1/slice", {"seconds": 0}),
        ("PUT", "/v1/scheduling", {"on": "maybe"}),
        ("POST", "/v1/runs", {"pid": 2**22 + 1, "pod": "x"}),
        ("GET", "/v1/tenants/absent", None),
    ],
)
def test_control_refuses_what_cannot_be_meant(
    daemon: DaemonProcess, method: str, path: str, body: object
) -> None:
    with pytest.raises(Rejected):
        daemon.control.ask(method, path, body)
    assert daemon.status()["scheduling_on"] is True


def test_control_survives_nonsense(daemon: DaemonProcess) -> None:
    for raw in (
        b"\0" * 100_000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"PUT /v1/quotas/a HTTP/1.1\r\ncontent-length: 9\r\n",
    ):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(daemon.control.path))
            try:
                stranger.sendall(raw)
            except OSError:
                continue
    connection = http.client.HTTPConnection("daemon")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(daemon.control.path))
    connection.request("PUT", "/v1/quotas/a", b"x" * 100_000)
    assert connection.getresponse().status == 400
    connection.close()


def test_scheduling_that_was_switched_off_stays_off_after_a_crash(daemon: DaemonProcess) -> None:
    """It is on disk before it is answered; a checkpoint follows changes within a second only."""
    daemon.status()
    assert daemon.control.ask("PUT", "/v1/scheduling", {"on": False}) == {"on": False, "not_kept": ""}
    daemon.kill()
    daemon.start()
    assert daemon.status()["scheduling_on"] is False
