"""GPU items read back from recordings: what was written, and whatever else a file may hold."""

from __future__ import annotations

import json
import math
import unicodedata
from dataclasses import asdict, fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.gpu.items import MAX_ITEMS, gpu_from_item, gpus_from_items
from enginetop.fleet.snapshot import GpuDevice

CONTRACT = """{"index": 3, "uuid": "GPU-3", "name": "NVIDIA H200", "mig": "1g.18gb", "utilization_ratio": 0.5,
 "memory_used_bytes": 1024, "memory_total_bytes": 4096, "unified_memory": true, "power_watts": 350.5,
 "power_limit_watts": 700, "temperature_celsius": -4, "sm_clock_mhz": 1980,
 "throttle_reasons": ["idle", "hw_thermal"], "last_xid": 79, "state": "lost", "source": "dcgm"}"""


def test_an_item_as_the_contract_writes_it() -> None:
    assert gpu_from_item(json.loads(CONTRACT), 9) == GpuDevice(
        index=3,
        uuid="GPU-3",
        name="NVIDIA H200",
        mig="1g.18gb",
        utilization_ratio=0.5,
        memory_used_bytes=1024.0,
        memory_total_bytes=4096.0,
        unified_memory=True,
        power_watts=350.5,
        power_limit_watts=700.0,
        temperature_celsius=-4.0,
        sm_clock_mhz=1980.0,
        throttle_reasons=("idle", "hw_thermal"),
        last_xid=79,
        state="lost",
        source="dcgm",
    )


def test_every_field_of_a_device_survives_a_file() -> None:
    device = GpuDevice(
        7,
        "MIG-7",
        "H200",
        "1g.18gb",
        0.25,
        1.0,
        2.0,
        True,
        3.5,
        4.0,
        50.0,
        60.0,
        ("idle",),
        13,
        "error",
        "amd",
        "a note",
        ("http://a:8000",),
        "serve/vllm-0",
        "vllm",
        1796000000.0,
        "pod",
        True,
    )
    assert all(getattr(device, field.name) != field.default for field in fields(device))
    assert gpu_from_item(json.loads(json.dumps(asdict(device)))) == device


def test_an_empty_item_knows_nothing() -> None:
    assert gpu_from_item({}, 4) == GpuDevice(index=4, uuid="", name="")


@pytest.mark.parametrize("item", [None, [], "gpu", 3, True])
def test_what_is_no_object_is_no_gpu(item: object) -> None:
    assert gpu_from_item(item) is None


@pytest.mark.parametrize(
    "value", [None, True, "7", [], {}, math.nan, math.inf, -math.inf, -300.0, 10**400, "\x1b[2J"]
)
@pytest.mark.parametrize(
    "key",
    [
        "utilization_ratio",
        "memory_used_bytes",
        "memory_total_bytes",
        "power_watts",
        "power_limit_watts",
        "temperature_celsius",
        "sm_clock_mhz",
        "last_xid",
    ],
)
def test_what_is_no_number_in_range_is_none(key: str, value: object) -> None:
    gpu = gpu_from_item({key: value})
    assert gpu is not None
    assert getattr(gpu, key) is None


@pytest.mark.parametrize(("key", "value"), [("utilization_ratio", 50), ("last_xid", 79.5)])
def test_percent_is_no_ratio_and_a_fraction_no_xid(key: str, value: float) -> None:
    gpu = gpu_from_item({key: value})
    assert gpu is not None
    assert getattr(gpu, key) is None


@pytest.mark.parametrize("state", ["exploded", None, 3, ["ok"], {}, ""])
def test_an_unknown_state_is_an_error_with_a_note(state: object) -> None:
    gpu = gpu_from_item({"state": state})
    assert gpu is not None
    assert gpu.state == "error"
    assert gpu.note.startswith("unknown state")


@pytest.mark.parametrize(
    ("value", "replicas"),
    [(None, None), ("http://a", None), ([], ()), (["http://a", 7, "http://b"], ("http://a", "http://b"))],
)
def test_replicas_are_read_if_a_recording_holds_them(value: object, replicas: tuple[str, ...] | None) -> None:
    gpu = gpu_from_item({"replicas": value})
    assert gpu is not None
    assert gpu.replicas == replicas


def test_a_list_keeps_places_and_is_bounded() -> None:
    assert [gpu.index for gpu in gpus_from_items([{}, "junk", {}])] == [0, 2]
    assert len(gpus_from_items([{}] * (MAX_ITEMS + 5))) == MAX_ITEMS
    assert gpus_from_items({"0": {}}) == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
KEYS = st.sampled_from([field.name for field in fields(GpuDevice)])


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(KEYS, JSON, max_size=18))
def test_nothing_in_an_item_crashes_or_reaches_the_terminal(item: dict[str, Any]) -> None:
    gpu = gpu_from_item(item)
    assert gpu is not None
    texts = [gpu.uuid, gpu.name, gpu.mig or "", gpu.state, gpu.source, gpu.note, *gpu.throttle_reasons]
    texts += gpu.replicas or ()
    for text in texts:
        assert len(text) <= 300
        assert not any(unicodedata.category(character) in {"Cc", "Cf", "Cs"} for character in text)
    json.dumps(gpu.power_watts, allow_nan=False)
