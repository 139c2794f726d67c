"""How commands that run a daemon read its settings."""

from __future__ import annotations

import sys
from collections.abc import Callable

from nvshare.core.settings import SettingError
from nvshare.runtime.settings import ConfigError, ConfigT, print_config


def config_or_exit(read: Callable[[], ConfigT], show: bool) -> ConfigT:
    """Ends the command with code 2 if a setting is not accepted, and with 0 if they are only to be shown."""
    try:
        config = read()
    except (SettingError, ConfigError) as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    if show:
        print(print_config(config))
        sys.exit(0)
    return config
