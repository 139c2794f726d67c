"""Processes of other users that do what they should not, as long as a test looks."""

from __future__ import annotations

import os
import resource
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from tests.node.harness import PATIENCE_SEC, in_child

NOBODY: Final = 65_534
Held = TypeVar("Held")


@contextmanager
def stranger(
    act: Callable[[], Held],
    uid: int = NOBODY,
    then: Callable[[Held], object] = lambda _held: signal.pause(),
) -> Iterator[int]:
    """A process of that user which has acted, and lives on with all it holds or goes on; its pid."""
    reading, writing = os.pipe()

    def live() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        os.setuid(uid)
        held = act()
        os.write(writing, b"x")
        then(held)

    child = in_child(live)
    os.close(writing)
    try:
        assert select.select([reading], [], [], PATIENCE_SEC)[0], "it never got that far"
        assert os.read(reading, 1) == b"x", "it failed"
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
