"""``nvshare down``: ends the node that ``nvshare up`` started."""

from __future__ import annotations

import sys

import click

from nvshare.cli.errors import EXIT_NOT_PERMITTED, fail, private_directory
from nvshare.local.state import ForeignNodeError
from nvshare.local.up import down, say
from nvshare.runtime.paths import CONTROL_SOCKET


@click.command("down")
@click.option("--private-dir", metavar="DIR", help=f"Directory of {CONTROL_SOCKET} [NVSHARE_PRIVATE_DIR].")
def command(private_dir: str | None) -> None:
    """End the node that `nvshare up` started, and wait until it is gone.

    Programs that use its GPUs go on within the limits they had.

    \b
    Examples:
      nvshare down
      nvshare down --private-dir /run/nvshare-private

    \b
    Exit codes: 0 ended; 1 it did not end; 3 no node is up; 5 not permitted.
    """
    directory = private_directory(private_dir)
    try:
        sys.exit(say(down(directory)))
    except ForeignNodeError as error:
        fail(error, EXIT_NOT_PERMITTED)
    except PermissionError:
        fail(f"{directory}: not permitted", EXIT_NOT_PERMITTED)
