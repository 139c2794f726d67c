"""Annotations: real ones to the value, every one both ways, and what is wrong refused with the part that
is.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvshare.hami.allocation import (
    MigPlace,
    PodDevice,
    format_allocation,
    parse_allocation,
    without_empty,
)
from nvshare.hami.annotation_error import AnnotationError
from nvshare.hami.handshake import Handshake, format_handshake, is_gone, parse_handshake
from nvshare.hami.mig_allocation import (
    MigAllocation,
    MigInstance,
    format_mig_allocations,
    parse_mig_allocations,
)
from nvshare.hami.node_devices import (
    NodeDevice,
    TemplatePart,
    format_json,
    format_text,
    parse_node_devices,
)
from nvshare.hami.node_gpus import NodeGpu, format_node_gpus, parse_node_gpus

A = "GPU-00000000-1111-2222-3333-44444444aaaa"
B = "GPU-55555555-6666-7777-8888-99999999bbbb"
JSON = (
    f'[{{"id":"{A}","count":10,"devmem":24576,"devcore":100,"type":"NVIDIA A10","mode":"hami-core",'
    '"health":true},'
    f' {{"id":"{B}","index":1,"count":10,"devmem":24576,"devcore":100,"type":"NVIDIA A10","numa":1,'
    '"mode":"hami-core"}]'
)
NINE = (
    f"{A},10,24576,100,NVIDIA-NVIDIA A10,0,true,0,hami-core:{B},10,24576,100,NVIDIA-NVIDIA A10,1,true,1,mig:"
)
SEVEN = f"{A},10,24576,100,NVIDIA-Tesla P4,0,true:"
TWO = f"{A},NVIDIA,3000,30:;{A},NVIDIA,2000,20:{B},NVIDIA,2000,20:;"

EXAMPLES = 40
words = st.text(string.ascii_letters + string.digits + " -_.", min_size=1, max_size=20)
names = words.map(str.strip).filter(bool)
numbers = st.integers(0, 1 << 40)
node_devices = st.builds(
    NodeDevice, names, numbers, numbers, numbers, names, numbers, st.booleans(), numbers, names, st.just(())
)
templates = st.lists(st.lists(st.builds(TemplatePart, names, numbers), max_size=3).map(tuple), max_size=3)
places = st.none() | st.builds(MigPlace, st.integers(0, 99), st.integers(0, 99))
pod_devices = st.builds(PodDevice, names, names, numbers, numbers, places)
instances = st.none() | st.builds(MigInstance, names, st.integers(0, 99), st.integers(0, 99))
mig = st.builds(
    MigAllocation,
    st.integers(0, 9),
    st.integers(0, 9),
    names,
    names,
    st.integers(0, 7),
    st.integers(1, 8),
    instances,
)


def distinct(rows: Any, key: Callable[[Any], Any]) -> Any:
    return st.lists(rows, max_size=6, unique_by=key).map(tuple)


def test_the_three_forms_of_a_registration() -> None:
    first, second = parse_node_devices(JSON)
    assert first == NodeDevice(A, 10, 24576, 100, "NVIDIA A10", 0, True, 0, "hami-core")
    assert second == NodeDevice(B, 10, 24576, 100, "NVIDIA A10", 1, False, 1, "hami-core")
    assert [(d.number, d.mode, d.healthy, d.numa) for d in parse_node_devices(NINE)] == [
        (0, "hami-core", True, 0),
        (1, "mig", True, 1),
    ]
    assert parse_node_devices(SEVEN) == (NodeDevice(A, 10, 24576, 100, "NVIDIA-Tesla P4", 0, True),)


def test_templates_of_mig() -> None:
    text = f'[{{"id":"{A}","migtemplate":[[{{"Name":"1g.10gb","Core":14,"Memory":10240,"Count":7}}]]}}]'
    assert parse_node_devices(text)[0].templates == ((TemplatePart("1g.10gb", 7),),)


@settings(max_examples=EXAMPLES, deadline=None)
@given(distinct(st.tuples(node_devices, templates), lambda row: row[0].uuid))
def test_a_registration_in_json_both_ways(rows: Any) -> None:
    devices = tuple(one._replace(templates=tuple(split)) for one, split in rows)
    assert parse_node_devices(format_json(devices)) == devices


@settings(max_examples=EXAMPLES, deadline=None)
@given(distinct(node_devices, lambda one: one.uuid).filter(len))
def test_a_registration_as_text_both_ways(devices: Any) -> None:
    text = format_text(devices)
    assert parse_node_devices(text) == devices
    assert format_text(parse_node_devices(text)) == text
    short = tuple(one._replace(number=0, mode="hami-core") for one in devices)
    assert parse_node_devices(format_text(short, 7)) == short


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        "[",
        '[{"id":""}]',
        '[{"id":"a","count":-1}]',
        '[{"id":"a","count":true}]',
        '[{"id":"a","health":"yes"}]',
        '[{"id":"a"},{"id":"a"}]',
        "[1]",
        '[{"id":"a","migtemplate":[1]}]',
        "[" * 100_000,
        f"{A},10,24576,100,T4,0:",
        f"{A},10,24576,100,T4,0,true,0:",
        f"{A},ten,24576,100,T4,0,true:",
        f"{A},10,24576,100,T4,0,yes:",
        f"{A},٣,24576,100,T4,0,true:",
    ],
)
def test_a_registration_that_is_wrong(text: str) -> None:
    with pytest.raises(AnnotationError):
        parse_node_devices(text)


def test_an_allocation_of_two_containers() -> None:
    assert parse_allocation(TWO) == (
        (PodDevice(A, "NVIDIA", 3000, 30),),
        (PodDevice(A, "NVIDIA", 2000, 20), PodDevice(B, "NVIDIA", 2000, 20)),
    )
    kept = parse_allocation(";;" + TWO)
    assert [len(devices) for devices in kept] == [0, 0, 1, 2]
    assert without_empty(kept) == parse_allocation(TWO)
    assert parse_allocation(f"{A}[0-1],NVIDIA,10240,30:;")[0][0].mig == MigPlace(0, 1)
    assert parse_allocation(f"{A},NVIDIA,1,2,more:rest:;") == ((PodDevice(A, "NVIDIA", 1, 2),),)
    assert parse_allocation("") == ()


@pytest.mark.parametrize(
    "text", [f"{A},NVIDIA:;", f"{A},NVIDIA,x,1:;", f"{A}[1],NVIDIA,1,1:;", ",N,1,1:;", ";" * 2000]
)
def test_an_allocation_that_is_wrong(text: str) -> None:
    with pytest.raises(AnnotationError):
        parse_allocation(text)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.lists(pod_devices, max_size=4).map(tuple), max_size=5).map(tuple))
def test_an_allocation_both_ways(allocation: Any) -> None:
    text = format_allocation(allocation)
    assert parse_allocation(text) == allocation
    assert format_allocation(parse_allocation(text)) == text


def test_handshakes() -> None:
    asked = parse_handshake("Requesting_2025-03-04 05:06:07")
    assert asked == Handshake("requesting", "2025-03-04 05:06:07")
    assert parse_handshake("Deleted_2025.03.04 05:06:07").state == "deleted"
    assert parse_handshake("Reported 2025-03-04 05:06:07.1 +0000 UTC m=+12.3").state == "reported"
    assert parse_handshake("Requesting_soon").state == "unknown"
    gone = [is_gone(asked, some) for some in (None, 0, 1)]
    assert gone == [False, True, False]
    deleted = Handshake("deleted", "")
    assert [is_gone(deleted, some) for some in (None, 0, 1)] == [True, True, False]
    assert not is_gone(None, 0)
    assert not is_gone(Handshake("reported", ""), 0)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text() | st.from_regex(r"(Requesting|Deleted)_\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", fullmatch=True))
def test_a_handshake_both_ways(text: str) -> None:
    assert format_handshake(parse_handshake(text)) == text


@settings(max_examples=EXAMPLES, deadline=None)
@given(distinct(mig, lambda one: (one.container, one.device)))
def test_mig_allocations_both_ways(allocations: Any) -> None:
    text = format_mig_allocations(allocations)
    assert parse_mig_allocations(text) == allocations
    assert format_mig_allocations(parse_mig_allocations(text)) == text


MIG_ROW = {
    "containerIndex": 0,
    "deviceIndex": 0,
    "gpuUUID": A,
    "profile": "1g.10gb",
    "placement": {"start": 0, "size": 1},
}


@pytest.mark.parametrize(
    "changed",
    [
        {"migUUID": "MIG-1"},
        {"migUUID": "MIG-1", "gpuInstanceID": 7},
        {"placement": {"start": 0, "size": 0}},
        {"placement": 3},
        {"gpuUUID": ""},
        {"profile": None},
        {"containerIndex": "0"},
    ],
)
def test_a_mig_allocation_that_is_wrong(changed: dict[str, Any]) -> None:
    assert parse_mig_allocations(json.dumps([MIG_ROW]))[0].instance is None
    with pytest.raises(AnnotationError):
        parse_mig_allocations(json.dumps([{**MIG_ROW, **changed}]))
    with pytest.raises(AnnotationError, match="twice"):
        parse_mig_allocations(json.dumps([MIG_ROW, MIG_ROW]))


gpus = st.builds(
    lambda uuid, index, kind, memory, slots, held, healthy: NodeGpu(
        uuid,
        index,
        kind,
        memory,
        slots,
        tuple((n, p, c) for (n, p), c in held.items()),
        sum(held.values()),
        healthy,
    ),
    names,
    numbers,
    names,
    numbers,
    numbers,
    st.dictionaries(st.tuples(names, names), st.integers(1, 9), max_size=4),
    st.booleans(),
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(distinct(gpus, lambda gpu: gpu.uuid))
def test_our_own_annotation_both_ways(found: Any) -> None:
    text = format_node_gpus(found)
    assert parse_node_gpus(text) == found
    assert format_node_gpus(parse_node_gpus(text)) == text


def test_our_own_annotation_without_holders() -> None:
    [gpu] = parse_node_gpus(f'[{{"uuid":"{A}","index":2,"type":"T4","memory":5,"slots":10,"allocated":7}}]')
    assert gpu == NodeGpu(A, 2, "T4", 5, 10, (), 7)
    for wrong in (
        '{"uuid":""}',
        f'{{"uuid":"{A}","allocations":{{"pod":1}}}}',
        f'{{"uuid":"{A}","slots":"1"}}',
    ):
        with pytest.raises(AnnotationError):
            parse_node_gpus(f"[{wrong}]")


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
def test_no_text_raises_anything_else(text: str) -> None:
    for parse in (parse_node_devices, parse_allocation, parse_mig_allocations, parse_node_gpus):
        try:
            parse(text)
        except AnnotationError:
            continue
