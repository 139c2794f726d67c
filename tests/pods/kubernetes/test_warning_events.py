"""Warning events on pods: a courtesy that nobody can take from others, and that asks for little."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest

from nvshare.pods.kubernetes import warning_events
from nvshare.pods.kubernetes.api_client import ApiError
from nvshare.pods.kubernetes.credentials import Credentials, Endpoint
from nvshare.pods.kubernetes.list_watch import Failure, Timing
from nvshare.pods.kubernetes.warning_events import EVERY_SEC, WAITING_MAX, Warned, WarningEvents

PATIENCE_SEC = 60.0


class Server:
    """In the place of the client: what was posted, and when."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, str]] = []  # namespace and message
        self.at_sec: list[float] = []
        self.refusals: dict[str, Failure] = {}  # by namespace

    def post(self, path: str, body: bytes) -> bytes:
        event = msgspec.json.decode(body)
        namespace = path.split("/")[4]
        self.posted.append((namespace, event["message"]))
        self.at_sec.append(time.monotonic())
        if namespace in self.refusals:
            raise ApiError(self.refusals[namespace])
        return b"{}"

    def close(self) -> None:
        pass


def events_to(server: Server) -> WarningEvents:
    events = WarningEvents(Credentials(Endpoint("h", 443), lambda: b"", lambda: ""), "n1", Timing())
    events._client = server  # type: ignore[assignment]
    return events


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(warning_events, "EVERY_SEC", 0.001)
    return Server()


def warned(namespace: str, pod: str, message: str) -> Warned:
    return Warned(namespace, pod, f"{namespace}/{pod}", "Reason", message)


def wait(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SEC
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_of_each_pod_the_latest_is_sent_in_turn(server: Server) -> None:
    events = events_to(server)
    for number in range(3 * WAITING_MAX):
        events.put(warned("a", "noisy", str(number)))
    events.put(warned("b", "quiet", "only"))
    events.start()
    wait(lambda: events.results()["sent"] == 2)
    assert server.posted == [("a", str(3 * WAITING_MAX - 1)), ("b", "only")]
    assert events.results() == {"sent": 2, "dropped": 3 * WAITING_MAX - 1, "failed": 0}
    events.close()


def test_so_many_pods_wait_and_no_more(server: Server) -> None:
    events = events_to(server)
    for number in range(WAITING_MAX + 5):
        events.put(warned("a", f"pod-{number}", "x"))
    assert events.results()["dropped"] == 5


def test_a_namespace_without_the_right_is_spared_and_others_are_not(server: Server) -> None:
    server.refusals["closed"] = Failure(403, "403: events is forbidden")
    events = events_to(server)
    events.start()
    for number in range(3):
        events.put(warned("closed", "p", str(number)))
        events.put(warned("open", "p", str(number)))
        wait(lambda: len([one for one in server.posted if one[0] == "open"]) == number + 1)  # noqa: B023
    wait(lambda: sum(events.results().values()) == 6)
    assert [one for one in server.posted if one[0] == "closed"] == [("closed", "0")]
    assert events.results() == {"sent": 3, "failed": 1, "dropped": 2}
    events.close()


def test_a_namespace_that_is_being_deleted_says_nothing_about_the_right(server: Server) -> None:
    words = "403: unable to create new content in namespace a because it is being terminated"
    server.refusals["a"] = Failure(403, words)
    events = events_to(server)
    events.start()
    events.put(warned("a", "p", "first"))
    wait(lambda: events.results()["failed"] == 1)
    del server.refusals["a"]
    events.put(warned("a", "p", "second"))
    wait(lambda: events.results()["sent"] == 1)
    events.close()


def test_one_is_sent_each_second_at_most() -> None:
    server = Server()
    events = events_to(server)
    events.start()
    for number in range(3):
        events.put(warned("a", f"pod-{number}", "x"))
    wait(lambda: events.results()["sent"] == 3)
    assert all(after - before >= EVERY_SEC for before, after in pairwise(server.at_sec))
    events.close()
