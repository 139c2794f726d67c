"""The users that root's node serves, and the limits that root sets them.

1. Only root's daemon serves other users. ``NVSHARE_USERS`` names the group whose members may run programs.
   The kernel knows the groups of a process: a process that leaves a group loses rights and never gains any.
2. Defaults and ceilings are lists of entries, ``WHO:core=30,memory=4Gi``. The first entry that fits a user
   and names a figure decides on it. An entry fits the members of a group both by the kernel and by the user
   database when the settings were read, so a process that leaves a group does not leave its ceiling.
3. Root has no such limits.
4. Names are looked up while the settings are read, at the start or in a thread, because a directory service
   may be slow. An unknown name gets a warning and fits no user.
"""

from __future__ import annotations

import grp
import pwd
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from nvshare.core.units import UnitError, parse_bytes, parse_percent

EVERYBODY: Final = "all"
NOBODY: Final = "none"
DEFAULT_GROUP: Final = "nvshare"
"""On a machine without this group root's node serves root alone, which is no mistake."""
NO_GROUP: Final = -1
PODS_MAX: Final = 512
ENTRIES_MAX: Final = 1000
_NAME: Final = re.compile(r"[^\s:;,=@*\x00-\x1f\x7f]{1,64}")
_WHOLE: Final = re.compile(r"[1-9][0-9]{0,8}")


class Terms(NamedTuple):
    """The limits that root sets a user; None: no limit."""

    memory_bytes: int | None = None
    core_percent: int | None = None
    pods: int | None = None


class Entry(NamedTuple):
    """As the settings spell it."""

    who: str
    terms: Terms


class ServedGroup(NamedTuple):
    """The value of ``NVSHARE_USERS``."""

    def describe(self) -> str:
        return "a group by name or number, all, or none"

    def read(self, text: str) -> str | None:
        return text if _NAME.fullmatch(text) else None


class TermsList(NamedTuple):
    """The value of ``NVSHARE_USER_DEFAULTS`` and ``NVSHARE_USER_CEILINGS``."""

    figures: tuple[str, ...]

    def describe(self) -> str:
        named = ", ".join(f"{figure}={_EXAMPLES[figure]}" for figure in self.figures)
        return f"entries WHO:{named.replace(', ', ',')} separated by ';', WHO a user, @group or *"

    def read(self, text: str) -> str | None:
        try:
            entries = parse_terms(text)
        except ValueError:
            return None
        named = {figure for entry in entries for figure in _FIGURES if getattr(entry.terms, _FIGURES[figure])}
        return text if named <= set(self.figures) else None


_EXAMPLES: Final = {"core": "30", "memory": "4Gi", "pods": "2"}
_FIGURES: Final = {"core": "core_percent", "memory": "memory_bytes", "pods": "pods"}


def parse_terms(text: str) -> list[Entry]:
    """Raises ValueError."""
    entries = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        who, colon, figures = (piece.strip() for piece in part.partition(":"))
        if not colon or not (who == "*" or _NAME.fullmatch(who.removeprefix("@"))):
            raise ValueError(f"{part!r} names nobody")
        entries.append(Entry(who, _parse_figures(figures)))
    if len(entries) > ENTRIES_MAX:
        raise ValueError(f"{len(entries)} entries are more than {ENTRIES_MAX}")
    return entries


def _parse_figures(text: str) -> Terms:
    found: dict[str, int] = {}
    for part in text.split(","):
        figure, _, amount = (piece.strip() for piece in part.partition("="))
        if figure not in _FIGURES or _FIGURES[figure] in found:
            raise ValueError(f"{part!r} is no figure")
        found[_FIGURES[figure]] = _amount(figure, amount)
    return Terms(**found)


def _amount(figure: str, text: str) -> int:
    try:
        if figure == "core":
            return parse_percent(text)
        if figure == "memory" and (memory_bytes := parse_bytes(text)) > 0:
            return memory_bytes
    except UnitError as error:
        raise ValueError(str(error)) from error
    if figure == "pods" and _WHOLE.fullmatch(text) and int(text) <= PODS_MAX:
        return int(text)
    raise ValueError(f"{figure}={text!r}")


class _Rule(NamedTuple):
    """An entry whose names have been looked up."""

    everybody: bool
    uids: frozenset[int]
    gid: int
    terms: Terms

    def fits(self, uid: int, groups: frozenset[int]) -> bool:
        return self.everybody or uid in self.uids or self.gid in groups


@dataclass(frozen=True, slots=True)
class Users:
    everybody: bool = False
    group: str = NOBODY
    gid: int = NO_GROUP
    defaults: tuple[_Rule, ...] = ()
    ceilings: tuple[_Rule, ...] = ()

    def may_run(self, groups: frozenset[int]) -> bool:
        return self.everybody or self.gid in groups

    def anybody(self) -> bool:
        """Whether anybody may."""
        return self.everybody or self.gid != NO_GROUP

    def default(self, uid: int, groups: frozenset[int]) -> Terms:
        return _first(self.defaults, uid, groups)

    def ceiling(self, uid: int, groups: frozenset[int]) -> Terms:
        return _first(self.ceilings, uid, groups)


def _first(rules: tuple[_Rule, ...], uid: int, groups: frozenset[int]) -> Terms:
    """Rule 2."""
    found = Terms()
    if uid == 0:
        return found
    for rule in rules:
        if rule.fits(uid, groups):
            pairs = zip(found, rule.terms, strict=True)
            found = Terms(*(new if old is None else old for old, new in pairs))
    return found


def look_up(served: str, defaults: str, ceilings: str) -> tuple[Users, list[str]]:
    """The settings with their names looked up, and the unknown names. The values have been checked before."""
    unknown: list[str] = []
    gid = NO_GROUP if served in (EVERYBODY, NOBODY) else _gid_of(served)
    if gid == NO_GROUP and served not in (EVERYBODY, NOBODY, DEFAULT_GROUP):
        unknown.append(f"no group is called {served!r}, so root's node serves root alone")
    users = Users(
        everybody=served == EVERYBODY,
        group=served,
        gid=gid,
        defaults=_rules(defaults, unknown),
        ceilings=_rules(ceilings, unknown),
    )
    return users, unknown


def _rules(text: str, unknown: list[str]) -> tuple[_Rule, ...]:
    return tuple(_rule(entry, unknown) for entry in parse_terms(text))


def _rule(entry: Entry, unknown: list[str]) -> _Rule:
    who, terms = entry
    if who == "*":
        return _Rule(True, frozenset(), NO_GROUP, terms)
    if who.startswith("@"):
        gid = _gid_of(who[1:])
        if gid == NO_GROUP:
            unknown.append(f"no group is called {who[1:]!r}")
        return _Rule(False, _members(gid), gid, terms)
    if who.isascii() and who.isdigit():
        return _Rule(False, frozenset({int(who)}), NO_GROUP, terms)
    try:
        return _Rule(False, frozenset({pwd.getpwnam(who).pw_uid}), NO_GROUP, terms)
    except KeyError:
        unknown.append(f"no user is called {who!r}")
        return _Rule(False, frozenset(), NO_GROUP, terms)


def _gid_of(group: str) -> int:
    if group.isascii() and group.isdigit():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        return NO_GROUP


def _members(gid: int) -> frozenset[int]:
    """The members of a group in the user database."""
    try:
        names = set(grp.getgrgid(gid).gr_mem) if gid != NO_GROUP else set()
    except (KeyError, OverflowError):
        names = set()
    everybody = pwd.getpwall() if gid != NO_GROUP else []
    return frozenset(user.pw_uid for user in everybody if user.pw_gid == gid or user.pw_name in names)
