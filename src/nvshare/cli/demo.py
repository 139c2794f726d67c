"""``nvshare demo``: six tenants on one node."""

from __future__ import annotations

import click

from nvshare.cli.errors import EXIT_BAD_INPUT, fail
from nvshare.local.demo import demo, tell_end
from nvshare.local.supervisor import NodeError

SECONDS_MAX = 86_400


@click.command("demo")
@click.option(
    "--for", "seconds", metavar="SECONDS", default="60", show_default=True, help="How long to show it."
)
def command(seconds: str) -> None:
    """Show six tenants that share GPUs: what each asked for and what it gets.

    Uses this machine's GPUs, or two simulated T4 if it has none. Ends by itself with a closing table, or
    sooner with Ctrl-C, and leaves nothing behind.

    \b
    Examples:
      nvshare demo
      nvshare demo --for 20
    """
    if not (seconds.isascii() and seconds.isdigit() and 1 <= int(seconds[:9]) <= SECONDS_MAX):
        fail(f"--for {seconds!r} is not understood; accepted: seconds, 1 to {SECONDS_MAX}", EXIT_BAD_INPUT)
    try:
        tell_end(demo(int(seconds)))
    except NodeError as error:
        fail(error, error.code)
