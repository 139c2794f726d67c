"""What a request asks for: its path taken apart, its parameters read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from nvshare.sim.kube_api.errors import ApiError, Json, bad_request
from nvshare.sim.kube_api.protobuf import CONTENT_TYPE, decode_protobuf
from nvshare.sim.kube_api.resources import BY_PATH, Resource
from nvshare.sim.kube_api.store import Key, decode

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_TRUE: Final = ("true", "1", "True")


@dataclass(slots=True, kw_only=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""
    user: str = ""
    target: Target | None = None
    started_ns: int = 0
    status: int = field(default=0)

    def flag(self, name: str) -> bool:
        return self.query.get(name, "") in _TRUE

    def number(self, name: str) -> int:
        text = self.query.get(name, "") or "0"
        try:
            return int(text)
        except ValueError:
            raise bad_request(f'{name}: Invalid value: "{text}": must be a number') from None

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip()

    def json(self) -> Json:
        """The body, which is an object."""
        if self.content_type == CONTENT_TYPE:
            return decode_protobuf(self.body)
        try:
            found = decode(self.body)
        except ValueError as error:
            raise bad_request(f"invalid JSON in the body: {error}") from None
        if not isinstance(found, dict):
            raise bad_request(f"the body is a {type(found).__name__}; an object is accepted")
        return found

    def summary(self) -> Json:
        """What is remembered of it; its body is not."""
        return {
            "method": self.method,
            "path": self.path,
            "query": self.query,
            "user": self.user,
            "operation": self.operation,
            "resource": self.resource_name,
            "status": self.status,
            "agent": self.headers.get("user-agent", ""),
            "content_type": self.content_type,
            "accept": self.headers.get("accept", ""),
        }

    @property
    def operation(self) -> str:
        """list, watch, get, create, ...; empty if it is about no object."""
        return "" if self.target is None else self.target.verb

    @property
    def resource_name(self) -> str:
        return "" if self.target is None else self.target.resource.plural


@dataclass(frozen=True, slots=True)
class Target:
    resource: Resource
    namespace: str
    name: str
    subresource: str
    verb: str

    @property
    def key(self) -> Key:
        return self.namespace, self.name


def parse_head(method: str, target: str, headers: dict[str, str]) -> Request:
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Request(method=method, path=parts.path.rstrip("/") or "/", query=query, headers=headers)


def find_target(request: Request) -> Target | None:
    """None if the path is none of an object or collection; ApiError if the resource is unknown."""
    parts = [unquote(part) for part in request.path.split("/")[1:]]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource = BY_PATH.get((group, version, rest[0]))
    name, subresource = (*rest[1:3], "", "")[:2]
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
        raise ApiError(404)
    if subresource and subresource not in resource.subresources:
        raise ApiError(404)
    if name and resource.namespaced and not namespace:
        raise ApiError(404)
    return Target(resource, namespace, name, subresource, _verb(request, name))


def _verb(request: Request, name: str) -> str:
    if request.method in ("GET", "HEAD"):
        if name:
            return "get"
        return "watch" if request.flag("watch") else "list"
    verb = _VERBS.get(request.method)
    if verb is None:
        raise ApiError(405)
    return "deletecollection" if verb == "delete" and not name else verb
