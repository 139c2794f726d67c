"""What a request comes to: a whole answer, or a watch."""

from __future__ import annotations

from dataclasses import dataclass, field

from nvshare.sim.kube_api.errors import ApiError, Json
from nvshare.sim.kube_api.store import encode
from nvshare.sim.kube_api.watches import Watch


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    chunked: bool = False


@dataclass(frozen=True, slots=True)
class WatchAnswer:
    watch: Watch
    seconds: float
    first: list[bytes] = field(default_factory=list)  # an error that is the whole stream
    status: int = 200


def json_answer(content: Json, status: int = 200) -> Answer:
    return Answer(status, encode(content) + b"\n")


def refusal(error: ApiError) -> Answer:
    headers: tuple[tuple[str, str], ...] = ()
    if error.retry_after_sec is not None:
        headers += (("Retry-After", str(error.retry_after_sec)),)
    if error.code == 403:
        headers += (("X-Content-Type-Options", "nosniff"),)
    return Answer(error.code, encode(error.status()) + b"\n", headers=headers)
