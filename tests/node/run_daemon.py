"""``nvshare scheduler`` with other bounds: the first argument is a JSON object of them."""

from __future__ import annotations

import json
import sys
from functools import partial

import nvshare.node.daemon
from nvshare.cli.scheduler import command
from nvshare.node.bounds import Bounds


def main() -> None:
    bounds = Bounds(**json.loads(sys.argv.pop(1)))
    nvshare.node.daemon.Daemon = partial(nvshare.node.daemon.Daemon, bounds=bounds)  # type: ignore
    command()


main()
