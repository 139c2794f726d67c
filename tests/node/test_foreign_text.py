"""Names that others choose, in what ``nvshare ctl`` and ``nvshare up`` print: shown, and never acted on."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from io import StringIO
from typing import Any, Final

import pytest
from click.testing import CliRunner
from rich.console import Console

from nvshare.cli import main
from nvshare.client.control import ControlClient
from nvshare.local.summary import TenantRow, as_lines, as_table
from nvshare.plain_text import plain, plain_lines
from tests.hostile.strangers import stranger
from tests.node.harness import DaemonProcess
from tests.node.test_kill import client_of

HOSTILE: Final = "x[/b][red]\x1b]0;owned\x07\x9b2J\N{RIGHT-TO-LEFT OVERRIDE}\nfake"
SHOWN: Final = r"x[/b][red]\x1b]0;owned\x07\x9b2J\u202e\nfake"


@pytest.fixture
def renamed(daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonProcess]:
    """A daemon whose answers name a pod as no daemon should let it be named."""
    ask = ControlClient.ask

    def asked(*arguments: Any, **options: Any) -> Any:
        answer = json.dumps(ask(*arguments, **options))
        return json.loads(answer.replace("default/web", json.dumps(HOSTILE)[1:-1]))

    with stranger(client_of(daemon), 0) as pid:
        monkeypatch.setattr(ControlClient, "ask", asked)
        yield daemon
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "words",
    [
        ("clients",),
        ("clients", "--wide"),
        ("quota", "list"),
        ("quota", "get", "web"),
        ("quota", "set", "web", "--core", "30"),
        ("explain", "web"),
        ("drain", "{gpu}", "--no-wait"),
        ("drain", "{gpu}", "--timeout", "0"),
        ("kill", "web", "--yes"),
    ],
    ids=" ".join,
)
def test_commands_of_ctl(renamed: DaemonProcess, words: tuple[str, ...]) -> None:
    gpu = renamed.control.ask("GET", "/v1/gpus")["gpus"][0]["gpu"]
    arguments = [word.format(gpu=gpu) for word in words]
    result = CliRunner().invoke(main, ["ctl", "--private-dir", str(renamed.private_dir), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert all(letter.isprintable() or letter == "\n" for letter in result.output), repr(result.output)
    assert SHOWN in result.output


def test_the_table_of_a_node() -> None:
    row = TenantRow(HOSTILE, "GPU-x", 0, 30, 30.0, False, 1.0, 0, 0, "running")
    screen = StringIO()
    Console(width=200, file=screen).print(as_table([row], "1 tenant"))
    assert SHOWN in screen.getvalue()
    [line] = as_lines([row])
    assert SHOWN in line


def test_text() -> None:
    assert plain("Größe 名前 [x] \\") == "Größe 名前 [x] \\"
    assert plain("a\nb\udc80\x7f") == r"a\nb\udc80\x7f"
    assert plain_lines("a\nb\r") == "a\nb\\r"
