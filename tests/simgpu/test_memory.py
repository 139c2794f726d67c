"""Memory of every kind is counted from its allocation to its end, and small contents are real."""

from __future__ import annotations

from typing import Any

MIB = 1 << 20


def test_every_kind(sim: Any) -> None:
    report = sim.script("memory.py")
    assert report["peer_saw"] == "written by owner"
    assert report["peer_wrote"] == "changed by peer!"
    assert report["mapped_twice"] == "both"
    assert report["created"] == report["released_but_mapped"] == 2 * MIB
    assert report["after_unmap"] == 0
    assert (report["pool"], report["pool_keeps"], report["pool_trimmed"]) == (40 * MIB, 40 * MIB, 0)
    assert report["pitch"] == 512
    assert report["rows"] == ["a", "b", "c"]
    assert report["array"] == 1024
    assert (report["untouched"], report["touched"]) == (0, 100 * MIB)
    assert (report["sent_home"], report["brought_back"]) == (0, 100 * MIB)
    assert report["twice"] == "CUDA_ERROR_INVALID_VALUE"
    assert report["left"] == 0
    card = sim.card()
    assert card.copy_out_ns > 100 * MIB * 10**9 // card.pcie_bytes_per_s
    assert list(sim.directory.glob("ipc-*")) == []
