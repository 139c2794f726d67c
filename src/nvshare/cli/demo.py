"""``nvshare demo``: five tenants on one node."""

from __future__ import annotations

import click

from nvshare.cli.ending import EXIT_BAD_INPUT, fail
from nvshare.local.demo import demo, tell_end
from nvshare.local.node import NodeError

SECONDS_MAX = 86_400


@click.command("demo")
@click.option(
    "--for", "seconds", metavar="60", default="60", help="How many seconds to show it. Default: 60."
)
def command(seconds: str) -> None:
    """Show five tenants that share GPUs: what they asked for and what they get.

    Uses this machine's GPUs or, without any, two simulated T4. Ends by itself with a closing table; Ctrl-C
    ends it sooner. Nothing is left behind.

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
