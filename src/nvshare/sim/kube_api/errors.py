"""Refusals, as the ``Status`` objects in which an API server words them."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
MESSAGES: Final = {
    401: "Unauthorized",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    410: "The resourceVersion for the provided list is too old.",
    429: "too many requests, please try again later",
    500: "Internal error occurred: injected",
}


class ApiError(Exception):
    """An answer that is a refusal."""

    def __init__(
        self,
        code: int,
        message: str = "",
        *,
        reason: str = "",
        details: Json | None = None,
        metadata: Json | None = None,
        retry_after_sec: int | None = None,
    ) -> None:
        self.code = code
        self.message = message or MESSAGES.get(code, REASONS.get(code, ""))
        self.reason = reason or REASONS.get(code, "")
        self.details = details
        self.metadata = metadata or {}
        self.retry_after_sec = retry_after_sec
        super().__init__(f"{code} {self.reason}: {self.message}")

    def status(self) -> Json:
        found: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        details = dict(self.details or {})
        if self.retry_after_sec is not None:
            details.setdefault("retryAfterSeconds", self.retry_after_sec)
        if details:
            found["details"] = details
        return {**found, "code": self.code}


def success(code: int = 200, details: Json | None = None) -> Json:
    found: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        found["details"] = details
    return found if code == 200 else {**found, "code": code}


def bad_request(message: str) -> ApiError:
    return ApiError(400, message)


def not_found(plural: str, name: str, group: str = "") -> ApiError:
    details = {"name": name, "kind": plural} | ({"group": group} if group else {})
    full = f"{plural}.{group}" if group else plural
    return ApiError(404, f'{full} "{name}" not found', details=details)


def conflict(plural: str, name: str, group: str = "") -> ApiError:
    details = {"name": name, "kind": plural} | ({"group": group} if group else {})
    full = f"{plural}.{group}" if group else plural
    return ApiError(
        409,
        f'Operation cannot be fulfilled on {full} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again",
        details=details,
    )


def already_exists(plural: str, name: str, group: str = "") -> ApiError:
    details = {"name": name, "kind": plural} | ({"group": group} if group else {})
    full = f"{plural}.{group}" if group else plural
    return ApiError(409, f'{full} "{name}" already exists', reason="AlreadyExists", details=details)


def invalid(kind: str, name: str, field: str, problem: str, group: str = "") -> ApiError:
    details = {"name": name, "kind": kind} | ({"group": group} if group else {})
    details["causes"] = [{"reason": "FieldValueInvalid", "message": problem, "field": field}]  # type: ignore[assignment]
    full = f"{kind}.{group}" if group else kind
    return ApiError(422, f'{full} "{name}" is invalid: {field}: {problem}', details=details)


def expired_version(asked: int, oldest: int) -> ApiError:
    return ApiError(410, f"too old resource version: {asked} ({oldest})")
