"""How we start a module of our own in another interpreter.

``python -m`` looks for modules in the current directory first. Whoever can write to it would decide what
runs, so our own processes do not look there (``-P``), as the installed command does not.
"""

from __future__ import annotations

import sys


def module_command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *arguments]
