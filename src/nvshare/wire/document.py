"""docs/protocol.md, made from the tables. Pure: it returns the text, a tool writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nvshare.wire.dialects import DIALECTS, FIELD_CODES, V3
from nvshare.wire.faults import FAULTS
from nvshare.wire.lifecycle import RECEIVES, REFUSALS, REFUSED_RECEIVES, SENDS, STATE_MEANINGS, Refusal, State
from nvshare.wire.messages import (
    ARGUMENTS_MAX,
    FIRST_OWN_TYPE,
    MESSAGES,
    OPERATOR_ID,
    REGISTER_ID,
    MessageRow,
    MessageType,
    Sender,
)

_HEAD = f"""# The protocol

Generated from the tables in `src/nvshare/wire`; `make docs` writes it. Do not edit.

Programs talk to the daemon over a Unix stream socket, in frames of fixed size, little endian, without length,
magic or checksum. A process has one connection for each GPU it uses. A text ends at its first NUL byte; what
follows it is not read. A field that means nothing in a message is sent as zero and not read.

Messages of version 3 keep the frame of version 2. They have numbers from {FIRST_OWN_TYPE} up and up to
{ARGUMENTS_MAX} unsigned 64-bit arguments at offset {V3.offsets["pod_name"]}, where other messages have the
pod's name. An argument that answers yes or no is 0 for no and anything else for yes. An older peer is
never sent a message it does not know.
"""

_RECOGNITION = f"""
A peer is recognised by the content of its first message, never by timing or by how the bytes were cut:

1. bytes 1-2 are 2 or 3: a frame of {V3.frame_bytes} bytes, and that version;
2. else the 64-bit number at offset 509 is {REGISTER_ID} or {OPERATOR_ID:#x}: a frame of 537 bytes;
3. else the one at offset 605: a frame of 653 bytes;
4. else the one at offset 607: a frame of 659 bytes, version 2 (an operator's message has version 0);
5. else the connection ends with the reason `unknown_frame`.

What the first message says holds for the whole connection. The daemon answers in the peer's dialect; a client
of version 3 knows by bytes 1-2 of the answer whether the daemon speaks version 3 too.
"""

_ARROWS = {
    Sender.CLIENT: "client → daemon",
    Sender.DAEMON: "daemon → client",
    Sender.OPERATOR: "operator → daemon",
}


def protocol_page() -> str:
    """The whole page."""
    return "\n".join(
        [
            _HEAD,
            "## Frames\n",
            _frames(),
            _RECOGNITION,
            "## Messages\n",
            _messages(),
            "\n## Life of a connection\n",
            _states(),
            _diagram(),
            "What the daemon takes and sends in each state; any other message is refused:\n",
            _transitions(),
            "\n## Refusals\n",
            _refusals(),
            "\n## Faults\n",
            "A fault that is not fatal is counted under its word and the message ignored.\n",
            _faults(),
            "",
        ]
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _frames() -> str:
    head = ["field", "type", *(f"{dialect.name}, {dialect.frame_bytes} bytes" for dialect in DIALECTS)]
    rows = [
        [f"`{field}`", f"`{code}`", *(f"{dialect.offsets.get(field, '–')}" for dialect in DIALECTS)]
        for field, code in FIELD_CODES.items()
    ]
    meanings = "\n".join(
        f"- **{dialect.name}** (`{dialect.struct_code()}`): {dialect.meaning}; knows messages up to version"
        f" {dialect.version}"
        for dialect in DIALECTS
    )
    return f"Offsets in bytes; types as Python's `struct` writes them.\n\n{_table(head, rows)}\n\n{meanings}"


def _field_list(row: MessageRow) -> str:
    fixed = [f"`id` = {row.fixed_id} ({row.fixed_id:#x})"] if row.fixed_id else []
    fields = fixed + [f"`{field}`" for field in row.fields]
    if row.arguments:
        fields.append("arguments " + ", ".join(f"`{name}`" for name in row.arguments))
    return ", ".join(fields) or "none"


def _messages() -> str:
    rows = [
        [
            str(int(row.type)),
            row.type.name,
            "; ".join(_ARROWS[sender] for sender in row.senders),
            str(row.since_version),
            _field_list(row),
            row.meaning,
        ]
        for row in MESSAGES.values()
    ]
    return _table(["number", "name", "direction", "since version", "fields", "meaning"], rows)


def _states() -> str:
    return _table(["state", "meaning"], ([f"`{state}`", text] for state, text in STATE_MEANINGS.items()))


def _diagram() -> str:
    """Only what changes the state; what stays is in the table below it."""
    arrows: dict[tuple[State, State], list[str]] = {}
    for mark, table in (("", RECEIVES), ("answer ", SENDS)):
        for (state, message_type), after in table.items():
            if after is not state:
                arrows.setdefault((state, after), []).append(mark + message_type.name)
    lines = [
        f"    {state} --> {after}: {', '.join(sorted(names))}" for (state, after), names in arrows.items()
    ]
    diagram = "\n".join(
        ["stateDiagram-v2", f"    [*] --> {State.NEW}", *lines, f"    {State.CLOSED} --> [*]"]
    )
    return f"\n```mermaid\n{diagram}\n```\n\nEvery state ends in `closed` when the connection does.\n"


def _steps(table: Mapping[tuple[State, MessageType], State], state: State) -> str:
    steps = [(message_type.name, after) for (before, message_type), after in table.items() if before is state]
    changes = [f"{name} → `{after}`" for name, after in sorted(steps) if after is not state]
    stays = [name for name, after in sorted(steps) if after is state]
    if stays:
        changes.append("stays: " + ", ".join(stays))
    return "; ".join(changes) or "nothing"


def _transitions() -> str:
    rows = [[f"`{state}`", _steps(RECEIVES, state), _steps(SENDS, state)] for state in State]
    return _table(["state", "taken from the peer", "sent by the daemon"], rows)


def _refusals() -> str:
    def where(refusal: Refusal) -> str:
        states = dict.fromkeys(state for (state, _), given in REFUSED_RECEIVES.items() if given is refusal)
        return ", ".join(f"`{state}`" for state in states)

    rows = [
        [
            f"`{row.refusal}`",
            where(row.refusal),
            "ends it" if row.fatal else "counted and ignored",
            row.meaning,
        ]
        for row in REFUSALS.values()
    ]
    return _table(["reason", "in state", "the connection", "meaning"], rows)


def _faults() -> str:
    rows = [[f"`{row.fault}`", "yes" if row.fatal else "no", row.when, row.why] for row in FAULTS.values()]
    return _table(["reason", "fatal", "when", "why"], rows)
