"""Tables of what was measured, a row at a time, and whether it is within its bounds."""

from __future__ import annotations


def numbers(values: tuple[float, ...]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


class Table:
    def __init__(self, head: str) -> None:
        self._missed = 0
        print(head)

    def row(self, text: str, good: bool) -> None:
        self._missed += not good
        print(text if good else f"{text}  MISSED", flush=True)

    def end(self, words: str) -> int:
        """What to exit with."""
        print(f"\n{self._missed} missed; {words}")
        return 1 if self._missed else 0
