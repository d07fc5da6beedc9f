"""What is particular to single writers: versions that differ, ranks, files, routes that are not there."""

from __future__ import annotations

import itertools
import math
import stat
from pathlib import Path

import pytest

from enginetop.fleet.knobs import KnobAnswer
from tests.support.stock_engines import (
    DynamoFrontend,
    DynamoPlanner,
    DynamoWorker,
    LlamaRouter,
    RuntimeConfigVllm,
    Sglang,
    Sleeper,
    StockEngine,
    Triton,
    told,
)
from tuners.control.knob_api import ReplyKind
from tuners.control.restartable import Load, NothingDoneError, RestartError, Values
from tuners.control.stock import switches
from tuners.control.stock.dynamo_busy import BusyThreshold
from tuners.control.stock.dynamo_planner import PlannerFloors
from tuners.control.stock.dynamo_taint import WorkerTaint
from tuners.control.stock.exchange import StockError, ask, refused
from tuners.control.stock.live_board import LiveBoard
from tuners.control.stock.llamacpp_router import RouterModel
from tuners.control.stock.preset_file import PresetFile
from tuners.control.stock.sglang_cap import OPEN, SglangCap
from tuners.control.stock.triton_model import TritonModel
from tuners.control.stock.vllm_runtime import VllmRuntimeConfig

SEATS = "max_num_seqs"
PRESET = "version = 1\n\n[*]\nubatch-size = 64\n\n[a]\n; np = 7\nmodel = /m/a.gguf\nnp = 8\n\n[b]\nnp = 4\n"


def idle() -> Load:
    return Load(ready=True, requests=0)


def sglang(engine: Sglang) -> LiveBoard:
    return LiveBoard(SglangCap(engine), writer="sglang_cap", engine_name="sglang")


# Answers


@pytest.mark.parametrize(
    ("document", "no"),
    [
        ({"status": "error", "message": "x"}, True),
        ({"error": "x"}, True),
        ({"error": {"message": "x"}}, True),
        ({"success": False}, True),
        ({"status": "paused"}, False),
        ({"error": None, "success": True}, False),
        ([True], False),
        (None, False),
    ],
)
def test_which_bodies_say_no(document: object, no: bool) -> None:
    assert refused(document) is no


# vLLM


def test_a_vllm_without_the_route_or_of_another_shape_offers_nothing() -> None:
    engine = RuntimeConfigVllm(fault="")
    assert VllmRuntimeConfig(engine).read().knobs[0].max == 8

    class Without(StockEngine):
        def read(self, method: str, path: str) -> KnobAnswer:
            return told({"detail": "Not Found"}, 404) if self.value else told({"max_num_running_seqs": "8"})

    for value in (8, 0):
        with pytest.raises(StockError) as found:
            VllmRuntimeConfig(Without(value)).read()
        assert found.value.kind is ReplyKind.MISSING


def test_a_vllm_that_pauses_only_by_aborting_is_never_paused() -> None:
    old = switches.Switches(
        Sleeper(vllm=True, pauses_by_mode=False), switches.VLLM, idle, address="http://r1"
    )
    assert [knob.name for knob in old.knobs()] == ["asleep"]
    new = switches.Switches(Sleeper(vllm=True), switches.VLLM, idle, address="http://r1")
    assert [knob.name for knob in new.knobs()] == ["asleep", "paused"]
    with pytest.raises(RestartError, match="no switch of asleep"):
        switches.Switches(Sleeper(vllm=True), switches.LMDEPLOY, idle, address="http://r1")


@pytest.mark.parametrize("requests", [1, None])
def test_no_switch_is_turned_over_requests(requests: int | None) -> None:
    engine = Sleeper(vllm=True)
    made = switches.Switches(
        engine, switches.VLLM, lambda: Load(ready=True, requests=requests), address="http://r1"
    )
    with pytest.raises(NothingDoneError, match="requests still run"):
        made.begin({"asleep": 1, "paused": 0})
    assert engine.writes == []


# SGLang


def test_every_rank_has_to_take_a_value_or_none_has() -> None:
    engine = Sglang(ranks=3)
    board = sglang(engine)
    assert board.sheet(0.0).applied == 3
    engine.stubborn = 1
    outcome = board.patch(SEATS, 2, if_version=None, ttl_seconds=60.0, change="c", now=1.0)
    assert (outcome.status, engine.values) == (503, [8, 8, 8])
    assert "2 of 3 ranks took 2; taken back" in outcome.detail
    engine.values = [2, 8, 8]
    sheet = board.sheet(2.0)
    assert (sheet.applied, sheet.total, sheet.knobs[0].value) == (1, 3, None)


def test_what_an_older_sglang_says_yes_to_and_does_not_do_is_refused_by_name() -> None:
    engine = Sglang(fault="ignored")
    outcome = sglang(engine).patch(SEATS, 2, if_version=None, ttl_seconds=60.0, change="c", now=1.0)
    assert outcome.status == 501  # nothing was changed, and asking again will not help
    assert outcome.detail.startswith("not changed: the engine answered [true], and max_num_seqs is 8, not 2")


def test_names_of_older_versions() -> None:
    engine = Sglang(name="max_micro_batch_size", info="/get_server_info")
    assert sglang(engine).patch(SEATS, 2, if_version=None, ttl_seconds=9.0, change="c", now=1.0).status == 200
    assert engine.value == 2


def test_several_pipeline_stages_have_no_such_cap() -> None:
    with pytest.raises(StockError, match="caps no admission") as found:
        SglangCap(Sglang(stages=2)).read()
    assert found.value.kind is ReplyKind.MISSING


@pytest.mark.parametrize(("key", "note"), [(None, OPEN), ("s3cret", "")])
def test_an_open_admin_surface_is_named_and_no_key_is_told(key: str | None, note: str) -> None:
    sheet = sglang(Sglang(key=key)).sheet(0.0)
    assert sheet.knobs[0].note == note
    assert "s3cret" not in repr(sheet)


def test_somebody_elses_change_is_another_version() -> None:
    engine = Sglang()
    board = sglang(engine)
    first = board.sheet(0.0).knobs[0].version
    engine.value = 5
    outcome = board.patch(SEATS, 2, if_version=first, ttl_seconds=9.0, change="c", now=1.0)
    assert (outcome.status, engine.writes) == (409, [])


# A llama.cpp router


def router(engine: LlamaRouter, folder: Path, text: str = PRESET) -> RouterModel:
    engine.preset = folder / "models.ini"
    engine.preset.write_text(text)
    return RouterModel(engine, "a", engine.preset, wanted=folder / "w", address="http://r1")


def moved(model: RouterModel, values: Values) -> str:
    model.begin(values)
    try:
        for _ in range(5):
            if model.poll():
                return ""
    except RestartError as error:
        return str(error)
    return "still under way"


def values(model: RouterModel, seats: int) -> Values:
    return {knob.name: seats if knob.name == SEATS else knob.start for knob in model.knobs()}


def test_one_line_of_one_section_is_changed_and_the_file_is_as_it_was_afterwards(tmp_path: Path) -> None:
    engine = LlamaRouter()
    model = router(engine, tmp_path)
    engine.preset.chmod(0o640)
    assert moved(model, values(model, 3)) == ""
    assert engine.preset.read_text() == PRESET.replace("np = 8", "np = 3")
    assert stat.S_IMODE(engine.preset.stat().st_mode) == 0o640
    assert moved(model, values(model, 8)) == ""
    assert engine.preset.read_text() == PRESET


def test_what_somebody_else_wrote_meanwhile_stays(tmp_path: Path) -> None:
    engine = LlamaRouter()
    model = router(engine, tmp_path)
    moved(model, values(model, 3))
    engine.preset.write_text(engine.preset.read_text() + "ctx-size = 512\n")
    assert moved(model, values(model, 8)) == ""
    assert engine.preset.read_text() == PRESET + "ctx-size = 512\n"


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        (LlamaRouter(rereads=False), "it does not read it anew"),
        (LlamaRouter(own_flag=8), "the router's own arguments rule"),
    ],
)
def test_a_preset_that_does_not_count_is_noticed_before_anything_is_loaded(
    engine: LlamaRouter, why: str, tmp_path: Path
) -> None:
    model = router(engine, tmp_path)
    said = moved(model, values(model, 3))
    assert "it would still start with max_num_seqs 8" in said
    assert why in said
    assert "POST /models/load" not in engine.writes
    assert moved(model, values(model, 8)) == ""
    assert (engine.state, engine.preset.read_text()) == ("loaded", PRESET)


def test_a_model_that_ends_by_itself_after_a_yes_is_told_at_once(tmp_path: Path) -> None:
    engine = LlamaRouter(fault="spoilt")
    model = router(engine, tmp_path)
    assert moved(model, values(model, 3)) == "a ended with exit code 1"
    assert moved(model, values(model, 8)) == ""


def test_a_preset_file_that_cannot_be_read_any_more_is_told(tmp_path: Path) -> None:
    engine = LlamaRouter()
    model = router(engine, tmp_path)
    engine.preset.write_text(PRESET + "[[[\n")
    assert "failed to parse server config file" in moved(model, values(model, 3))


def test_what_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    engine = LlamaRouter()
    model = router(engine, tmp_path)
    engine.preset.write_text("[b]\nnp = 4\n")
    with pytest.raises(NothingDoneError, match=r"no section \[a\], or several"):
        model.begin(values(model, 3))
    engine.preset.unlink()
    with pytest.raises(NothingDoneError, match="No such file") as caught:
        model.begin(values(model, 3))
    assert str(caught.value).count(str(engine.preset)) == 1
    assert engine.writes == []


@pytest.mark.parametrize("text", ["", "[A]\n", "[a]\n[a]\n", "[ab]\n"])
def test_a_model_without_a_section_of_its_own_is_no_path(text: str, tmp_path: Path) -> None:
    with pytest.raises(RestartError, match=r"no section \[a\], or several"):
        router(LlamaRouter(), tmp_path, text)


def test_a_server_that_is_no_router_is_no_path(tmp_path: Path) -> None:
    with pytest.raises(RestartError):
        RouterModel(Triton(), "a", tmp_path / "x", wanted=tmp_path / "w", address="http://r1")
    engine = LlamaRouter()
    engine.preset = tmp_path / "x"
    with pytest.raises(RestartError, match="no model 'zz'"):
        RouterModel(engine, "zz", tmp_path / "x", wanted=tmp_path / "w", address="http://r1")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[a]\nnp = 8", "[a]\nnp = 3\n"),
        ("[a]", "[a]\nparallel = 3\n"),
        ("[b]\nnp=1\n\n[ a ]\nnp=2\nparallel=8\n", "[b]\nnp=1\n\n[ a ]\nnp = 3\n"),
        ("[a]\r\nnp = 8\r\nc = 1\r\n", "[a]\r\nnp = 3\nc = 1\r\n"),
        ("[a]\n# np = 1\n;np = 2\n", "[a]\nparallel = 3\n# np = 1\n;np = 2\n"),
    ],
)
def test_lines_of_a_preset_file(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "m.ini"
    path.write_bytes(before.encode())
    assert PresetFile(path, "a").with_values({("--parallel", "-np"): 3}, {}) == after


def test_requests_of_a_router_are_those_of_the_model(tmp_path: Path) -> None:
    engine = LlamaRouter(requests=2, deferred=3)
    assert router(engine, tmp_path).load() == Load(ready=True, requests=5)
    engine.state = "unloaded"
    assert router(engine, tmp_path).load() == Load(ready=False, requests=None)


# Triton


def test_a_triton_in_another_mode_refuses_and_goes_on(tmp_path: Path) -> None:
    engine = Triton(mode="none")
    model = TritonModel(engine, "m", idle, kept=tmp_path / "k", address="http://r1")
    with pytest.raises(NothingDoneError, match="explicit model load / unload is not allowed"):
        model.begin({SEATS: 2, "max_queue_size": 64})
    assert (engine.state, engine.value) == ("READY", 8)


def test_the_first_configuration_outlives_us_and_is_forgotten_once_it_is_back(tmp_path: Path) -> None:
    engine, kept = Triton(), tmp_path / "deep" / "k"
    model = TritonModel(engine, "m", idle, kept=kept, address="http://r1")
    model.begin({SEATS: 2, "max_queue_size": 5})
    while not model.poll():
        pass
    assert (engine.value, engine.queue) == (2, "5")
    again = TritonModel(engine, "m", idle, kept=kept, address="http://r1")
    assert {knob.name: knob.start for knob in again.knobs()} == {SEATS: 8, "max_queue_size": 64}
    assert again.present() == {SEATS: 2, "max_queue_size": 5}
    again.begin({SEATS: 8, "max_queue_size": 64})
    while not again.poll():
        pass
    assert (engine.value, engine.queue, kept.exists()) == (8, "64", False)


@pytest.mark.parametrize("queue", [None, "", "many", "-1", "9" * 30])
def test_a_queue_that_is_no_number_is_no_knob(queue: str | None, tmp_path: Path) -> None:
    model = TritonModel(Triton(queue=queue), "m", idle, kept=tmp_path / "k", address="http://r1")
    assert [knob.name for knob in model.knobs()] == [SEATS]


def test_a_refusal_of_200_has_words() -> None:
    engine = Triton(fault="error_body")
    with pytest.raises(StockError, match="/load answered 200, and failed to poll from model repository"):
        ask(engine, "POST", "/v2/repository/models/m/load", {})


# Dynamo

BLOCKS, TOKENS, SHARE = (
    "active_decode_blocks_threshold",
    "active_prefill_tokens_threshold",
    "active_prefill_tokens_threshold_frac",
)


def test_thresholds_that_are_set_are_knobs_in_whole_percents_and_tokens() -> None:
    engine = DynamoFrontend(value=85, tokens=4096, fraction=1.5)
    api = BusyThreshold(engine, "tiny")
    standing = api.read()
    assert {knob.name: (knob.value, knob.unit, knob.start) for knob in standing.knobs} == {
        BLOCKS: (85, "percent", None),
        TOKENS: (4096, "tokens", None),
        SHARE: (150, "percent", None),
    }
    assert standing.version == "1.6.1"
    for knob, value in ((BLOCKS, 7), (TOKENS, 100), (SHARE, 29)):
        assert api.write(knob, value) == f"200 with {value}"
    assert (engine.value, engine.tokens, engine.fraction) == (7, 100, 0.29)


@pytest.mark.parametrize("raw", [0.855, 1.5, -0.1, "0.2", True, 1e300, 10**400, math.nan, math.inf])
def test_a_threshold_that_could_not_be_set_again_as_it_is_is_no_knob(raw: object) -> None:
    assert [knob.name for knob in BusyThreshold(DynamoFrontend(raw=raw, tokens=9), "tiny").read().knobs] == [
        TOKENS
    ]


def test_no_threshold_is_brought_in_since_none_can_be_cleared() -> None:
    with pytest.raises(StockError, match="start the frontend with one") as found:
        BusyThreshold(DynamoFrontend(raw=0.855), "tiny").read()
    assert found.value.kind is ReplyKind.MISSING
    with pytest.raises(StockError, match="tells of no model 'gone'") as found:
        BusyThreshold(DynamoFrontend(), "gone").read()
    assert found.value.kind is ReplyKind.MISSING


@pytest.mark.parametrize("document", [None, [], {}, {"thresholds": 5}, {"thresholds": [None, 3, {}]}])
def test_a_frontend_of_another_shape_offers_nothing(document: object) -> None:
    class Odd(DynamoFrontend):
        def read(self, method: str, path: str) -> KnobAnswer:
            return told(document)

    with pytest.raises(StockError, match="tells of no model"):
        BusyThreshold(Odd(), "tiny").read()


@pytest.mark.parametrize("many", [2, 3, 4])
def test_several_frontends_at_one_address_are_told_apart_and_left_as_they_were(many: int) -> None:
    frontends = [DynamoFrontend(value=80) for _ in range(many)]
    turns = itertools.cycle(frontends)

    class Balanced(StockEngine):
        def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
            return next(turns).request(method, path, body)

    board = LiveBoard(BusyThreshold(Balanced(), "tiny"), writer="dynamo_busy", engine_name="dynamo")
    outcome = board.patch(BLOCKS, 20, if_version=None, ttl_seconds=60.0, change="c", now=1.0)
    assert outcome.status == 422
    assert "several frontends answer here" in outcome.detail
    assert "not changed: still 80" in outcome.detail
    assert {frontend.value for frontend in frontends} == {80}


@pytest.mark.parametrize(
    ("mode", "floors"),
    [
        ("agg", {"min_endpoint": (8, 0, 16)}),
        ("decode", {"decode_min_endpoint": (8, 1, 16)}),
        ("prefill", {"prefill_min_endpoint": (1, 1, 16)}),
        ("disagg", {"prefill_min_endpoint": (1, 1, 16), "decode_min_endpoint": (8, 1, 16)}),
    ],
)
def test_floors_of_a_planner_follow_its_mode(mode: str, floors: dict[str, tuple[int, int, int]]) -> None:
    knobs = PlannerFloors(DynamoPlanner(mode=mode)).read().knobs
    assert {knob.name: (knob.value, knob.min, knob.max) for knob in knobs} == {
        **floors,
        "min_gpu_budget": (-1, -1, 4096),
        "max_gpu_budget": (16, -1, 4096),
    }


def test_a_floor_beyond_the_budget_is_refused_by_the_planner_by_name() -> None:
    engine = DynamoPlanner()
    board = LiveBoard(PlannerFloors(engine), writer="dynamo_planner", engine_name="dynamo")
    outcome = board.patch("decode_min_endpoint", 16, if_version=None, ttl_seconds=60.0, change="c", now=1.0)
    assert (outcome.status, engine.value) == (422, 8)
    assert "requires 17 GPUs, exceeding max_gpu_budget" in outcome.detail
    assert "still 8" in outcome.detail


def test_numbers_of_any_size_bound_nothing() -> None:
    standing = PlannerFloors(DynamoPlanner(budget=10**400)).read()
    assert [(knob.name, knob.max) for knob in standing.knobs] == [
        ("prefill_min_endpoint", 4096),
        ("decode_min_endpoint", 4096),
        ("min_gpu_budget", 4096),
    ]
    tokens = BusyThreshold(DynamoFrontend(tokens=10**400), "tiny").read()
    assert [knob.name for knob in tokens.knobs] == [BLOCKS]


@pytest.mark.parametrize("document", [None, [], {}, {"mode": 5, "min_endpoint": 1}, {"mode": "agg"}])
def test_what_is_no_planner_offers_no_floors(document: object) -> None:
    class Odd(DynamoPlanner):
        def read(self, method: str, path: str) -> KnobAnswer:
            return told(document)

    with pytest.raises(StockError, match="tells no floors"):
        PlannerFloors(Odd()).read()


def test_taints_of_others_stay_and_those_of_dynamo_are_not_sent() -> None:
    engine = DynamoWorker()
    engine.publish = lambda: None  # type: ignore[method-assign]

    def taints(worker: str) -> frozenset[str]:
        assert worker == "c9228e1eddc82c4"
        return frozenset({*engine.others, *(["t"] if engine.value else [])})

    api = WorkerTaint(engine, taints, "t")
    assert api.read().instance == "c9228e1eddc82c4"
    assert api.write("tainted", 1) == "200 with ['t', 'theirs']"
    assert (engine.value, set(engine.others)) == (1, {"dynamo.topology/zone=a", "theirs"})
    assert api.write("tainted", 0) == "200 with ['theirs']"
    assert (engine.value, set(engine.others)) == (0, {"dynamo.topology/zone=a", "theirs"})


def test_a_worker_that_the_discovery_does_not_know_is_not_tainted() -> None:
    engine = DynamoWorker()
    api = WorkerTaint(engine, lambda _: None, "t")
    for ask_it in (api.read, lambda: api.write("tainted", 1)):
        with pytest.raises(StockError, match="no card of worker c9228e1eddc82c4") as found:
            ask_it()
        assert found.value.kind is ReplyKind.MISSING
    assert engine.writes == []


@pytest.mark.parametrize(
    "page", [b"", b"vllm:x 1\n", b'dynamo_component_x{worker_id="../../x"} 1\n', b'other{worker_id="5"} 1\n']
)
def test_a_page_that_names_no_worker_is_of_none(page: bytes) -> None:
    class Odd(DynamoWorker):
        def read(self, method: str, path: str) -> KnobAnswer:
            return KnobAnswer(200, page)

    with pytest.raises(StockError, match="names no worker of Dynamo"):
        WorkerTaint(Odd(), lambda _: frozenset(), "t").read()
