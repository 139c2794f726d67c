"""What is known of pods and namespaces goes into the checkpoint, and costs the event loop next to nothing."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from nvshare.node.checkpoint import VERSION, Saved, boot_id, decode, encode
from nvshare.node.kubernetes_pods import KubernetesPods
from nvshare.pods.kubernetes.objects import Annotated
from nvshare.pods.kubernetes.pod_directory import PodDirectory
from nvshare.pods.kubernetes.reflection import Listed


def namespaces(count: int) -> PodDirectory:
    directory = PodDirectory()
    said = {"nvshare.com/gpu-core-limit": "50"}
    found = [
        msgspec.convert({"metadata": {"name": f"n{number}", "annotations": said}}, Annotated)
        for number in range(count)
    ]
    list(directory.take_namespaces(Listed(found, True, True)))
    return directory


def lines_of(work: Callable[[], object]) -> int:
    """How many lines it executes."""
    executed = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal executed
        executed += event == "line"
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(former)
    return executed


@pytest.mark.parametrize("count", [10, 5000])
def test_rows_are_made_by_the_thread_that_writes_them(count: int) -> None:
    pods = cast("KubernetesPods", SimpleNamespace(directory=namespaces(count)))
    assert lines_of(lambda: KubernetesPods.rows(pods)) < 10, "however many there are"
    rows = KubernetesPods.rows(pods)
    found = rows().namespaces
    assert len(found) == count
    assert found[0] == ("n0", (None, 50, None), (None, None, None))


def test_a_checkpoint_from_before_bad_values_were_kept_is_understood() -> None:
    pod = ("0d4a5b6c-1111-2222-3333-444455556666", "ml", "train", (None, 30, None), False, "")
    told = (pod[0], "nvshare.com/gpu-core-limit", ("fast",))
    saved = Saved(
        VERSION,
        boot_id(),
        0,
        True,
        [],
        [],
        [],
        [],
        kubernetes_pods=[pod],
        bad_values=[told, ("x" * 600, "", ())],
    )
    raw = encode(saved)
    found, complaints = decode(raw, time.monotonic_ns())
    assert found.bad_values == [told]
    assert complaints == ["bad_values: a name or value is longer than 512 characters"]
    content = msgspec.json.decode(raw.partition(b"\n")[2])
    del content["bad_values"]
    body = msgspec.json.encode(content)
    former = b"nvshare-checkpoint %d %s\n%s" % (VERSION, hashlib.sha256(body).hexdigest().encode(), body)
    found, complaints = decode(former, time.monotonic_ns())
    assert (found.kubernetes_pods, found.bad_values, complaints) == ([pod], [], [])
