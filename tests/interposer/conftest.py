"""Nodes for tests."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interposer.harness import Node


@pytest.fixture
def make_node() -> Iterator[Callable[..., Node]]:
    """Makes nodes: make_node("t4:2"). Their daemon is not started yet."""
    made: list[Node] = []
    with tempfile.TemporaryDirectory(prefix="nvshare-test-") as name:

        def make(cards: str = "t4:1") -> Node:
            made.append(Node(Path(name) / str(len(made)), cards))
            made[-1].directory.mkdir(exist_ok=True)
            return made[-1]

        yield make
        for node in made:
            node.close()


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    """One T4 and a running daemon."""
    made = make_node()
    made.daemon.start()
    return made
