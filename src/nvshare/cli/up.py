"""``nvshare up``: a node for one machine."""

from __future__ import annotations

import os
import sys

import click

from nvshare.cli.errors import EXIT_BAD_INPUT, fail
from nvshare.core.settings import SettingError
from nvshare.local.supervisor import NodeError, NodePlan
from nvshare.local.up import detach, say, up
from nvshare.node.config import load
from nvshare.runtime.paths import CONTROL_SOCKET, SCHEDULER_SOCKET
from nvshare.runtime.settings import ConfigError


@click.command("up")
@click.option("--sim", "cards", metavar="t4:2", help="Use simulated GPUs, even if there are real ones.")
@click.option(
    "--detach", "-d", "detached", is_flag=True, help="Return when the node is ready; `nvshare down` ends it."
)
@click.option("--sock-dir", metavar="DIR", help=f"Directory of {SCHEDULER_SOCKET} [NVSHARE_SOCK_DIR].")
@click.option("--private-dir", metavar="DIR", help=f"Directory of {CONTROL_SOCKET} [NVSHARE_PRIVATE_DIR].")
def command(cards: str | None, detached: bool, sock_dir: str | None, private_dir: str | None) -> None:
    """Share this machine's GPUs, or simulated ones if it has none.

    Stays in the foreground and shows what each program asked for and what it gets. Ctrl-C or `nvshare down`
    ends it; programs that still run go on within the limits they had.

    \b
    Examples:
      nvshare up
      nvshare up --sim t4:2 --detach
      nvshare run --gpu-core-limit 30 -- python train.py

    \b
    Exit codes: 0 ended by a signal, or ready with --detach; 2 a setting is not
    accepted, or a directory cannot be used; 4 a node or daemon is up already.
    """
    flags = {"NVSHARE_SOCK_DIR": sock_dir or "", "NVSHARE_PRIVATE_DIR": private_dir or ""}
    try:
        config = load(flags, os.environ, None)
    except (SettingError, ConfigError) as error:
        fail(error, EXIT_BAD_INPUT)
    plan = NodePlan(config.sock_dir, config.private_dir, cards, users=config.users)
    if detached:
        sys.exit(say(detach(plan)))
    try:
        print(up(plan), flush=True)
    except NodeError as error:
        fail(error, error.code)
