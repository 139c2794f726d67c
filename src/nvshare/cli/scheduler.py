"""``nvshare scheduler``: the daemon of a node."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from nvshare.core.settings import SettingError
from nvshare.node.config import Config, ConfigError, load, print_config


@click.command("scheduler")
@click.option("--sock-dir", metavar="DIR", help="Directory of scheduler.sock, which tenants reach.")
@click.option("--private-dir", metavar="DIR", help="Directory of control.sock, checkpoint and token.")
@click.option("--gpus", metavar="nvml|UUID=16Gi,...", help="Where to learn of GPUs, or which there are.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="Settings in YAML.")
@click.option("--print-config", "show", is_flag=True, help="Show each setting and its source, and end.")
def command(
    sock_dir: str | None, private_dir: str | None, gpus: str | None, file: Path | None, show: bool
) -> None:
    """Decide who may use the GPUs of this machine, and when.

    \b
    Exit codes: 0 ended by a signal; 2 a setting is not accepted or a directory cannot be used;
    4 another daemon has the directory.
    """
    flags = {
        "NVSHARE_SOCK_DIR": sock_dir or "",
        "NVSHARE_PRIVATE_DIR": private_dir or "",
        "NVSHARE_GPUS": gpus or "",
    }

    def read() -> Config:
        return load(flags, os.environ, file)

    try:
        config = read()
    except (SettingError, ConfigError) as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    if show:
        print(print_config(config))
        return
    from nvshare.node.daemon import Daemon  # --print-config needs no event loop

    sys.exit(Daemon(config, read).run())
