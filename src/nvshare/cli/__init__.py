"""The ``nvshare`` command: one file per subcommand, loaded only when it is called.

Adding a command touches the table below and one file in this directory that defines ``command``.
"""

from __future__ import annotations

import importlib
from typing import Final

import click

from nvshare import __version__

# name -> one-line help, so that `nvshare --help` imports no command's dependencies.
COMMANDS: Final[dict[str, str]] = {
    "ctl": "Look into the daemon and change quotas.",
    "demo": "Show five tenants that share GPUs.",
    "down": "End the node that `nvshare up` started.",
    "run": "Run a command with a part of a GPU.",
    "scheduler": "Run the daemon that shares this machine's GPUs.",
    "sim": "Show, break and reset simulated GPUs.",
    "simulate": "Run the scheduler in virtual time against modelled programs.",
    "up": "Share this machine's GPUs, or simulated ones.",
}


class _LazyGroup(click.Group):
    """Imports ``nvshare.cli.<name>`` when ``<name>`` is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"nvshare.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in sorted(COMMANDS)])


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nvshare")
def main() -> None:
    """Share one GPU among processes and pods, with quotas that hold.

    \b
    Examples:
      nvshare up --sim t4:2 --detach
      nvshare run --gpu-core-limit 30 --gpu-memory-limit 4Gi -- python train.py
      nvshare ctl clients
      nvshare down
    """
