"""The messages sent most often cost less than the straightforward way; `make bench` has the figures."""

from __future__ import annotations

import pytest

from benchmarks.wire import best_ns, decoding, encoding


@pytest.mark.verify
def test_frequent_messages_decode_faster_than_unpacking_with_text() -> None:
    times_ns = best_ns(decoding(), rounds=5)
    plain_ns = times_ns["unpack + 3 texts"]
    for name in ("REQ_LOCK", "LOCK_RELEASED", "TURN_ENDED", "BUSY", "MEM_UPDATE"):
        assert times_ns[f"{name}, 16 at once"] < plain_ns, name


@pytest.mark.parametrize("name", ["LOCK_OK", "DROP_LOCK"])
def test_grant_and_drop_are_kept_frames(name: str) -> None:
    contender = next(contender for contender in encoding() if contender.name == name)
    assert contender.call() is contender.call()
