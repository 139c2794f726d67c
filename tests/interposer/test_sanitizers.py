"""The library under AddressSanitizer (with undefined behaviour), ThreadSanitizer and valgrind."""

from __future__ import annotations

import pytest

from tests.interposer.harness import Node

RUNS = [
    ("simgpu", "plain"),
    ("simgpu", "hammer", "150"),
    ("simgpu", "threads"),
    ("interposer", "grab", "1", "8", "100"),
]
LIMIT_BYTES = 1 << 30


def command(node: Node, run: tuple[str, ...], sanitizer: str = "") -> list[str]:
    where, name, *arguments = run
    limit = [str(LIMIT_BYTES)] if name == "grab" else []
    return [node.program(name, where + sanitizer), *arguments, *limit]


def passes(node: Node, run: list[str], **extra: str) -> None:
    """With a quota and a limit, so that what is paced, marked, asked and counted is looked at."""
    node.set_quota("watched", core_percent=60, memory_bytes=LIMIT_BYTES * 4)
    child = node.start(*run, pod="watched", **extra)
    out, err = child.communicate("\n", timeout=240)
    assert child.returncode == 0, f"{run} ended with {child.returncode}: {out}{err}"
    assert out.endswith("PASS\n")
    assert "Sanitizer" not in err


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run[1])
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_sanitizer(node: Node, sanitizer: str, run: tuple[str, ...]) -> None:
    passes(
        node,
        command(node, run, f"-{sanitizer}"),
        LD_PRELOAD=node.program("libnvshare.so", f"interposer-{sanitizer}"),
        LD_LIBRARY_PATH=node.program("", f"simgpu-{sanitizer}"),
        ASAN_OPTIONS="verify_asan_link_order=0",
        TSAN_OPTIONS="exitcode=66",
    )


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run[1])
def test_valgrind(node: Node, run: tuple[str, ...]) -> None:
    checks = (
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
        "--show-leak-kinds=definite",
    )
    passes(node, ["valgrind", "-q", *checks, *command(node, run)])
