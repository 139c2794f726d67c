"""What the commands of ``nvshare ctl`` share: a daemon to ask, and a way to show its answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from nvshare.cli.errors import START_ONE, daemon_errors
from nvshare.client.control import TIMEOUT_SEC, ControlClient
from nvshare.plain_text import PlainTable, plain
from nvshare.tables import FittedTable

_PIPE_COLUMNS: Final = 200


class Caller:
    """Asks the daemon, and ends the command with the right code when that fails."""

    def __init__(self, control_client: ControlClient, as_json: bool) -> None:
        self.control_client = control_client
        self.as_json = as_json
        self.wide = False  # tables with all their columns, whatever the terminal's width

    def ask(
        self, method: str, path: str, body: object = None, timeout_sec: float = TIMEOUT_SEC
    ) -> dict[str, Any]:
        with daemon_errors(START_ONE):
            return self.control_client.ask(method, path, body, timeout_sec)

    def show(self, answer: dict[str, Any], *lines: object) -> None:
        if self.as_json:
            print(json.dumps(answer, indent=2))
            return
        console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, highlight=False)
        for line in lines:
            if isinstance(line, FittedTable) and self.wide:
                console.width = max(console.width, line.width())
            console.print(Text(plain(line)) if isinstance(line, str) else line)


def table_of(*columns: str) -> PlainTable:
    table = PlainTable(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def with_json(function: Callable[..., None]) -> Callable[..., None]:
    """A command of ctl that gets its context, and also accepts --json after its name."""

    @wraps(function)
    def command(context: Caller, /, *arguments: Any, **options: Any) -> None:
        context.as_json |= options.pop("as_json")
        function(context, *arguments, **options)

    option = click.option("--json", "as_json", is_flag=True, help="The daemon's answer as JSON.")
    return option(click.pass_obj(command))
