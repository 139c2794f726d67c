"""From a request to its answer: who asks, what for, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from nvshare.sim.kube_api.access import Access
from nvshare.sim.kube_api.answers import Answer, WatchAnswer, json_answer, refusal
from nvshare.sim.kube_api.discovery import discovery_page
from nvshare.sim.kube_api.errors import ApiError, bad_request, invalid
from nvshare.sim.kube_api.lists import FUTURE_WAIT_SEC, page_of, version_too_large
from nvshare.sim.kube_api.objects import Objects
from nvshare.sim.kube_api.openapi import openapi_page
from nvshare.sim.kube_api.requests import Request, Target, find_target
from nvshare.sim.kube_api.selectors import Matches, matcher
from nvshare.sim.kube_api.store import Store
from nvshare.sim.kube_api.subresources import PodSubresources, Reviews
from nvshare.sim.kube_api.views import object_text, page_text, view_of
from nvshare.sim.kube_api.watches import Watch, error_line
from nvshare.sim.kube_api.writes import Writes

WATCH_SEC: Final = 1800.0
"""How long a watch lasts that names no time; an API server takes 30 to 60 minutes."""
WATCHES_MAX: Final = 1000
_HEALTH: Final = ("/healthz", "/livez", "/readyz")
Act = Callable[[Request, Target], Answer]


class Service:
    def __init__(self, store: Store, access: Access, *, streaming_lists: bool = False) -> None:
        self.store = store
        self.access = access
        self.objects = Objects(store)
        self.pods = PodSubresources(store, self.objects)
        self._streaming_lists = streaming_lists
        writes, reviews = Writes(store, self.objects), Reviews(access)
        self._acts: dict[tuple[str, str], Act] = {
            ("get", ""): self._get,
            ("get", "status"): self._get,
            ("create", ""): writes.create,
            ("update", ""): writes.update,
            ("update", "status"): writes.update,
            ("patch", ""): writes.patch,
            ("patch", "status"): writes.patch,
            ("delete", ""): writes.delete,
            ("deletecollection", ""): writes.delete_collection,
            ("get", "log"): self.pods.log,
            ("create", "eviction"): self.pods.evict,
            ("create", "binding"): self.pods.bind,
        }
        self._review = reviews.answer

    async def answer(self, request: Request) -> Answer | WatchAnswer:
        try:
            request.user = self.access.user_of(request.headers.get("authorization", ""))
            request.target = target = find_target(request)
            if target is None:
                self.access.check_path(request.user, request.path, request.method)
                return self._page(request)
            if not target.resource.stored:
                return self._review(request, target)
            self.access.check(request.user, target)
            if target.verb == "list":
                return await self._list(request, target)
            if target.verb == "watch":
                return self._watch(request, target)
            act = self._acts.get((target.verb, target.subresource))
            if act is None or (target.verb == "create" and bool(target.name) is not bool(target.subresource)):
                raise ApiError(405)
            return act(request, target)
        except ApiError as error:
            return refusal(error)
        except (TypeError, AttributeError, LookupError, ValueError, RecursionError) as error:
            return refusal(ApiError(500, f"Internal error occurred: {error!r}"))

    @staticmethod
    def _page(request: Request) -> Answer:
        if request.path in _HEALTH:
            return Answer(200, b"ok", "text/plain; charset=utf-8")
        found = openapi_page(request.path, request.headers.get("accept", ""))
        if found is not None:
            return found
        page = discovery_page(request.path)
        if page is None:
            raise ApiError(404)
        return json_answer(page)

    # Reading

    @staticmethod
    def _matcher(request: Request, target: Target) -> Matches:
        query = request.query
        return matcher(
            target.resource, query.get("fieldSelector", ""), query.get("labelSelector", ""), target.namespace
        )

    def _get(self, request: Request, target: Target) -> Answer:
        stored = self.objects.read(target.resource, target.key)
        view = view_of(request.headers.get("accept", ""))
        return Answer(200, object_text(target.resource, stored, view) + b"\n")

    async def _list(self, request: Request, target: Target) -> Answer:
        matches = self._matcher(request, target)
        version, match = _version_of(request), request.query.get("resourceVersionMatch", "")
        limit = request.number("limit")
        if match and not version:
            raise bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if int(version or 0) > self.store.version:
            await asyncio.sleep(FUTURE_WAIT_SEC)
            if int(version) > self.store.version:
                raise version_too_large(int(version), self.store.version)
        token = request.query.get("continue", "")
        page = page_of(
            self.store, target.resource, matches, limit=limit, token=token, version=version, match=match
        )
        if "fieldSelector" in request.query or "labelSelector" in request.query:
            page.metadata.pop("remainingItemCount", None)
        view = view_of(request.headers.get("accept", ""))
        return Answer(200, page_text(target.resource, page, view), chunked=True)

    def _watch(self, request: Request, target: Target) -> WatchAnswer:
        matches, version = self._matcher(request, target), _version_of(request)
        if len(self.store.observers) >= WATCHES_MAX:
            raise ApiError(429, retry_after_sec=1)
        initial = request.flag("sendInitialEvents")
        if initial and request.query.get("resourceVersionMatch") != "NotOlderThan":
            field = "resourceVersionMatch"
            raise invalid("ListOptions", "", field, "Forbidden: NotOlderThan is needed", "meta.k8s.io")
        watch = Watch(
            self.store,
            target.resource,
            matches,
            bookmarks=request.flag("allowWatchBookmarks"),
            view=view_of(request.headers.get("accept", "")),
        )
        answer = WatchAnswer(watch, float(request.number("timeoutSeconds")) or WATCH_SEC)
        try:
            if initial and not self._streaming_lists:
                raise ApiError(500, "Internal error occurred: the storage does not support streaming lists")
            watch.start(None if initial or not int(version or 0) else int(version), initial_end=initial)
        except ApiError as error:
            answer.first.append(error_line(error))
        return answer


def _version_of(request: Request) -> str:
    version = request.query.get("resourceVersion", "")
    if version and not version.isdigit():
        raise ApiError(
            500, f'resourceVersion: Invalid value: "{version}": invalid syntax', reason="InternalError"
        )
    return version
