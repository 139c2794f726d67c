"""The page names everything the tables have."""

from __future__ import annotations

from nvshare.wire.dialects import DIALECTS
from nvshare.wire.document import protocol_page
from nvshare.wire.faults import Fault
from nvshare.wire.lifecycle import RECEIVES, SENDS, Refusal, State
from nvshare.wire.messages import MESSAGES


def test_every_row_is_on_the_page() -> None:
    page = protocol_page()
    for row in MESSAGES.values():
        assert f"| {int(row.type)} | {row.type.name} | " in page
        assert all(f"`{name}`" in page for name in (*row.fields, *row.arguments))
    assert all(f"`{dialect.struct_code()}`" in page for dialect in DIALECTS)
    assert all(f"| `{word}` | " in page for word in (*Fault, *Refusal, *State))


def test_every_change_of_state_is_in_the_diagram() -> None:
    diagram = protocol_page().split("```mermaid")[1].split("```")[0]
    for table in (RECEIVES, SENDS):
        for (state, message_type), after in table.items():
            if after is not state:
                arrow = next(line for line in diagram.splitlines() if f"{state} --> {after}:" in line)
                assert message_type.name in arrow
