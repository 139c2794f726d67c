"""Which build of the package runs: its core compiled by mypyc, or plain Python. See setup.py.

Found without loading the core, so that `nvshare --version` stays quick.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from nvshare import __version__

_PLAIN_REASON: Final = Path(__file__).with_name("plain_reason.txt")


@cache
def core_kind() -> Literal["compiled", "plain"]:
    spec = find_spec("nvshare.core.scheduler")
    return "plain" if spec is None or str(spec.origin).endswith(".py") else "compiled"


def why_plain() -> str:
    """What kept an installation from compiling the core; empty if nothing did, or if it is editable."""
    if core_kind() == "compiled" or not _PLAIN_REASON.exists():
        return ""
    return _PLAIN_REASON.read_text(encoding="utf-8").strip()


def describe_core() -> str:
    """For people: `compiled core`, or `plain core`, and why."""
    reason = why_plain()
    return f"{core_kind()} core" + (f" ({reason})" if reason else "")


@cache
def build_labels() -> tuple[str, str, str, str, str, str]:
    """For hami_build_info: version, revision, build date, language, compiler, platform; none of them empty.

    The revision identifies the code that runs, however it came here: a digest of the package's sources.
    """
    import hashlib
    import platform
    import time

    package = Path(__file__).parent
    sources = sorted(package.rglob("*.py"))
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    built = time.gmtime(max(source.stat().st_mtime for source in sources))
    return (
        __version__,
        digest.hexdigest()[:12],
        time.strftime("%Y-%m-%dT%H:%M:%SZ", built),
        f"none, {platform.python_implementation()} {platform.python_version()}",
        platform.python_compiler(),
        f"{platform.system().lower()}/{platform.machine()}",
    )
