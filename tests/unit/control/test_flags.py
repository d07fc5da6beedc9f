"""Flags of engines: which one sets a knob, and command lines with other values."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.model import EngineKind
from tuners.control.flags import FLAGS, MASK, FlagError, can_set, edited, engine_of, masked, value_of

BUDGET, SEATS, DRAFTS = "max_num_batched_tokens", "max_num_seqs", "num_speculative_tokens"
VLLM, LLAMA = EngineKind.VLLM, EngineKind.LLAMACPP


@pytest.mark.parametrize(
    ("before", "knob", "value", "after"),
    [
        ("vllm serve m --max-num-seqs 64 --port 1", SEATS, 32, "vllm serve m --max-num-seqs 32 --port 1"),
        ("vllm serve m --max-num-seqs=64 --port 1", SEATS, 32, "vllm serve m --max-num-seqs=32 --port 1"),
        ("vllm serve m --max_num_seqs 64", SEATS, 32, "vllm serve m --max_num_seqs 32"),
        ("vllm serve m", SEATS, 32, "vllm serve m --max-num-seqs 32"),
        # the last one counts; one is left, where the first one was
        ("vllm serve m --max-num-seqs 1 -q --max_num_seqs=2", SEATS, 32, "vllm serve m --max-num-seqs 32 -q"),
        ("vllm serve m --max-num-seqs 64 -q", SEATS, None, "vllm serve m -q"),
        ("vllm serve m --max-num-seqs=64 -q", SEATS, None, "vllm serve m -q"),
        ("vllm --max-num-seqs 32 --max-num-seqs=32", SEATS, 32, "vllm --max-num-seqs 32 --max-num-seqs=32"),
    ],
)  # fmt: skip
def test_vllm(before: str, knob: str, value: int | None, after: str) -> None:
    assert edited(before.split(), VLLM, {knob: value}) == tuple(after.split())


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("llama-server -ub 256", 128, "llama-server -ub 128"),
        ("llama-server", 2048, "llama-server --ubatch-size 2048"),
        ("llama-server", 4096, "llama-server --ubatch-size 4096 --batch-size 4096"),
        ("llama-server -b 512 -ub 256", 1024, "llama-server -b 1024 -ub 1024"),
        ("llama-server -b 4096 -ub 256", 1024, "llama-server -b 4096 -ub 1024"),
    ],
)
def test_a_physical_batch_is_no_larger_than_the_logical_one(before: str, value: int, after: str) -> None:
    assert edited(before.split(), LLAMA, {BUDGET: value}) == tuple(after.split())


def test_a_key_of_a_json_value() -> None:
    argv = ("vllm", "serve", "m", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}')
    assert value_of(argv, FLAGS[VLLM][DRAFTS]) == 4
    *head, config = edited(argv, VLLM, {DRAFTS: 2})
    assert head == list(argv[:-1])
    assert json.loads(config) == {"method": "ngram", "num_speculative_tokens": 2}
    for without in (
        ("vllm", "serve"),
        ("vllm", "--speculative-config", "[1]"),
        ("vllm", "--speculative-config"),
    ):
        assert not can_set(without, FLAGS[VLLM][DRAFTS])
        with pytest.raises(FlagError):
            edited(without, VLLM, {DRAFTS: 2})


def test_no_drafts_is_a_command_without_the_flag() -> None:
    argv = ("vllm", "serve", "m", "--speculative-config", '{"num_speculative_tokens": 4}', "--port", "1")
    without = edited(argv, VLLM, {DRAFTS: 0})
    assert without == ("vllm", "serve", "m", "--port", "1")
    assert value_of(without, FLAGS[VLLM][DRAFTS]) == 0
    assert edited(without, VLLM, {SEATS: 8}) == (*without, "--max-num-seqs", "8")
    # what was never there is no knob: how to draft is not known
    assert not can_set(without, FLAGS[VLLM][DRAFTS])


def test_a_knob_without_a_flag_is_refused() -> None:
    with pytest.raises(FlagError, match="no flag of vllm sets thinking_token_budget"):
        edited(("vllm", "serve"), VLLM, {"thinking_token_budget": 5})


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        ("vllm serve m", VLLM),
        ("/opt/venv/bin/vllm serve m", VLLM),
        ("python3 -m vllm.entrypoints.openai.api_server --model m", VLLM),
        ("/venv/bin/python /venv/bin/vllm serve m", VLLM),
        ("python -m sglang.launch_server --model m", EngineKind.SGLANG),
        ("./llama-server -m m.gguf", LLAMA),
        ("bash -c vllm", None),
        ("python serve.py", None),
        ("", None),
    ],
)
def test_the_engine_of_a_command(command: str, engine: EngineKind | None) -> None:
    assert engine_of(command.split()) is engine


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("vllm serve --api-key sk-1 --port 1", f"vllm serve --api-key {MASK} --port 1"),
        ("vllm serve --api-key=sk-1", f"vllm serve --api-key={MASK}"),
        ("vllm serve --api-key a b --port 1", f"vllm serve --api-key {MASK} {MASK} --port 1"),
        ("x --hf_token t --max-num-batched-tokens 5", f"x --hf_token {MASK} --max-num-batched-tokens 5"),
    ],
)
def test_secrets_are_not_shown(command: str, shown: str) -> None:
    assert " ".join(masked(command.split())) == shown


WORDS = st.lists(
    st.sampled_from(["serve", "m", "-q", "--port", "8000", "--max-num-seqs", "--max_num_seqs=7", "9", "x=y"]),
    max_size=12,
)


@settings(max_examples=50, deadline=None)
@given(WORDS, st.integers(1, 999))
def test_whatever_stands_there_the_new_value_is_the_one_that_counts(words: list[str], value: int) -> None:
    made = edited(("vllm", *words), VLLM, {SEATS: value})
    assert value_of(made, FLAGS[VLLM][SEATS]) == value
    assert edited(made, VLLM, {SEATS: value}) == made


@pytest.mark.parametrize("kind", FLAGS)
def test_each_engine_s_table_can_be_written_and_read_back(kind: EngineKind) -> None:
    for knob, flag in FLAGS[kind].items():
        if flag.key or not flag.added:
            continue
        made = edited(("engine",), kind, {knob: 33})
        assert made[1] == flag.names[0]
        assert value_of(made, flag) == 33


def test_a_flag_that_older_versions_do_not_know_is_changed_where_it_stands_and_never_added() -> None:
    flag = FLAGS[VLLM]["max_num_active_seqs"]
    with_it = ("vllm", "serve", "m", "--max-num-active-seqs=16")
    assert can_set(with_it, flag)
    assert edited(with_it, VLLM, {"max_num_active_seqs": 8}) == (*with_it[:-1], "--max-num-active-seqs=8")
    assert not can_set(("vllm", "serve", "m"), flag)
    with pytest.raises(FlagError):
        edited(("vllm", "serve", "m"), VLLM, {"max_num_active_seqs": 8})
