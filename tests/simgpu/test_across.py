"""Order across cards and processes: events of one card and process hold up streams of another."""

from __future__ import annotations

from typing import Any


def test_events_copies_and_freeing(make_sim: Any) -> None:
    report = make_sim("t4:2").script("across.py")
    assert report["before"] == "CUDA_ERROR_NOT_READY"
    assert report["first_is_done"] == "CUDA_SUCCESS"
    assert report["peer_copy"] == "from the first card"
    assert report["peer_before"] == "CUDA_ERROR_NOT_READY"
    assert report["peer_after"] == "CUDA_SUCCESS"
    assert report["free_waits"] is True
    assert report["freed"] is True
