"""What is asked of a pod beside the pod itself, and reviews, which nothing keeps."""

from __future__ import annotations

from typing import Final

from nvshare.sim.kube_api.access import Access
from nvshare.sim.kube_api.answers import Answer, json_answer
from nvshare.sim.kube_api.errors import ApiError, Json, bad_request, success
from nvshare.sim.kube_api.objects import TRUSTED, Objects, Writer
from nvshare.sim.kube_api.requests import Request, Target
from nvshare.sim.kube_api.resources import BUDGETS, BY_PATH, PODS, Resource
from nvshare.sim.kube_api.selectors import label_matcher
from nvshare.sim.kube_api.store import Key, Store

LOGS_MAX: Final = 1000
LOG_BYTES_MAX: Final = 1 << 20


class PodSubresources:
    def __init__(self, store: Store, objects: Objects) -> None:
        self._store = store
        self._objects = objects
        self._logs: dict[tuple[Key, str], bytes] = {}

    def evict(self, request: Request, target: Target) -> Answer:
        options: Json = request.json() if request.body else {}
        if options.get("kind", "Eviction") != "Eviction":
            raise bad_request(f"the body is a {options.get('kind')}; a policy/v1 Eviction is expected")
        pod = self._objects.read(PODS, target.key).fields
        self._check_budgets(pod)
        asked = options.get("deleteOptions") or {}
        writer = Writer(dry_run=bool(asked.get("dryRun") or request.query.get("dryRun")))
        self._objects.delete(PODS, target.key, writer, grace_sec=asked.get("gracePeriodSeconds"))
        return json_answer(success(201), 201)

    def _check_budgets(self, pod: Json) -> None:
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed", "Pending"):
            return
        for key, stored in self._store.all(BUDGETS):
            wanted = (stored.fields.get("spec", {}).get("selector") or {}).get("matchLabels") or {}
            matches = label_matcher(",".join(f"{name}={value}" for name, value in wanted.items()))
            if key[0] != pod["metadata"]["namespace"] or (matches is not None and not matches(pod)):
                continue
            status = stored.fields.get("status") or {}
            if int(status.get("disruptionsAllowed", 0)) > 0:
                continue
            needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
            message = f"The disruption budget {key[1]} needs {needs} healthy pods and has {has} currently"
            raise ApiError(
                429,
                "Cannot evict pod as it would violate the pod's disruption budget.",
                details={"causes": [{"reason": "DisruptionBudget", "message": message}]},
            )

    def bind(self, request: Request, target: Target) -> Answer:
        pod = self._objects.read(PODS, target.key).fields
        node = (request.json().get("target") or {}).get("name")
        if not node:
            raise bad_request("target.name: Required value")
        if pod["spec"].get("nodeName"):
            details = {"name": target.name, "kind": "pods/binding"}
            message = f"pod {target.name} is already assigned to node {pod['spec']['nodeName']!r}"
            raise ApiError(409, message, details=details)
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}, "metadata": dict(pod["metadata"])}
        self._objects.replace(PODS, target.key, bound, TRUSTED)
        return json_answer(success(201), 201)

    def set_log(self, key: Key, container: str, text: bytes) -> None:
        if len(self._logs) >= LOGS_MAX:
            self._logs.pop(next(iter(self._logs)))
        self._logs[key, container] = text[-LOG_BYTES_MAX:]

    def log(self, request: Request, target: Target) -> Answer:
        pod = self._objects.read(PODS, target.key).fields
        names = [container["name"] for container in pod["spec"]["containers"]]
        container = request.query.get("container", "")
        if not container and len(names) > 1:
            raise bad_request(
                f"a container name must be specified for pod {target.name}, "
                f"choose one of: [{' '.join(names)}]"
            )
        container = container or names[0]
        if container not in names:
            raise bad_request(f"container {container} is not valid for pod {target.name}")
        text = self._logs.get((target.key, container))
        if text is None:
            node = pod["spec"].get("nodeName")
            if not node:
                raise bad_request(f"pod {target.name} does not have a host assigned")
            raise ApiError(
                500,
                f'Get "https://{node}:10250/containerLogs/{"/".join(target.key)}/{container}": no kubelet',
            )
        tail = request.number("tailLines") if "tailLines" in request.query else None
        if tail is not None:
            text = b"".join(text.splitlines(keepends=True)[-tail:] if tail else [])
        return Answer(200, text, "text/plain")


class Reviews:
    """What somebody may do, and who a token belongs to."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def answer(self, request: Request, target: Target) -> Answer:
        given = request.json()
        spec = given.get("spec") or {}
        if target.resource.kind == "TokenReview":
            status = self._token(str(spec.get("token", "")))
        else:
            own = target.resource.kind == "SelfSubjectAccessReview"
            status = self._access_of(request.user if own else str(spec.get("user", "")), spec)
        shown = {"kind": target.resource.kind, "apiVersion": target.resource.api_version}
        metadata = given.get("metadata") or {}
        return json_answer(
            {**shown, "metadata": {"creationTimestamp": None, **metadata}, "spec": spec, "status": status},
            201,
        )

    def _token(self, token: str) -> Json:
        try:
            name = self._access.user_of(f"Bearer {token}")
        except ApiError:
            return {"user": {}, "error": "token not recognised"}
        return {"authenticated": True, "user": {"username": name}}

    def _access_of(self, user: str, spec: Json) -> Json:
        asked = spec.get("resourceAttributes") or {}
        row = BY_PATH.get((asked.get("group", ""), asked.get("version") or "v1", asked.get("resource", "")))
        target = Target(
            row
            or Resource(plural=str(asked.get("resource", "")), kind="", group=str(asked.get("group", ""))),
            str(asked.get("namespace", "")),
            str(asked.get("name", "")),
            str(asked.get("subresource", "")),
            str(asked.get("verb", "")),
        )
        return {"allowed": self._access.may(user, target)}
