"""Field and label selectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from nvshare.sim.kube_api.errors import Json, bad_request
from nvshare.sim.kube_api.resources import Resource

Matches = Callable[[Json], bool]

_SET: Final = re.compile(r"(?P<key>\S+)\s+(?P<how>in|notin)\s+\((?P<values>[^)]*)\)")
_EQUAL: Final = re.compile(r"(?P<key>[^=!\s]+)\s*(?P<how>==|=|!=)\s*(?P<value>[^=!\s]*)")
_EXISTS: Final = re.compile(r"(?P<no>!?)\s*(?P<key>[A-Za-z0-9][A-Za-z0-9._/-]*)")
_TERMS_MAX: Final = 100


def value_at(found: Any, path: str) -> Any:
    """What an object has at a dotted path; None if it has nothing there."""
    for part in path.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(part)
    return found


def _text_at(found: Json, path: str) -> str:
    value = value_at(found, path)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "false" if path in ("spec.unschedulable", "spec.hostNetwork") else ""
    return str(value)


def _terms(selector: str) -> list[str]:
    """Separated by commas, of which those in brackets do not count."""
    terms = [term.strip() for term in re.split(r",(?![^(]*\))", selector)]
    if len(terms) > _TERMS_MAX:
        raise bad_request(f"a selector of {len(terms)} terms; at most {_TERMS_MAX} are accepted")
    return [term for term in terms if term]


def field_matcher(selector: str, resource: Resource) -> Matches | None:
    tests: list[tuple[str, str, bool]] = []
    for term in _terms(selector):
        match = _EQUAL.fullmatch(term)
        if match is None:
            raise bad_request(f"invalid selector: {selector!r}; can't understand {term!r}")
        if match["key"] not in resource.selectable:
            raise bad_request(
                f'Unable to find {resource.plural} that match field selector "{selector}": '
                f"field label not supported: {match['key']}"
            )
        tests.append((match["key"], match["value"], match["how"] != "!="))
    if not tests:
        return None
    return lambda found: all((_text_at(found, key) == value) is wanted for key, value, wanted in tests)


def label_matcher(selector: str) -> Matches | None:
    tests = [_label_test(term, selector) for term in _terms(selector)]
    if not tests:
        return None

    def matches(found: Json) -> bool:
        labels = found.get("metadata", {}).get("labels") or {}
        return all(test(labels) for test in tests)

    return matches


def _label_test(term: str, selector: str) -> Matches:
    match = _SET.fullmatch(term)
    if match is not None:
        key, values = match["key"], {value.strip() for value in match["values"].split(",")}
        if match["how"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    match = _EQUAL.fullmatch(term)
    if match is not None:
        key, value = match["key"], match["value"]
        if match["how"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    match = _EXISTS.fullmatch(term)
    if match is not None:
        key, wanted = match["key"], not match["no"]
        return lambda labels: (key in labels) is wanted
    raise bad_request(f'unable to parse requirement: couldn\'t parse the selector string "{selector}"')


def matcher(resource: Resource, fields: str, labels: str, namespace: str = "") -> Matches:
    by_field, by_label = field_matcher(fields, resource), label_matcher(labels)

    def matches(found: Json) -> bool:
        if namespace and found["metadata"].get("namespace") != namespace:
            return False
        if by_field is not None and not by_field(found):
            return False
        return by_label is None or by_label(found)

    return matches
