"""Warning events on pods, for people who look there: ``kubectl describe pod``.

1. They are a courtesy: at most one in EVERY_SEC is sent, a few wait, and others are dropped. Of a pod only
   the latest waits, and pods take turns, so that none can take the places of others.
2. Where events may not be made, none is sent to that namespace for FORBIDDEN_SEC; then the right may have
   been given. In a namespace that is being deleted nothing can be made, which says nothing about the right.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from nvshare.pods.kubernetes.api_client import ApiClient, ApiError
from nvshare.pods.kubernetes.credentials import Credentials
from nvshare.pods.kubernetes.list_watch import Failure, Timing

EVERY_SEC: Final = 1.0
WAITING_MAX: Final = 256
FORBIDDEN_SEC: Final = 600.0
NAMESPACES_MAX: Final = 1024
_TERMINATING: Final = "because it is being terminated"
_MESSAGE_MAX: Final = 1000
_COMPONENT: Final = "nvshare-scheduler"


class Warned(NamedTuple):
    namespace: str
    name: str
    uid: str  # in the API
    reason: str  # one word, in camel case
    message: str


class WarningEvents:
    def __init__(self, credentials: Credentials, node_name: str, timing: Timing) -> None:
        self._client = ApiClient(credentials, timing)
        self._node_name = node_name
        self._waiting: dict[str, Warned] = {}  # by pod, whose turn it is first
        self._some = threading.Condition()
        self._results = dict.fromkeys(("sent", "dropped", "failed"), 0)
        self._forbidden_until: dict[str, float] = {}  # by namespace
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubernetes-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def put(self, warned: Warned) -> None:
        """Returns at once."""
        with self._some:
            if warned.uid in self._waiting or len(self._waiting) >= WAITING_MAX:
                self._results["dropped"] += 1
            if warned.uid in self._waiting or len(self._waiting) < WAITING_MAX:
                self._waiting[warned.uid] = warned
            self._some.notify()

    def results(self) -> dict[str, int]:
        return dict(self._results)

    # ---- in the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.is_set():
            warned = self._next()
            if time.monotonic() < self._forbidden_until.get(warned.namespace, 0.0):
                self._results["dropped"] += 1
                continue
            try:
                self._send(warned)
                self._results["sent"] += 1
            except ApiError as error:
                self._results["failed"] += 1
                self._note_refusal(warned.namespace, error.failure)
            except Exception:  # a courtesy must not end the thread
                self._results["failed"] += 1
            self._client.close()  # the next one may be hours away
            self._closed.wait(EVERY_SEC)

    def _note_refusal(self, namespace: str, failure: Failure) -> None:
        """Rule 2."""
        if failure.status not in (401, 403) or _TERMINATING in failure.why:
            return
        if len(self._forbidden_until) >= NAMESPACES_MAX:
            self._forbidden_until.clear()
        self._forbidden_until[namespace] = time.monotonic() + FORBIDDEN_SEC

    def _next(self) -> Warned:
        with self._some:
            self._some.wait_for(lambda: self._waiting)
            return self._waiting.pop(next(iter(self._waiting)))

    def _send(self, warned: Warned) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{warned.name[:200]}.", "namespace": warned.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": warned.namespace,
                "name": warned.name,
                "uid": warned.uid,
            },
            "type": "Warning",
            "reason": warned.reason,
            "message": warned.message[:_MESSAGE_MAX],
            "source": {"component": _COMPONENT, "host": self._node_name},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        path = f"/api/v1/namespaces/{quote(warned.namespace, safe='')}/events"
        self._client.post(path, msgspec.json.encode(body))
