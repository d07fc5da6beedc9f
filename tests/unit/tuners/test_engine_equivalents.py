"""Real pages of every engine get a row for every knob, from its own settings: advice, or what is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import EngineKind, Target
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import Advice, ReplicaSnapshot, Slo
from tuners.advice import Advisor

FIXTURES = Path(__file__).parents[2] / "fixtures"
BUDGET, DRAFTS, THINKING, SEQUENCES = KNOBS
SAMPLE = re.compile(r"^([^\s{]+)(\{.*\})? (\S+)$")
ENDINGS = re.compile(r"_(bucket|sum|count|total)$")
AT = 1_750_000_000.0

SGLANG, LLAMACPP, TRTLLM = "sglang/0.5.23/sglang-0.5.23-", "llamacpp/b11549/llama_cpp-b11549-", "trtllm/1.3/"
VLLM = "vllm/0.32.0/vllm-0.32.0-"
PAGES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "vllm": (f"{VLLM}loaded.prom", {"/server_info": f"{VLLM}server_info.json"}),
    "sglang": (f"{SGLANG}load-queued.prom", {"/server_info": f"{SGLANG}server_info.json"}),
    "sglang drafts": (f"{SGLANG}collector-spec.prom", {}),
    "trtllm": (f"{TRTLLM}trtllm-1.3-reconstructed-kvpressure.prom", {}),
    "llamacpp": (f"{LLAMACPP}busy.prom", {"/props": f"{LLAMACPP}after.props.json"}),
    "llamacpp drafts": ("llamacpp/b10434/llama_cpp-b10434-spec-after.prom", {}),
    "tgi": ("tgi/3.3/tgi-3.3-reconstructed-busy.prom", {}),
    "lmdeploy": ("lmdeploy/0.18.0/lmdeploy-0.18.0-collector-generated-idle.prom", {}),
    "triton": ("triton/reconstructed/triton-trtllm-reconstructed-pause.prom", {}),
    "dynamo": ("dynamo/1.6.1/dynamo-1.6.1-frontend-kvpressure.prom", {}),
}


def grown(page: str, factor: float) -> bytes:
    """The page with all its counters so many times as far: an engine at work."""
    counters: set[str] = set()
    lines = []
    for line in page.splitlines():
        words = line.split()
        if line.startswith("# TYPE") and words[3] in ("counter", "histogram"):
            counters.add(ENDINGS.sub("", words[2]))
        found = SAMPLE.match(line)
        if found and not line.startswith("#") and ENDINGS.sub("", found[1]) in counters:
            line = f"{found[1]}{found[2] or ''} {float(found[3]) * factor!r}"
        lines.append(line)
    return "\n".join(lines).encode() + b"\n"


@cache
def seen(name: str) -> ReplicaSnapshot:
    """The replica after a minute and a half of its page, with advice."""
    page, sides = PAGES[name]
    target = Target("http://one:8000", "one")
    feed = TargetFeed(target, LayoutCache())
    tracker = FleetTracker(
        (target,),
        interval_seconds=5.0,
        window_seconds=60.0,
        slo_for=lambda _: Slo(1.0, 0.05),
        fixed_spacing_seconds=5.0,
    )
    advisor = Advisor()
    text = (FIXTURES / page).read_text()
    for number in range(20):
        at = AT + 5.0 * number
        answers = [Answer("/metrics", at, 0.01, 200, {}, grown(text, 1.0 + 0.5 * number))]
        answers += [
            Answer(path, at, 0.01, 200, {}, (FIXTURES / file).read_bytes()) for path, file in sides.items()
        ]
        tracker.observe(target.url, feed.take(answers, at, 0.01))
        snapshot = advisor(tracker.snapshot(at))
    return snapshot.replicas[0]


def rows(name: str) -> dict[str, Advice]:
    return {row.knob: row for row in seen(name).advice}


@pytest.mark.parametrize("name", PAGES)
def test_every_knob_has_a_row_that_says_why(name: str) -> None:
    one = seen(name)
    assert one.engine is EngineKind(name.split(" ")[0])
    assert tuple(row.knob for row in one.advice) == KNOBS
    for row in one.advice:
        assert row.action in ("hold", "withheld", "lower")
        assert (row.proposed is not None) == (row.action == "lower")
        assert row.because[-1]


@pytest.mark.parametrize(
    ("name", "knob", "value"),
    [
        # as each page or side page writes it: --chunked-prefill-size, max_num_tokens, --parallel
        ("vllm", BUDGET, 512),
        ("sglang", BUDGET, 256),
        ("trtllm", BUDGET, 8192),
        ("dynamo", BUDGET, 2048),
        ("sglang drafts", DRAFTS, 3),
        ("trtllm", DRAFTS, 3),
        ("sglang", SEQUENCES, 8),
        ("trtllm", SEQUENCES, 64),
        ("triton", SEQUENCES, 64),
        ("llamacpp", SEQUENCES, 4),
    ],
)
def test_the_engines_own_setting_is_read(name: str, knob: str, value: int) -> None:
    assert rows(name)[knob].current == value


@pytest.mark.parametrize(
    ("name", "knob", "action", "words"),
    [
        ("sglang", BUDGET, "withheld", "preemptions is unknown: appears with the first retraction"),
        ("sglang", DRAFTS, "hold", "no drafts are made"),
        ("trtllm", BUDGET, "withheld", "preemptions is unsupported"),
        ("trtllm", SEQUENCES, "withheld", "preemptions is unsupported"),
        ("llamacpp", BUDGET, "withheld", "kv_usage_ratio is unknown"),
        ("llamacpp", DRAFTS, "hold", "no drafts are made"),
        ("tgi", BUDGET, "withheld", "preemptions is unsupported: TGI preempts nothing"),
        (
            "tgi",
            DRAFTS,
            "withheld",
            "whether drafts are made is not told; spec_acceptance_ratio is",
        ),
        ("tgi", THINKING, "withheld", "preemptions is unsupported"),
        ("lmdeploy", BUDGET, "withheld", "preemptions is unsupported"),
        ("triton", DRAFTS, "withheld", "whether drafts are made is not told"),
        ("dynamo", DRAFTS, "withheld", "whether drafts are made is not told"),
        ("vllm", DRAFTS, "hold", "no drafts are made"),
        ("vllm", THINKING, "withheld", "reasoning_tokens is unsupported"),
    ],
)
def test_the_missing_signal_is_named(name: str, knob: str, action: str, words: str) -> None:
    row = rows(name)[knob]
    assert (row.action, row.because[-1].startswith(words)) == (action, True), row.because


def test_drafts_of_a_number_that_nobody_tells() -> None:
    drafting = rows("llamacpp drafts")[DRAFTS]
    assert (drafting.action, drafting.current) == ("withheld", None)
    assert drafting.because[-1].startswith("drafts are made, but num_speculative_tokens is not known")


def test_vllms_budget_is_what_a_step_is_really_filled_to() -> None:
    # with speculation it keeps slots for drafts: max_num_scheduled_tokens, where it is given, is the smaller
    info = json.loads((FIXTURES / f"{VLLM}server_info.json").read_text())
    info["vllm_config"]["scheduler_config"]["max_num_scheduled_tokens"] = 480
    target = Target("http://one:8000", "one")
    tracker = FleetTracker(
        (target,),
        interval_seconds=5.0,
        window_seconds=60.0,
        slo_for=lambda _: Slo(1.0, 0.05),
        fixed_spacing_seconds=5.0,
    )
    answers = [
        Answer("/metrics", AT, 0.01, 200, {}, (FIXTURES / f"{VLLM}loaded.prom").read_bytes()),
        Answer("/server_info", AT, 0.01, 200, {}, json.dumps(info).encode()),
    ]
    tracker.observe(target.url, TargetFeed(target, LayoutCache()).take(answers, AT, 0.01))
    setting = tracker.snapshot(AT).replicas[0].config[BUDGET]
    assert (setting.value, setting.source) == (480, "/server_info max_num_scheduled_tokens, as started")
