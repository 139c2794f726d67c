"""Who asks, and whether they may: bearer tokens, and rights per user."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from nvshare.sim.kube_api.errors import ApiError
from nvshare.sim.kube_api.requests import Target

ADMIN: Final = "kubernetes-admin"
ANONYMOUS: Final = "system:anonymous"
USERS_MAX: Final = 256
_OPEN_PATHS: Final = ("/healthz", "/livez", "/readyz", "/version")


@dataclass(frozen=True, slots=True)
class Right:
    """``*`` stands for all. A subresource is written ``pods/status``."""

    verbs: frozenset[str]
    resources: frozenset[str]
    namespace: str = ""  # empty: in all of them

    def allows(self, target: Target) -> bool:
        sub = f"/{target.subresource}" if target.subresource else ""
        return (
            bool(self.verbs & {target.verb, "*"})
            and bool(self.resources & {target.resource.plural + sub, "*"})
            and self.namespace in ("", target.namespace)
        )


class Access:
    def __init__(self) -> None:
        self._user_of: dict[str, str] = {}
        self._rights: dict[str, tuple[Right, ...]] = {}

    def add_user(self, name: str, rights: tuple[Right, ...], token: str = "") -> str:
        """Their token. A user who is known gets another token and these rights."""
        if name not in self._rights and len(self._rights) >= USERS_MAX:
            raise ValueError(f"{USERS_MAX} users are known already")
        self._rights[name] = rights
        return self.new_token(name, token)

    def new_token(self, name: str, token: str = "") -> str:
        """Their former tokens are no longer accepted."""
        if name not in self._rights:
            raise ValueError(f"no user {name!r}; there are: {', '.join(self._rights)}")
        self._user_of = {token: user for token, user in self._user_of.items() if user != name}
        token = token or f"{name}.{secrets.token_urlsafe(24)}"
        self._user_of[token] = name
        return token

    def revoke(self, name: str) -> None:
        self._user_of = {token: user for token, user in self._user_of.items() if user != name}

    def user_of(self, authorization: str) -> str:
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        user = self._user_of.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise ApiError(401)
        return user

    def may(self, user: str, target: Target) -> bool:
        return any(right.allows(target) for right in self._rights.get(user, ()))

    def check(self, user: str, target: Target) -> None:
        if not self.may(user, target):
            raise _forbidden(user, target)

    def check_path(self, user: str, path: str, method: str) -> None:
        """What is no object is for anybody who is known."""
        if user == ANONYMOUS and path not in _OPEN_PATHS:
            verb = method.lower()
            raise ApiError(403, f'forbidden: User "{user}" cannot {verb} path "{path}"', details={})


def _forbidden(user: str, target: Target) -> ApiError:
    row = target.resource
    what = row.plural + (f"/{target.subresource}" if target.subresource else "")
    full = f"{row.plural}.{row.group}" if row.group else row.plural
    subject = f'{full} "{target.name}"' if target.name else full
    place = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    details = {"kind": row.plural} | ({"name": target.name} if target.name else {})
    if row.group:
        details["group"] = row.group
    return ApiError(
        403,
        f'{subject} is forbidden: User "{user}" cannot {target.verb} resource "{what}" '
        f'in API group "{row.group}" {place}',
        details=details,
    )
