"""What all commands of ``nvshare ctl`` need: a daemon to ask, and a way to show its answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from nvshare.cli.ending import daemon_errors
from nvshare.node.controlling import TIMEOUT_SEC, Controller


class Caller:
    """Asks the daemon, and ends the command with the right code when that fails."""

    def __init__(self, private_dir: Path, as_json: bool) -> None:
        self.controller = Controller(private_dir)
        self.as_json = as_json

    def ask(
        self, method: str, path: str, body: object = None, timeout_sec: float = TIMEOUT_SEC
    ) -> dict[str, Any]:
        with daemon_errors():
            return self.controller.ask(method, path, body, timeout_sec)

    def show(self, answer: dict[str, Any], *lines: object) -> None:
        if self.as_json:
            print(json.dumps(answer, indent=2))
            return
        console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
        for line in lines:
            console.print(line)


def table_of(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
