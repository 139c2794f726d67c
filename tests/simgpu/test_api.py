"""The rest of the driver API answers as CUDA does: contexts, modules, graphs, fills, attributes."""

from __future__ import annotations

from typing import Any

import pytest


def test_answers(sim: Any) -> None:
    report = sim.script("api.py")
    card = sim.card()
    launch_ms = card.launch_ns / 1e6
    assert report["before_init"] == "CUDA_ERROR_NOT_INITIALIZED"
    assert report["no_such_device"] == "CUDA_ERROR_INVALID_DEVICE"
    assert report["second_context"] == card.context_bytes
    assert report["current_is_created"]
    assert report["current_is_primary"]
    assert report["after_destroy"] == 0
    assert report["destroy_primary"] == "CUDA_ERROR_INVALID_CONTEXT"
    assert report["state"] == [0, 1]
    assert report["limit"] == 1024
    assert report["parameters"] == [[0, 8], [8, 16], [24, 4]]
    assert report["no_such_kernel"] == "CUDA_ERROR_NOT_FOUND"
    assert report["global"] == [64, "04030201"]
    assert report["bad_image"] == "CUDA_ERROR_INVALID_PTX"
    assert report["any_name"] == "CUDA_SUCCESS"
    assert (report["threads"], report["occupancy"]) == (1024, 4)
    assert report["fill_2d"] == ["cdabcdabcdabcdab0000"] * 3
    assert report["bad_fill"] == report["big_block"] == "CUDA_ERROR_INVALID_VALUE"
    assert report["range"] == [True, 4096, 0]
    assert report["unknown_pointer"] == "CUDA_ERROR_INVALID_VALUE"
    assert report["registered_twice"] == "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"
    assert report["unregistered_twice"] == "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"
    assert report["nodes_roots_edges"] == [3, 2, 1]
    assert report["graph_copied"]
    assert report["kernel_changed_ms"] == pytest.approx(0.75, abs=0.0001)
    assert report["update_refused"] == "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"
    assert report["callback"] == [0]
    assert report["box"] == [10, 11, 12, 13, 18, 19, 20, 21, 42, 43, 44, 45, 50, 51, 52, 53]
    bandwidth_ms = (64 << 20) / card.bandwidth_bytes_per_s * 1e3
    assert report["two_touch_ms"] == pytest.approx(2 * (bandwidth_ms + launch_ms), rel=0.001)
    assert report["text"] == "out of memory"
