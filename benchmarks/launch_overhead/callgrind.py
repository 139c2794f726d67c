"""Instructions of one library in a callgrind profile.

What a call costs on top of the driver's own work is what the library's functions execute themselves, and
what they have the C library execute for them. What they have the driver do is counted apart.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

_NAMED = re.compile(r"^(ob|cob)=(\(\d+\))(?: (.*))?$")


def instructions(profile: Path, library: str, driver: str) -> Counter[str]:
    """Executed in ``own`` code, in the ``c_library`` on its behalf, and in the ``driver`` on its behalf."""
    names: dict[str, str] = {}
    found: Counter[str] = Counter()
    here = there = ""
    is_call = False
    for line in profile.read_text().splitlines():
        named = _NAMED.match(line)
        if named:
            kind, number, text = named.groups()
            if text is not None:
                names[number] = text
            if kind == "ob":
                here = names[number]
                there = ""
            else:
                there = names[number]
        elif line.startswith("fn="):
            there = ""
        elif line.startswith("calls="):
            is_call = True
        elif line[:1] in "+-*0123456789" and line:
            cost = int(line.split()[1])
            if library in here:
                _add(found, cost, is_call, there or here, library, driver)
            if is_call:
                is_call, there = False, ""
    return found


def _add(found: Counter[str], cost: int, is_call: bool, callee: str, library: str, driver: str) -> None:
    if not is_call:
        found["own"] += cost
    elif driver in callee:
        found["driver"] += cost
    elif library not in callee:
        found["c_library"] += cost
