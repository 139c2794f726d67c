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
    assert report["graph_in_graph"] == pytest.approx(2, rel=0.001)
    assert report["kernel_changed_ms"] == pytest.approx(0.75, abs=0.0001)
    assert report["update_refused"] == "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"
    assert report["callback"] == [0]
    assert report["box"] == [10, 11, 12, 13, 18, 19, 20, 21, 42, 43, 44, 45, 50, 51, 52, 53]
    bandwidth_ms = (64 << 20) / card.bandwidth_bytes_per_s * 1e3
    assert report["two_touch_ms"] == pytest.approx(2 * (bandwidth_ms + launch_ms), rel=0.001)
    assert report["text"] == "out of memory"


def test_more_answers(make_sim: Any) -> None:
    sim = make_sim("t4:2")
    report = sim.script("api_more.py")
    card = sim.card()
    mib = 1 << 20
    streamed_ms = 20 * (1 << 30) / card.pcie_bytes_per_s * 1e3
    assert report.pop("streamed_ms") == pytest.approx(streamed_ms, rel=0.02)
    assert report == {
        "capability": [7, 5],
        "pci": ["0000:02:00.0", 1],
        "peers": [1, 0],
        "stream": [1, -2],
        "stream_context": True,
        "too_cooperative": "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        "reached_by_buffer": 10 * mib,
        "preferred": -1,
        "bad_advice": "CUDA_ERROR_INVALID_VALUE",
        "moved_to_second": 10 * mib,
        "peer_twice": "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
        "capturing": True,
        "captured_nodes": 1,
        "relaxed_alloc": "CUDA_SUCCESS",
        "end_again": "CUDA_ERROR_ILLEGAL_STATE",
        "cycle": "CUDA_ERROR_INVALID_VALUE",
        "edges": 1,
        "type": "CU_GRAPH_NODE_TYPE_HOST",
        "host_node_called": 1,
        "nodes_left": 1,
        "pool_used": 5 * mib,
        "pool_high": 5 * mib,
        "pool_gone": 0,
        "array_copy": "456789ab",
        "array_end": "CUDA_ERROR_INVALID_VALUE",
        "array_width": 16,
        "unified_copy": "ABABABAB",
        "device_pointer": True,
        "waits": "CUDA_ERROR_NOT_READY",
        "written": True,
        "functions": 5,
        "no_file": "CUDA_ERROR_FILE_NOT_FOUND",
        "kernel_name": "sim_us_250",
        "resident_full": card.total_bytes,
    }
