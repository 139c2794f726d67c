"""The ``nvshare`` command: one file per subcommand, loaded only when it is called.

Adding a command touches the table below and one file in this directory that defines ``command``.
"""

from __future__ import annotations

import importlib
import os
from typing import Final

import click

from nvshare import __version__

# name -> one-line help, so that `nvshare --help` imports no command's dependencies.
COMMANDS: Final[dict[str, str]] = {
    "cluster": "Serve metrics of the GPUs of a whole cluster, by HAMi's names and ours.",
    "ctl": "Look into the daemon, change quotas, drain GPUs.",
    "device-plugin": "Offer parts of this node's GPUs to the kubelet.",
    "demo": "Show six tenants that share GPUs.",
    "down": "End the node that `nvshare up` started.",
    "monitor": "Serve metrics of this node's GPUs and containers, by HAMi's names and ours.",
    "run": "Run a command with a part of a GPU.",
    "scheduler": "Run the daemon that shares this machine's GPUs.",
    "sim": "Inspect, break and reset simulated GPUs.",
    "simulate": "Run the scheduler in virtual time against modelled programs.",
    "up": "Share this machine's GPUs, or simulated ones.",
}

DAEMONS: Final = ("cluster", "device-plugin", "monitor", "scheduler")
"""Commands that check the environment by their own tables."""


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


def _tell_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from nvshare.build import describe_core

        click.echo(f"nvshare {__version__}, {describe_core()}")
        context.exit()


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_tell_version,
    help="Show the version and exit.",
)
@click.pass_context
def main(context: click.Context) -> None:
    """Share one GPU among processes and pods, with quotas that hold.

    \b
    Examples:
      nvshare up --sim t4:2 --detach
      nvshare run --gpu-core-limit 30 --gpu-memory-limit 4Gi -- python train.py
      nvshare ctl clients
      nvshare down
    """
    if context.invoked_subcommand not in DAEMONS:  # which say it in their logs
        _warn_of_misspelt_variables()


def _warn_of_misspelt_variables() -> None:
    if any(name.startswith("NVSHARE_") for name in os.environ):
        from nvshare.node.config import unknown_variables  # slow to load, and seldom needed

        for warning in unknown_variables(os.environ):
            click.echo(f"Warning: {warning}", err=True)
