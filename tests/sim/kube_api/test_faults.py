"""Every fault at every point of list and watch: the client sees just that, and nothing once it is cleared.

A fifth of them is a sample of all points and nearly all faults; `make verify` runs the rest.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from nvshare.sim.kube_api import Fault, Handle, KubeApi, Point, combinations, pod
from tests.sim.kube_api.asking import PATIENCE_SEC, Asker, asker_of

pytestmark = pytest.mark.slow

PODS = "/api/v1/pods"
BIG = 1 << 20
HANG_SEC = 0.3  # of a client's patience: what hangs, hangs longer
CERTIFICATES = {
    Fault.EXPIRED_CERTIFICATE: "certificate has expired",
    Fault.WRONG_HOST: "IP address mismatch",
    Fault.UNKNOWN_AUTHORITY: "unable to get local issuer certificate",
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handle]:
    with KubeApi(tmp_path_factory.mktemp("api"), nodes=("n1",), bookmark_sec=0.05) as handle:
        for number in range(3):
            handle.create("pods", pod(f"p{number}", node="n1"))
        yield handle


def texts(asker: Asker, operation: str, token: str) -> list[bytes]:
    """The body of a page after the first, or the lines of a watch of three pods up to a bookmark."""
    query = {"watch": "true", "allowWatchBookmarks": "true"}
    if operation == "list":
        query = {"limit": "1", "continue": token}
    with asker.open("GET", PODS, None, **query) as response:
        if response.status != 200 or operation == "list":
            return [response.read()]
        got = b""
        while b'"BOOKMARK"' not in got and (piece := response.read1()):
            got += piece  # by lines, HTTPResponse would take a broken stream for an ended one
        return got.splitlines()


def symptom(asker: Asker, operation: str, token: str) -> str:
    try:
        got = texts(asker, operation, token)
    except ConnectionRefusedError:
        return "refused"
    except ssl.SSLCertVerificationError as error:
        return f"certificate: {error.verify_message}"
    except TimeoutError:
        return "silence"
    except (OSError, http.client.IncompleteRead, http.client.RemoteDisconnected):
        return "broken"
    except http.client.HTTPException:
        return "no HTTP"
    return _judged(got, operation)


def _judged(got: list[bytes], operation: str) -> str:
    if any(len(text) > BIG // 2 for text in got):
        return "enormous"
    try:
        shown = [json.loads(text) for text in got]
    except ValueError:
        return "no JSON"
    statuses = [item.get("object", item) for item in shown]
    codes = [item["code"] for item in statuses if isinstance(item, dict) and item.get("kind") == "Status"]
    if codes:
        return f"status {codes[0]}"
    if any(item.get("kind") is False for item in shown):
        return "wrong type"
    whole = ["ADDED"] * 3 + ["BOOKMARK"] if operation == "watch" else ["PodList"]
    return "well" if [item.get("type", item.get("kind")) for item in shown] == whole else f"unexpected: {got}"


def expected(operation: str, point: Point, fault: Fault) -> str:
    if fault in CERTIFICATES:
        return "certificate"
    inside = point is Point.MID_OBJECT  # half an object precedes whatever comes
    if fault in (
        Fault.UNAUTHORIZED,
        Fault.FORBIDDEN,
        Fault.GONE,
        Fault.TOO_MANY_REQUESTS,
        Fault.INTERNAL_ERROR,
    ):
        return "no JSON" if inside else f"status {fault}"
    if fault is Fault.GARBAGE:
        if point in (Point.ACCEPT, Point.HANDSHAKE):
            return "broken"
        return "no HTTP" if point in (Point.BEFORE_HEADERS, Point.BETWEEN_PAGES) else "no JSON"
    if fault is Fault.WRONG_TYPE:
        return "no JSON" if inside else "wrong type"
    del operation
    return {
        Fault.REFUSE: "refused",
        Fault.HANG: "silence",
        Fault.DELAY: "well",
        Fault.CUT: "broken",
        Fault.HALF_CLOSE: "broken",
        Fault.TRUNCATED_JSON: "no JSON",
        Fault.ENORMOUS: "enormous",
    }[fault]


ALL = [
    pytest.param(*row, marks=() if number % 5 == 0 else pytest.mark.verify)
    for number, row in enumerate(combinations())
]


@pytest.mark.parametrize(("operation", "point", "fault"), ALL)
def test_a_client_sees_the_fault_and_then_none(
    api: Handle, operation: str, point: Point, fault: Fault
) -> None:
    asker = asker_of(api)
    token = asker.ask("GET", PODS, limit=1).body["metadata"]["continue"]
    impatient = asker_of(api, patience_sec=HANG_SEC)
    api.fault(point, fault, seconds=0.01, size_bytes=BIG)
    try:
        seen = symptom(impatient if fault is Fault.HANG else asker, operation, token)
    finally:
        api.clear_faults()
    assert seen.startswith(expected(operation, point, fault)), seen
    if fault in CERTIFICATES:
        assert CERTIFICATES[fault] in seen
    assert symptom(asker, operation, token) == "well"


def test_a_fault_strikes_an_idle_watch_at_once(api: Handle) -> None:
    asker = asker_of(api)
    version = asker.ask("GET", PODS).body["metadata"]["resourceVersion"]
    with asker.watching(PODS, resourceVersion=version) as events:
        api.fault(Point.BETWEEN_EVENTS, Fault.GONE, operation="watch", times=1)
        assert next(events)["object"]["code"] == 410
        with pytest.raises(StopIteration):
            next(events)
    api.clear_faults()


def test_an_answer_that_hangs_goes_on_when_it_is_cleared(api: Handle) -> None:
    asker = asker_of(api)
    before = struck(api, Point.MID_OBJECT)
    api.fault(Point.MID_OBJECT, Fault.HANG, operation="list", times=1)
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(asker.ask, "GET", PODS)
        wait_struck(api, Point.MID_OBJECT, before)
        assert not asked.done()
        api.clear_faults()
        assert asked.result().status == 200


def test_a_stream_that_hangs_stays_silent_when_it_is_cleared(api: Handle) -> None:
    asker, impatient = asker_of(api), asker_of(api, patience_sec=HANG_SEC)
    version = asker.ask("GET", PODS).body["metadata"]["resourceVersion"]
    with impatient.watching(PODS, resourceVersion=version) as events:
        before = struck(api, Point.BETWEEN_EVENTS)
        api.fault(Point.BETWEEN_EVENTS, Fault.HANG, operation="watch", times=1)
        api.annotate("p0", gpu_core_limit="30")
        wait_struck(api, Point.BETWEEN_EVENTS, before)
        api.clear_faults()
        api.annotate("p0", gpu_core_limit="40")
        with pytest.raises(TimeoutError):
            next(events)
    with asker.watching(PODS, resourceVersion=version) as events:
        missed = [next(events)["object"]["metadata"]["annotations"] for _ in range(2)]
    assert missed == [{"nvshare.com/gpu-core-limit": "30"}, {"nvshare.com/gpu-core-limit": "40"}]


def struck(api: Handle, point: Point) -> int:
    return int(api.stats()["faults"].get(f"{point}/{Fault.HANG}", 0))


def wait_struck(api: Handle, point: Point, before: int) -> None:
    deadline = time.monotonic() + PATIENCE_SEC
    while struck(api, point) == before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_fault_may_be_of_one_resource_and_strike_so_many_times(api: Handle) -> None:
    asker = asker_of(api)
    api.fault(Point.BEFORE_HEADERS, Fault.TOO_MANY_REQUESTS, resource="pods", times=2, retry_after_sec=7)
    assert asker.ask("GET", "/api/v1/namespaces").status == 200
    first = asker.ask("GET", PODS)
    assert (first.status, first.headers["retry-after"]) == (429, "7")
    assert asker.ask("GET", PODS).status == 429
    assert asker.ask("GET", PODS).status == 200
    api.clear_faults()
