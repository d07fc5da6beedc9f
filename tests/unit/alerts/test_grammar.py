"""User rules: what is read, what it means, and how a mistake is named."""

from __future__ import annotations

import pytest

from enginetop.alerts.evaluate import holds
from enginetop.alerts.grammar import NAMES, parse_expression
from enginetop.fleet.beyond_catalogue import BEYOND, Form
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import Quality
from enginetop.fleet.signals import DISTRIBUTIONS, SCALARS
from enginetop.fleet.snapshot import SignalValue
from tests.tui.snapshots import censored, distribution, no_distribution, scalar, signals


def truth(text: str, **given: float | SignalValue | None) -> bool | None:
    return holds(parse_expression(text), signals(**given))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kv_usage_ratio > 0.95", True),
        ("kv_usage_ratio > 0.96", False),
        ("kv_usage_ratio >= 0.96", True),
        ("kv_usage_ratio < 0.96", False),
        ("kv_usage_ratio <= 0.96", True),
        ("kv_usage_ratio == 0.96", True),
        ("kv_usage_ratio != 0.96", False),
        ("kv_usage_ratio>0.95", True),
        ("  kv_usage_ratio\n>\t9.5e-1 ", True),
        ("requests_waiting > -1", True),
        ("kv_usage_ratio > 0.95 and requests_waiting > 4", True),
        ("kv_usage_ratio > 0.95 and requests_waiting > 5", False),
        ("kv_usage_ratio > 0.99 or requests_waiting > 4", True),
        # `and` binds tighter: true or (false and false)
        ("requests_waiting > 4 or kv_usage_ratio > 0.99 and requests_running > 9", True),
        ("requests_running > 9 and kv_usage_ratio > 0.99 or requests_waiting > 4", True),
        ("requests_waiting > 4 AND kv_usage_ratio > 0.95", True),
        ("ttft_seconds.p95 > 0.3", True),
        ("ttft_seconds.p50 > 0.3", False),
        ("ttft_seconds.mean < 0.2", True),
        ("ttft_seconds.count >= 100", True),
    ],
)
def test_what_an_expression_means(text: str, expected: bool) -> None:
    found = truth(
        text,
        kv_usage_ratio=0.96,
        requests_waiting=5,
        requests_running=1,
        ttft_seconds=distribution(0.12, 0.31),
    )
    assert found is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kv_usage_ratio > 0.5", None),
        ("kv_usage_ratio < 0.5", None),
        ("kv_usage_ratio != 0.5", None),
        # known parts decide where they can: false and ?, true or ?
        ("kv_usage_ratio > 0.5 and requests_waiting > 99", False),
        ("requests_waiting > 99 and kv_usage_ratio > 0.5", False),
        ("kv_usage_ratio > 0.5 or requests_waiting > 1", True),
        ("kv_usage_ratio > 0.5 and requests_waiting > 1", None),
        ("kv_usage_ratio > 0.5 or requests_waiting > 99", None),
        ("ttft_seconds.p95 > 1", None),
        ("ttft_seconds.count < 1", None),
    ],
)
def test_null_is_neither_above_nor_below(text: str, expected: bool | None) -> None:
    found = truth(text, kv_usage_ratio=None, requests_waiting=5, ttft_seconds=no_distribution())
    assert found is expected


@pytest.mark.parametrize("quality", [Quality.STALE, Quality.SUSPECT, Quality.INVALID, Quality.UNSUPPORTED])
def test_values_that_are_not_believed_count_as_null(quality: Quality) -> None:
    old = scalar(0.99, quality)
    assert truth("kv_usage_ratio > 0.5", kv_usage_ratio=old) is None
    doubted = distribution(1, 9, quality=quality)
    assert truth("ttft_seconds.p95 > 0.5", ttft_seconds=doubted) is None


def test_estimates_count() -> None:
    assert truth("kv_usage_ratio > 0.5", kv_usage_ratio=scalar(0.9, Quality.ESTIMATED)) is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # the true value is somewhere above 2.5
        ("ttft_seconds.p95 > 2", True),
        ("ttft_seconds.p95 > 2.5", True),
        ("ttft_seconds.p95 >= 2.5", True),
        ("ttft_seconds.p95 > 3", None),
        ("ttft_seconds.p95 < 2.5", False),
        ("ttft_seconds.p95 <= 2.5", False),
        ("ttft_seconds.p95 < 3", None),
        ("ttft_seconds.p95 == 2.5", False),
        ("ttft_seconds.p95 == 3", None),
        ("ttft_seconds.p95 != 2.5", True),
    ],
)
def test_a_quantile_past_the_last_bucket(text: str, expected: bool | None) -> None:
    assert truth(text, ttft_seconds=distribution(0.1, censored(2.5))) is expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("kv_usage_ratio", "'kv_usage_ratio' is no comparison"),
        ("kv_usage_ratio >", "no comparison"),
        ("kv_usage_ratio > 0.9 and", "nothing follows the last 'and'"),
        ("kv_usage_ratio > 0.9 0.8 > 1", "'0.8' where `and` or `or` should stand"),
        ("kv_usage > 0.9", "unknown signal 'kv_usage'; did you mean 'kv_usage_ratio'?"),
        ("kv_usage_ratio => 0.9", "'=' is no operator; use one of >= <= == != > <"),
        ("kv_usage_ratio > much", "'much' is no number"),
        ("kv_usage_ratio > nan", "'nan' is no number"),
        ("kv_usage_ratio > 1e999", "'1e999' is no number"),
        ("kv_usage_ratio > 1_000", "'1_000' is no number"),
        ("(kv_usage_ratio > 1)", "unknown signal '(kv_usage_ratio'"),
        ("__import__('os').system('x') > 1", "unknown signal"),
        ("ttft_seconds > 1", "ttft_seconds is a distribution; name one of ttft_seconds.p50"),
        ("ttft_seconds.p97 > 1", "'p97' is no part of ttft_seconds"),
        ("kv_transfer_seconds > 1", "kv_transfer_seconds is a distribution"),
        ("model_ready < 1", "did you mean 'models_ready'?"),
        ("kv_usage_ratio.p95 > 1", "unknown signal 'kv_usage_ratio.p95'; did you mean 'kv_usage_ratio'?"),
        ("spec_acceptance_per_position > 1", "is a list"),
        ("x" * 2000 + " > 1", "longer than 1000 characters"),
        ("\x1b[2Jkv > 1", "unknown signal '?[2Jkv'"),
        # names that people know from the engines, which mean something else or are not whole
        ("num_requests_waiting > 5", "did you mean 'requests_waiting'?"),
        ("vllm:num_preemptions_total > 5", "did you mean 'preemptions_per_second'?"),
        ("vllm:time_to_first_token_seconds > 2", "did you mean 'ttft_seconds.p95'?"),
    ],
)
def test_mistakes_are_named_in_one_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_expression(text)
    assert words in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("name", "signal"),
    [
        ("vllm:num_requests_waiting", "requests_waiting"),
        ("vllm_num_requests_waiting", "requests_waiting"),
        ("sglang:num_running_reqs", "requests_running"),
        ("sglang_token_usage", "kv_usage_ratio"),
        ("ray_vllm:gpu_cache_usage_perc", "kv_usage_ratio"),
    ],
)
def test_an_engines_own_gauge_means_the_signal_in_either_spelling(name: str, signal: str) -> None:
    """People write what they know from their dashboards, with a colon or an underscore."""
    assert parse_expression(f"{name} > 0.5") == parse_expression(f"{signal} > 0.5")


def test_every_signal_can_be_named() -> None:
    distributions = len(DISTRIBUTIONS) + sum(row.form is Form.DISTRIBUTION for row in BEYOND)
    scalars = len(SCALARS) - 1 + sum(row.form is not Form.DISTRIBUTION for row in BEYOND)
    assert len(NAMES) == scalars + 6 * distributions
    assert {"models_ready", "migrations_per_second", "kv_transfer_seconds.p95"} <= set(NAMES)
    for name in NAMES:
        assert parse_expression(f"{name} > 1").first.name == name
