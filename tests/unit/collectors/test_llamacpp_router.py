"""A llama.cpp router: a row that tells where its models are, and no model touched for it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.answer import Answer
from collectors.engines.base import Look
from collectors.engines.detect import SIDE_FIELDS
from collectors.engines.llamacpp import LlamaReader
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import EngineKind, Quality, ReplicaState, Role, Target
from enginetop.fleet.observation import Failure, FailureKind, Observation
from enginetop.fleet.reading import Reading
from enginetop.fleet.snapshot import ReplicaSnapshot, Scalar, Slo
from tests.support.engine_pages import answer, fixture, measures, total

CAPTURE = json.loads(fixture("llamacpp/b10434/llama_cpp-b10434-router.models.json"))
ROUTER = {"role": "router", "build_info": "b10434"}


def listing(*words: object) -> dict[str, object]:
    """A list of models m0, m1, ... in these states."""
    return {"data": [{"id": f"m{i}", "status": {"value": word}} for i, word in enumerate(words)]}


def outcome_of(models: object) -> Reading | Failure:
    sides = {"/props": ROUTER} if models is None else {"/props": ROUTER, "/models": models}
    return LlamaReader().read(Look(at=1.0, page=None, sides=sides))


def read(models: object) -> Reading:
    outcome = outcome_of(models)
    assert isinstance(outcome, Reading)
    return outcome


def counts(reading: Reading) -> tuple[float, float, float, float]:
    """Loaded, loading, asleep, unloaded."""
    return (
        total(reading, "models_loaded"),
        total(reading, "models_loading"),
        total(reading, "models_sleeping"),
        total(reading, "models_unloaded"),
    )


def test_the_captured_list() -> None:
    reading = read(CAPTURE)
    assert counts(reading) == (0, 0, 0, 2)
    assert (reading.identity.engine, reading.identity.role) == (EngineKind.LLAMACPP, Role.ROUTER)
    assert (reading.identity.model, reading.identity.engine_version) == (None, "b10434")
    assert reading.flags.sleeping is False
    # With no model in memory nothing runs.
    assert total(reading, "requests_running") == total(reading, "requests_waiting") == 0


@pytest.mark.parametrize(
    ("words", "expected", "sleeping"),
    [
        (("loaded", "unloaded"), (1, 0, 0, 1), False),
        (("loaded", "loaded", "sleeping"), (2, 0, 1, 0), False),
        (("loading", "unloaded"), (0, 1, 0, 1), False),
        (("sleeping", "unloaded"), (0, 0, 1, 1), True),
        (("sleeping", "sleeping"), (0, 0, 2, 0), True),
        ((), (0, 0, 0, 0), False),
        (("downloading", None, 3), (0, 0, 0, 0), False),  # words of other builds count nowhere
    ],
)
def test_models_by_their_state(
    words: tuple[object, ...], expected: tuple[float, ...], sleeping: bool
) -> None:
    reading = read(listing(*words))
    assert counts(reading) == expected
    assert reading.flags.sleeping is sleeping
    busy = expected[0] + expected[1] > 0
    assert ("requests_running" in measures(reading)) is not busy
    assert reading.columns.absent["kv_usage_ratio"].quality is Quality.UNKNOWN
    assert "targets" in reading.columns.absent["requests_running"].note


def test_the_loaded_models_are_named() -> None:
    one, two = read(listing("loaded", "sleeping")), read(listing("loaded", "loaded", "unloaded"))
    assert (one.identity.model, one.config["models"].value) == ("m0", "m0")
    assert (two.identity.model, two.config["models"].value) == (None, "m0, m1")
    many = read(listing(*["loaded"] * 10)).config["models"]
    assert many.value == "m0, m1, m2, m3, m4, m5, m6, m7 and 2 more"


def test_a_change_of_the_models_is_movement() -> None:
    before, after = read(listing("unloaded")), read(listing("loading"))
    assert before.progress_token != after.progress_token
    assert before.progress_token == read(listing("unloaded")).progress_token


@pytest.mark.parametrize("models", [None, [], "x", 3])
def test_a_router_without_a_list_of_models_is_refused_with_the_reason(models: object) -> None:
    outcome = outcome_of(models)
    assert isinstance(outcome, Failure)
    assert outcome.kind is FailureKind.NO_ENGINE_METRICS
    assert "would load that model" in outcome.detail


@pytest.mark.parametrize(
    "models",
    [
        {},
        {"data": None},
        {"data": [None, 3, []]},
        {"data": [{"status": "loaded"}, {"status": {"value": []}}]},
    ],
)
def test_lists_of_another_form_count_nothing(models: object) -> None:
    assert counts(read(models)) == (0, 0, 0, 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["data", "id", "status", "value", "role"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=50, deadline=None)
@given(JSON)
def test_no_list_of_models_makes_trouble(models: object) -> None:
    outcome = outcome_of(models)
    assert isinstance(outcome, Reading | Failure)


def test_a_recording_holds_no_command_line_of_a_model() -> None:
    assert set(SIDE_FIELDS["/models"]) == {"data[].id", "data[].status.value"}


# Through the feed, as a server that would load a model if it were asked wrongly


class RouterServer:
    """Answers as a router does, and remembers what it was asked."""

    def __init__(self, models: object) -> None:
        self.models = models
        self.asked: list[str] = []
        self.target = Target("http://r1:8080", "r1")
        self._feed = TargetFeed(self.target, LayoutCache())

    def scrape(self, at: float) -> Observation:
        answers: list[Answer] = []
        while (path := self._feed.next_path(answers)) is not None:
            self.asked.append(path)
            answers.append(self._answer(path, at))
        return self._feed.take(answers, at, 0.01)

    def _answer(self, path: str, at: float) -> Answer:
        headers = {"server": "llama.cpp"}
        if path == "/props":
            return answer(path, ROUTER, at=at, headers=headers)
        if path == "/models":
            return answer(path, self.models, at=at, headers=headers)
        return answer(
            path, {"error": {"message": "model name is missing"}}, at=at, status=400, headers=headers
        )


def snapshot_of(server: RouterServer, looks: int = 3) -> ReplicaSnapshot:
    tracker = FleetTracker(
        [server.target],
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda model: Slo(),
        fixed_spacing_seconds=2.0,
    )
    for look in range(looks):
        tracker.observe(server.target.url, server.scrape(100.0 + 2 * look))
    (replica,) = tracker.snapshot(100.0 + 2 * (looks - 1)).replicas
    return replica


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (("unloaded", "unloaded"), ReplicaState.IDLE),
        (("sleeping", "unloaded"), ReplicaState.SLEEPING),
        (("loaded", "sleeping"), ReplicaState.OK),
        (("loading",), ReplicaState.OK),
    ],
)
def test_the_row_of_a_router(words: tuple[str, ...], state: ReplicaState) -> None:
    server = RouterServer(listing(*words))
    replica = snapshot_of(server)
    assert (replica.state, replica.role) == (state, Role.ROUTER)
    loaded = replica.beyond["models_loaded"]
    assert isinstance(loaded, Scalar)
    assert loaded.value == words.count("loaded")
    # Neither the page that wants a model named, nor one that a model's name could follow.
    assert set(server.asked) == {"/prometheus/metrics", "/props", "/models"}
    assert server.asked[2:].count("/prometheus/metrics") == 0


def test_a_server_that_is_no_router_is_not_asked_for_its_models() -> None:
    feed = TargetFeed(Target("http://r1:8080", "r1"), LayoutCache())
    props = json.loads(fixture("llamacpp/b10434/llama_cpp-b10434-idle.props.json"))
    headers = {"server": "llama.cpp"}
    answers = [
        answer("/prometheus/metrics", status=404, headers=headers),
        answer("/props", props, headers=headers),
    ]
    assert feed.next_path(answers) == "/metrics"
