"""Findings about a target, from facts written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.doctor.facts import EngineFacts, FailureFacts, Missing, PageFacts, StageFacts, TargetFacts
from enginetop.doctor.finding import Finding, Level, worst
from enginetop.doctor.target import seconds_text, size_text, target_findings
from enginetop.fleet.admin_surface import AdminFacts, Openness
from enginetop.fleet.model import EngineKind, ReplicaState, Role
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.reading import ConfigValue

NOW = 1_800_000_000.0
PAGE = PageFacts("/metrics", 0.012, 200, 14 * 1024)
ENGINE = EngineFacts(
    EngineKind.VLLM,
    "vLLM",
    ReplicaState.OK,
    version="0.32.0",
    model="m",
    role=Role.DECODE,
    read=("requests_running", "kv_usage_ratio"),
    pending=("ttft_seconds",),
)
HEALTHY = TargetFacts(
    "a1",
    "http://a1:8000",
    interval_seconds=2.0,
    stages=(StageFacts("name", 0.0031, "10.0.0.1"), StageFacts("connection", 0.0004)),
    pages=(PageFacts("/prometheus/metrics", 0.002, 404), PAGE, PageFacts("/version", 0.002, 200)),
    scrape_seconds=0.016,
    skew_seconds=0.3,
    engine=ENGINE,
)


def found(facts: TargetFacts) -> list[Finding]:
    return target_findings(facts, NOW)


def only(facts: TargetFacts, level: Level) -> Finding:
    (one,) = [finding for finding in found(facts) if finding.level is level]
    return one


def test_a_healthy_target() -> None:
    assert found(HEALTHY) == [
        Finding("reach", Level.OK, "name 3 ms (10.0.0.1), connection <1 ms", "", "a1"),
        Finding("page", Level.OK, "/metrics 200 in 12 ms, 14 KiB, 2 other pages", "", "a1"),
        Finding("engine", Level.OK, "vLLM 0.32.0 · m · decode", "", "a1"),
        Finding("signals", Level.OK, "2 of 3 signals are read, 1 wait for traffic", "", "a1"),
    ]


@pytest.mark.parametrize(
    ("kind", "problem", "fix"),
    [
        (FailureKind.DNS, "name lookup failed: unknown", "correct the name"),
        (FailureKind.REFUSED, "connection refused", "start the server"),
        (FailureKind.TIMEOUT, "connection: nothing within 5 s", "a firewall"),
        (
            FailureKind.TIMEOUT,
            "TLS: nothing within 5 s",
            "a server that speaks plain HTTP (write http://a1) or",
        ),
        (FailureKind.TLS, "TLS: self-signed certificate", "name the CA of its certificate"),
        (FailureKind.TLS, "TLS: wrong version number", "the server speaks plain HTTP there: write http://a1"),
    ],
)
def test_a_way_that_ends_early(kind: FailureKind, problem: str, fix: str) -> None:
    stages = (StageFacts("connection", 0.1, problem=problem, kind=kind),)
    facts = TargetFacts("a1", "https://a1", 2.0, stages=stages)
    (finding,) = found(facts)
    assert (finding.area, finding.level, finding.what) == ("reach", Level.ERROR, problem)
    assert finding.fix.startswith(fix)


@pytest.mark.parametrize(("url", "tls"), [("http://a1:8000", True), ("https://a1:8000", False)])
def test_a_server_that_closes_at_once_may_speak_tls(url: str, tls: bool) -> None:
    failure = FailureFacts(FailureKind.REFUSED, "connected, and closed without an answer")
    (finding,) = found(TargetFacts("a1", url, 2.0, failure=failure))
    assert ("write https://a1:8000" in finding.fix) is tls
    assert finding.fix.startswith("start the server")


@pytest.mark.parametrize("kind", list(FailureKind))
@pytest.mark.parametrize("key", ["", "the variable KEY"])
def test_every_failure_has_a_fix(kind: FailureKind, key: str) -> None:
    facts = TargetFacts("a1", "http://a1", 2.0, failure=FailureFacts(kind, "words"), key=key)
    (finding,) = found(facts)
    assert finding.level is (Level.WARNING if kind is FailureKind.LOADING else Level.ERROR)
    assert finding.what == f"{kind.replace('_', ' ')}: words"
    assert finding.fix


def test_a_key_that_is_named_and_refused_is_told_from_one_that_is_missing() -> None:
    failure = FailureFacts(FailureKind.UNAUTHORIZED, "HTTP 401 at /metrics")
    assert "api_key_env" in found(replace(HEALTHY, engine=None, failure=failure))[-1].fix
    named = replace(HEALTHY, engine=None, failure=failure, key="the variable KEY")
    assert found(named)[-1].fix == "the key of the variable KEY is not accepted there: correct it"


def test_the_hint_of_a_known_engine_is_the_fix() -> None:
    failure = FailureFacts(FailureKind.DISABLED, "HTTP 501 at /metrics", "start llama-server with --metrics")
    facts = replace(HEALTHY, engine=None, failure=failure)
    assert only(facts, Level.ERROR).fix == "start llama-server with --metrics"


@pytest.mark.parametrize(
    ("took", "fix"),
    [(0.9, None), (1.1, "--interval 3"), (6.0, "--interval 12")],
)
def test_a_scrape_that_needs_more_than_half_the_interval(took: float, fix: str | None) -> None:
    facts = replace(HEALTHY, scrape_seconds=took)
    slow = [one for one in found(facts) if one.what.startswith("a scrape takes")]
    assert [one.fix.split(",")[0] for one in slow] == ([] if fix is None else [fix])


@pytest.mark.parametrize(("skew", "side"), [(4.9, None), (-5.0, None), (61.0, "behind"), (-7.0, "ahead of")])
def test_clocks(skew: float, side: str | None) -> None:
    clock = [one for one in found(replace(HEALTHY, skew_seconds=skew)) if one.area == "clock"]
    assert [side in one.what if side else True for one in clock] == ([] if side is None else [True])


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({"state": ReplicaState.SLEEPING}, Level.INFO, "it is sleeping"),
        (
            {"kind": EngineKind.SGLANG, "config": {"dp_size": ConfigValue(4, "x")}, "ranks": 1},
            Level.WARNING,
            "1 of 4",
        ),
        ({"config": {"data_parallel_size": ConfigValue(2, "x")}}, Level.INFO, "1 of 2 data-parallel ranks"),
        ({"bad_lines": 3}, Level.WARNING, "3 lines of the page cannot be read"),
        ({"kind": EngineKind.ROUTER}, Level.INFO, "a router's view"),
        (
            {"suspect": (Missing("preemptions", "the counter jumps back and forth"),)},
            Level.WARNING,
            "preemptions: the counter jumps back and forth",
        ),
        ({"exact": Missing("goodput", "no counts", "the companion")}, Level.INFO, "no exact goodput"),
    ],
)
def test_what_an_engine_may_say(change: dict[str, object], level: Level, words: str) -> None:
    facts = replace(HEALTHY, engine=replace(ENGINE, **change))  # type: ignore[arg-type]
    assert words in only(facts, level).what


def test_all_ranks_on_the_page_are_no_news() -> None:
    engine = replace(ENGINE, ranks=2, config={"data_parallel_size": ConfigValue(2, "x")})
    assert worst(found(replace(HEALTHY, engine=engine))) is Level.OK
    assert "vLLM 0.32.0 · m · decode · 2 ranks" in [
        one.what for one in found(replace(HEALTHY, engine=engine))
    ]


def test_missing_signals_share_a_line_where_one_thing_would_bring_them() -> None:
    missing = (
        Missing("spec_accepted_length", "no speculation", "--speculative-config"),
        Missing("queue_seconds", "too old"),
        Missing("spec_acceptance_ratio", "no speculation", "--speculative-config"),
    )
    notes = [
        one
        for one in found(replace(HEALTHY, engine=replace(ENGINE, missing=missing)))
        if one.fix or "too" in one.what
    ]
    assert [(one.level, one.what, one.fix) for one in notes] == [
        (
            Level.INFO,
            "no spec_accepted_length, spec_acceptance_ratio: no speculation",
            "--speculative-config",
        ),
        (Level.INFO, "no queue_seconds: too old", ""),
    ]
    assert worst(notes) is Level.INFO


def test_certificates() -> None:
    day = 86_400.0
    assert worst(found(replace(HEALTHY, certificate_until=NOW + 15 * day))) is Level.OK
    ending = replace(HEALTHY, certificate_until=NOW + 3 * day)
    assert only(ending, Level.WARNING).what == "the certificate ends in 3 days"
    assert only(replace(HEALTHY, unverified=True), Level.WARNING).fix == "name its CA with ca_file"


def test_a_page_that_grew_without_bound() -> None:
    facts = replace(HEALTHY, pages=(replace(PAGE, size_bytes=6 * 1024 * 1024),))
    assert "6.0 MiB" in only(facts, Level.WARNING).what


DEVELOPMENT = frozenset({"/v1/models", "/sleep", "/pause", "/resume", "/collective_rpc"})


@pytest.mark.parametrize(
    ("kind", "facts", "level", "words"),
    [
        (
            EngineKind.VLLM,
            AdminFacts(routes=DEVELOPMENT),
            Level.WARNING,
            "/collective_rpc, /pause, /resume and 1 more",
        ),
        (EngineKind.VLLM, AdminFacts(routes=frozenset({"/v1/models"})), Level.OK, "no development routes"),
        (EngineKind.VLLM, AdminFacts(), Level.INFO, "cannot be told"),
        (EngineKind.SGLANG, AdminFacts({"/v1/models": 401}), Level.OK, "need a key"),
        (EngineKind.SGLANG, AdminFacts({"/v1/models": 200}), Level.INFO, "cannot be told"),
        (EngineKind.SGLANG, AdminFacts(), Level.INFO, "cannot be told"),
        (EngineKind.LLAMACPP, AdminFacts({"/props": 200}), Level.INFO, "no --api-key"),
        (EngineKind.LLAMACPP, AdminFacts({"/props": 403}), Level.OK, "need a key"),
        (EngineKind.LMDEPLOY, AdminFacts({"/v1/models": 200}), Level.INFO, "no --api-keys"),
        (
            EngineKind.DYNAMO,
            AdminFacts(routes=frozenset({"/busy_threshold"})),
            Level.WARNING,
            "/busy_threshold",
        ),
        (EngineKind.DYNAMO, AdminFacts(routes=frozenset()), Level.OK, "not mounted"),
        (EngineKind.TGI, AdminFacts(), Level.OK, "nothing of it can be changed"),
        (EngineKind.TRTLLM, AdminFacts(), Level.INFO, "cannot be told"),
        (EngineKind.TRITON, AdminFacts(), Level.INFO, "cannot be told"),
        (EngineKind.ROUTER, AdminFacts(), Level.INFO, "cannot be told"),
    ],
)
def test_who_may_change_it(kind: EngineKind, facts: AdminFacts, level: Level, words: str) -> None:
    engine = replace(ENGINE, kind=kind)
    control = [one for one in found(replace(HEALTHY, engine=engine, admin=facts)) if one.area == "control"]
    assert [one.level for one in control] == [level]
    assert words in control[0].what
    surface = replace(HEALTHY, engine=engine, admin=facts).surface
    assert surface is not None
    assert ("`apply` refuses it unless" in control[0].fix) == (surface.openness is Openness.OPEN)


def test_a_worker_of_dynamo_is_open_whatever_its_engine() -> None:
    engine = replace(ENGINE, stack="dynamo")
    facts = replace(HEALTHY, engine=engine, admin=AdminFacts())
    assert "system port has no authentication" in only(facts, Level.INFO).what
    frontend = replace(engine, kind=EngineKind.DYNAMO, role=Role.GATEWAY)
    assert "no /openapi.json" in only(replace(facts, engine=frontend), Level.INFO).what


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0004, "<1 ms"), (0.0124, "12 ms"), (3.44, "3.4 s"), (120.0, "120 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0 bytes"), (1536, "2 KiB"), (3 * 1024 * 1024, "3.0 MiB")])
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text
