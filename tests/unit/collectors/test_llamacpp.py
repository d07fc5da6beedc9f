"""llama.cpp: what its pages mean, the live token count, and what must never be asked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.engines.base import Look
from collectors.engines.llamacpp import LlamaReader, may_read_metrics
from collectors.engines.llamacpp_tokens import PERSISTENT_LOOKS, LiveTokens, Slot, slots_of
from enginetop.fleet.model import EngineKind, Quality
from enginetop.fleet.reading import Reading
from tests.support.engine_pages import fixture, measures, page_of, total

OLD, NEW = "llamacpp/b10434/llama_cpp-b10434", "llamacpp/b11549/llama_cpp-b11549"
PROPS = json.loads(fixture(f"{OLD}-idle.props.json"))


def look_at(capture: str, **sides: object) -> Look:
    """The page of a capture with its slots, if it has some, and the server's properties."""
    bodies: dict[str, object] = {"/props": PROPS, **sides}
    with suppress(FileNotFoundError):
        bodies["/slots"] = json.loads(fixture(f"{capture}.slots.json"))
    page = page_of(fixture(f"{capture}.prom"))
    return Look(at=100.0, page=page, sides=bodies, fresh_sides=frozenset(bodies))


def read(look: Look, reader: LlamaReader | None = None) -> Reading:
    reading = (reader or LlamaReader()).read(look)
    assert isinstance(reading, Reading)
    return reading


def test_a_busy_server() -> None:
    reading = read(look_at(f"{OLD}-busy1"))
    assert total(reading, "requests_running") == 4
    assert total(reading, "requests_waiting") == 5
    assert total(reading, "prompt_tokens_processed") == 422 + 4  # processed and cached
    assert total(reading, "prefix_queries") == 426
    assert total(reading, "prefix_hits") == 4
    assert total(reading, "generation_tokens") == 240 + 119 + 119  # finished, and so far in two slots
    assert total(reading, "kv_usage_ratio") == pytest.approx((217 + 228 + 98 + 98) / (4 * 1024))
    assert total(reading, "kv_capacity_tokens") == 4096
    assert reading.live_progress


@pytest.mark.parametrize(
    ("capture", "running", "waiting", "prompt", "hits", "tokens"),
    [
        (f"{OLD}-idle", 0, 0, 0, 0, 0),
        (f"{OLD}-busy2", 4, 8, 836 + 8, 8, 480 + 8 + 8 + 9 + 9),
        (f"{OLD}-after", 0, 0, 2537 + 46, 46, 2880),
        (f"{OLD}-kvpressure", 2, 0, 619, 0, 101 + 2 * 99),
        (f"{OLD}-sleeping", 0, 0, 0, 0, 0),
        (f"{NEW}-idle", 0, 0, 0, 0, 0),
    ],
)
def test_each_capture(capture: str, running: int, waiting: int, prompt: int, hits: int, tokens: int) -> None:
    reading = read(look_at(capture))
    assert total(reading, "requests_running") == running
    assert total(reading, "requests_waiting") == waiting
    assert total(reading, "prompt_tokens_processed") == prompt
    assert total(reading, "prefix_hits") == hits
    assert total(reading, "generation_tokens") == tokens


def test_unified_kv_of_512_tokens_reads_too_low_and_says_so() -> None:
    """Two requests hold 199 + 203 tokens; each of four slots claims the whole cache as its own."""
    reading = read(look_at(f"{OLD}-kvpressure"))
    assert total(reading, "kv_usage_ratio") == pytest.approx((199 + 203) / (4 * 512))
    assert "too low with --kv-unified" in reading.columns.estimated["kv_usage_ratio"]


def test_estimates_say_why() -> None:
    reading = read(look_at(f"{OLD}-busy1"))
    assert set(reading.columns.estimated) == {"kv_usage_ratio", "kv_capacity_tokens"}
    assert "--kv-unified" in reading.columns.estimated["kv_usage_ratio"]


def test_the_newer_build_reads_alike() -> None:
    reading = read(look_at(f"{NEW}-busy"))
    assert total(reading, "generation_tokens") == 50 + 50 + 50 + 51
    assert total(reading, "requests_waiting") == 4
    assert total(read(look_at(f"{NEW}-after")), "generation_tokens") == 1600


def test_speculation_counts_when_a_request_ends() -> None:
    busy, after = read(look_at(f"{OLD}-spec-busy")), read(look_at(f"{OLD}-spec-after"))
    assert busy.columns.absent["spec_accepted_at_position"].quality is Quality.UNKNOWN
    assert total(busy, "generation_tokens") == 17 + 17 + 19  # the counter still says 0
    assert total(after, "spec_drafts") == 69
    assert total(after, "spec_draft_tokens") == 275
    assert total(after, "spec_accepted_tokens") == 65
    positions = [total(after, "spec_accepted_at_position", position=p) for p in range(4)]
    assert positions == [18, 16, 16, 15]


def test_what_llama_cpp_does_not_count_is_unsupported_with_a_reason() -> None:
    absent = read(look_at(f"{OLD}-busy1")).columns.absent
    for measure in ("requests_finished", "requests_aborted", "preemptions", "ttft_seconds", "queue_seconds"):
        assert absent[measure].quality is Quality.UNSUPPORTED
        assert "llama.cpp" in absent[measure].note


def test_without_slots_there_is_no_kv_and_tokens_are_an_estimate() -> None:
    page = page_of(fixture(f"{OLD}-busy1.prom"))
    reading = read(Look(at=1.0, page=page))
    assert total(reading, "generation_tokens") == 240
    assert "generation_tokens" in reading.columns.estimated
    assert "kv_usage_ratio" not in measures(reading)
    assert reading.columns.absent["kv_usage_ratio"].note
    assert reading.live_progress  # n_decode_total moves while requests run


def test_slots_coming_and_going_are_one_series_of_tokens() -> None:
    reader = LlamaReader()
    with_slots = look_at(f"{OLD}-busy1")
    without = Look(at=101.0, page=with_slots.page)
    readings = [read(look, reader) for look in (without, with_slots, without)]
    assert [total(r, "generation_tokens") for r in readings] == [240, 478, 478]
    keys = {s.key for r in readings for s in r.columns.series if s.measure == "generation_tokens"}
    assert len(keys) == 1


def test_slots_older_than_the_page_are_not_added_to_its_counter() -> None:
    # Their requests may have ended in between, and would count twice.
    reader = LlamaReader()
    read(look_at(f"{OLD}-idle"), reader)
    stale = look_at(f"{OLD}-busy1")
    reading = read(Look(at=101.0, page=stale.page, sides=stale.sides, fresh_sides=frozenset()), reader)
    assert total(reading, "generation_tokens") == 240


def test_slots_read_after_a_page_of_an_idle_server_count_once() -> None:
    reader = LlamaReader()
    page = look_at(f"{OLD}-idle").page
    counts = []
    for decoded in (0, 5, 8, 8):
        slots = [
            {
                "id": 0,
                "id_task": 1,
                "n_ctx": 64,
                "is_processing": True,
                "next_token": [{"n_decoded": decoded}],
            }
        ]
        look = Look(at=1.0, page=page, sides={"/slots": slots}, fresh_sides=frozenset({"/slots"}))
        counts.append(total(read(look, reader), "generation_tokens"))
    assert counts == [0, 5, 8, 8]


def test_tokens_of_a_whole_run() -> None:
    reader = LlamaReader()
    captures = [f"{OLD}-{name}" for name in ("idle", "busy1", "busy2", "busy3", "after")]
    shown = [total(read(look_at(capture), reader), "generation_tokens") for capture in captures]
    # Finished, and so far in the slots: 240+119+119, 480+8+8+9+9, 480+60+60+61+61.
    assert shown == [0, 478, 514, 722, 2880]


def test_progress_is_seen_while_no_request_ends() -> None:
    reader = LlamaReader()
    tokens = [read(look_at(f"{OLD}-{name}"), reader).progress_token for name in ("busy2", "busy3", "busy3")]
    assert tokens[0] != tokens[1]
    assert tokens[1] == tokens[2]


def test_identity_config_and_restart_token() -> None:
    look = look_at(f"{OLD}-busy1")
    headers = {"process-start-time-unix": "1016147044"}
    reading = read(Look(at=1.0, page=look.page, headers=headers, sides=look.sides))
    assert reading.start_token == 1016147044
    assert (reading.identity.engine, reading.identity.model) == (EngineKind.LLAMACPP, "mid.gguf")
    assert reading.identity.engine_version == "b1-7e4c0a9"
    assert reading.identity.sources == {
        "engine_version": "/props build_info",
        "model": "/props model_alias",
    }
    assert reading.config["max_num_seqs"].value == 4
    assert reading.config["max_model_len"].value == 1024
    assert reading.flags.sleeping is False


@pytest.mark.parametrize("header", ["", "soon", "nan", "inf"])
def test_a_start_header_that_is_no_number_is_no_token(header: str) -> None:
    look = look_at(f"{OLD}-idle")
    reading = read(Look(at=1.0, page=look.page, headers={"process-start-time-unix": header}))
    assert reading.start_token is None


def test_a_restart_begins_a_new_count() -> None:
    reader = LlamaReader()
    before, after = look_at(f"{OLD}-after"), look_at(f"{OLD}-busy1")
    header = "process-start-time-unix"
    read(Look(at=1.0, page=before.page, headers={header: "1"}), reader)
    again = read(Look(at=2.0, page=after.page, headers={header: "2"}), reader)
    assert total(again, "generation_tokens") == 240


# Pages that must not be asked


@pytest.mark.parametrize(
    ("props", "allowed"),
    [
        (None, True),
        ({}, True),
        ({"is_sleeping": False}, True),
        ({"is_sleeping": True}, False),
        ({"role": "router"}, False),
        ({"role": "router", "is_sleeping": False}, False),
        ([], True),
    ],
)
def test_a_sleeping_server_and_a_router_are_left_alone(props: object, allowed: bool) -> None:
    assert may_read_metrics({"/props": props}) is allowed


def test_a_sleeping_server_seen_first() -> None:
    reading = read(Look(at=1.0, page=None, sides={"/props": {**PROPS, "is_sleeping": True}}))
    assert reading.flags.sleeping is True
    assert reading.identity.model == "mid.gguf"
    assert len(reading.values) == 0
    assert reading.columns.absent["requests_running"].quality is Quality.UNKNOWN


def test_falling_asleep_leaves_no_numbers_and_is_no_restart() -> None:
    reader = LlamaReader()
    awake = look_at(f"{OLD}-busy1")
    header = {"process-start-time-unix": "5"}
    first = read(Look(at=1.0, page=awake.page, headers=header, sides=awake.sides), reader)
    asleep = read(Look(at=2.0, page=None, sides={"/props": {"is_sleeping": True}}), reader)
    assert asleep.columns is first.columns
    assert all(map(math.isnan, asleep.values))
    assert (asleep.start_token, asleep.flags.sleeping) == (5, True)


# Slots and the live count


@pytest.mark.parametrize("body", [None, {}, "x", 3, [], [None], [{}], [{"id": "a", "next_token": 4}], [[1]]])
def test_slots_of_any_shape_are_no_fault(body: object) -> None:
    assert all(slot.decoded == 0 for slot in slots_of(body))
    look = look_at(f"{OLD}-idle")
    read(Look(at=1.0, page=look.page, sides={"/slots": body}, fresh_sides=frozenset({"/slots"})))


def test_slots_of_older_builds_hold_an_object() -> None:
    body = [{"id": 3, "id_task": 9, "is_processing": True, "next_token": {"n_decoded": 12}}]
    assert slots_of(body) == (Slot(3, 9, 12, True),)


def test_a_task_that_ended_between_looks_is_not_lost() -> None:
    live = LiveTokens()
    assert live.update(0, [Slot(0, 1, 10, True)], None) == 10
    # Released after the page was read: neither the counter nor the slots have it.
    assert live.update(0, [Slot(0, 1, 0, False)], None) == 10
    assert live.update(12, [Slot(0, 2, 3, True)], None) == 15


def test_tokens_of_aborted_requests_stay_counted() -> None:
    live = LiveTokens()
    live.update(0, [Slot(0, 1, 100, True)], None)
    assert live.update(0, [Slot(0, 1, 0, False)], None) == 100  # aborted: the counter never gets them
    assert live.update(0, [Slot(0, 2, 4, True)], None) == 104
    assert live.update(0, [Slot(0, 2, 9, True)], None) == 109


def test_what_was_aborted_on_a_server_that_never_rests_is_understood_in_time() -> None:
    live = LiveTokens()
    live.update(0, [Slot(0, 1, 100, True)], None)
    counts = {live.update(0, [Slot(0, 1, 0, False)], None) for _ in range(PERSISTENT_LOOKS)}
    assert counts == {100}
    # Requests too short for any look to see them move the count again.
    assert live.update(7, [Slot(0, 2, 0, False)], None) == 107


def test_a_server_at_rest_owes_nothing_but_aborted_tokens() -> None:
    live = LiveTokens()
    live.update(0, [Slot(0, 1, 100, True)], None)
    assert live.update(0, None, None, at_rest=True) == 100
    assert live.update(7, None, None, at_rest=True) == 107


def test_slots_of_an_idle_server_are_read_once() -> None:
    reader = LlamaReader()
    busy, idle = look_at(f"{OLD}-busy1"), look_at(f"{OLD}-after")
    assert busy.page is not None
    assert idle.page is not None
    assert reader.wants_side("/slots", idle.page)  # first sight
    read(idle, reader)
    assert not reader.wants_side("/slots", idle.page)
    assert reader.wants_side("/props", idle.page)
    assert reader.wants_side("/slots", busy.page)
    read(busy, reader)
    assert reader.wants_side("/slots", busy.page)
    assert reader.wants_side("/slots", idle.page)  # what ended in between has left its prompt there


_STEPS = st.tuples(st.sampled_from(["start", "decode", "end", "look"]), st.integers(0, 2), st.integers(1, 9))
_STEPS_WITH_ABORTS = st.one_of(_STEPS, st.tuples(st.just("abort"), st.integers(0, 2), st.just(0)))


class Server:
    """A server with three slots that knows the truth."""

    def __init__(self) -> None:
        self.truth = self.finished = self.task = 0
        self.slots = {i: Slot(i, None, 0, False) for i in range(3)}

    @property
    def at_rest(self) -> bool:
        return not any(slot.processing for slot in self.slots.values())

    def do(self, what: str, slot: int, tokens: int) -> None:
        task, decoded, busy = self.slots[slot].task, self.slots[slot].decoded, self.slots[slot].processing
        if what == "start" and not busy:
            self.task += 1
            self.slots[slot] = Slot(slot, self.task, 0, True)
        elif what == "decode" and busy:
            self.truth += tokens
            self.slots[slot] = Slot(slot, task, decoded + tokens, True)
        elif what in ("end", "abort") and busy:
            self.finished += decoded if what == "end" else 0
            self.slots[slot] = Slot(slot, task, 0, False)


def looks(steps: list[tuple[str, int, int]]) -> Iterator[tuple[float, int, int]]:
    """(count shown, finish counter, truth) at each look; the counter is read some steps before the slots."""
    server, live = Server(), LiveTokens()
    page: tuple[int, bool] | None = None
    for what, slot, tokens in steps:
        if what != "look":
            server.do(what, slot, tokens)
        elif page is None:
            page = server.finished, server.at_rest
        else:
            shown = live.update(page[0], list(server.slots.values()), None, at_rest=page[1])
            yield shown, server.finished, server.truth
            page = None
    for slot in server.slots:
        server.do("end", slot, 0)
    shown = live.update(server.finished, list(server.slots.values()), None, at_rest=True)
    yield shown, server.finished, server.truth


@settings(max_examples=60, deadline=None)
@given(st.lists(_STEPS, max_size=60))
def test_the_live_count_is_a_rising_lower_bound_and_exact_at_rest(steps: list[tuple[str, int, int]]) -> None:
    seen = list(looks(steps))
    assert all(shown <= truth for shown, _, truth in seen)
    assert all(one[0] <= other[0] for one, other in pairwise(seen))
    assert seen[-1][0] == seen[-1][2]


@settings(max_examples=60, deadline=None)
@given(st.lists(_STEPS_WITH_ABORTS, max_size=60))
def test_aborted_requests_leave_it_a_lower_bound(steps: list[tuple[str, int, int]]) -> None:
    seen = list(looks(steps))
    assert all(shown <= truth for shown, _, truth in seen)
    assert all(one[0] <= other[0] for one, other in pairwise(seen))
    assert seen[-1][1] <= seen[-1][0]


def test_a_counter_that_a_proxy_dates_brings_its_birth_also_asleep() -> None:
    """A page may hold `_created`; without births of the same number no step of the history can be taken."""
    reader = LlamaReader()
    page = page_of(
        b"llamacpp:prompt_tokens_total 7\nllamacpp:prompt_tokens_created 1500\n"
        b"llamacpp:requests_processing 0\nllamacpp:requests_deferred 0\n"
    )
    awake = read(Look(at=100.0, page=page, sides={"/props": PROPS}), reader)
    assert list(awake.births) == [1500]
    asleep = read(Look(at=102.0, page=None, sides={"/props": {**PROPS, "is_sleeping": True}}), reader)
    assert asleep.flags.sleeping
    for reading in (awake, asleep):
        assert len(reading.births) == len(reading.columns.birth_groups) == 1
