"""The fit of the step time against numpy and against figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuners.step_time import StepFit, StepWindow, Unfit, fit_step_time


def windows(*pairs: tuple[float, float]) -> list[StepWindow]:
    return [StepWindow(tokens, seconds) for tokens, seconds in pairs]


def on_a_line(base: float, per_token: float, tokens: list[float]) -> list[StepWindow]:
    return windows(*((n, base + per_token * n) for n in tokens))


def fitted(made: list[StepWindow]) -> StepFit:
    fit = fit_step_time(made)
    assert isinstance(fit, StepFit), fit
    return fit


TOKENS = [1000.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0, 7000.0, 8000.0]


def test_the_guides_engine() -> None:
    # 12 ms + 6 us a token against 50 ms: (50 - 12) / 0.006 = 6333 tokens
    fit = fitted(on_a_line(0.012, 6e-6, TOKENS))
    assert fit.base_seconds == pytest.approx(0.012)
    assert fit.per_token_seconds == pytest.approx(6e-6)
    assert fit.r_squared == pytest.approx(1.0)
    assert fit.most_tokens_within(0.050) == pytest.approx(6333.33, abs=0.01)
    assert fit.most_tokens_within(0.012) == pytest.approx(0.0, abs=1e-6)
    assert fit.most_tokens_within(0.006) < 0


def test_a_scattered_fit_is_numpys() -> None:
    seconds = [0.0190, 0.0235, 0.0312, 0.0345, 0.0432, 0.0471, 0.0551, 0.0592]
    fit = fitted(windows(*zip(TOKENS, seconds, strict=True)))
    slope, base = np.polyfit(TOKENS, seconds, 1)
    assert fit.per_token_seconds == pytest.approx(slope)
    assert fit.base_seconds == pytest.approx(base)
    assert fit.r_squared == pytest.approx(np.corrcoef(TOKENS, seconds)[0, 1] ** 2)


def test_the_interval_by_hand() -> None:
    # Residuals of 1 ms off 10 ms + 5 us/token, in the order + - - + twice: they add up to nothing, and so do
    # their products with the tokens, so that the line stays. Squares of the tokens about 4500:
    # 2 (3500^2 + 2500^2 + 1500^2 + 500^2) = 4.2e7; deviation sqrt(8e-6 / 6) = 1.1547e-3;
    # t(.975, 6) = 2.446912.
    signs = [1, -1, -1, 1, 1, -1, -1, 1]
    fit = fitted(
        windows(*((n, 0.010 + 5e-6 * n + 0.001 * sign) for n, sign in zip(TOKENS, signs, strict=True)))
    )
    assert fit.per_token_seconds == pytest.approx(5e-6)
    assert fit.deviation_seconds == pytest.approx(1.154701e-3, rel=1e-5)
    assert fit.per_token_margin_seconds == pytest.approx(2.446912 * 1.154701e-3 / 42e6**0.5, rel=1e-5)
    assert fit.margin_seconds(4500) == pytest.approx(2.446912 * 1.154701e-3 / 8**0.5, rel=1e-5)
    # one window at 4500: deviation x t x sqrt(1 + 1/8)
    assert fit.scatter_seconds(4500) == pytest.approx(2.446912 * 1.154701e-3 * 1.125**0.5, rel=1e-5)
    # at 8000: 1/8 + 3500^2 / 4.2e7 = 0.416667
    assert fit.margin_seconds(8000) == pytest.approx(2.446912 * 1.154701e-3 * 0.416667**0.5, rel=1e-5)


def test_a_tilted_line_keeps_its_centre() -> None:
    fit = fitted(on_a_line(0.012, 6e-6, TOKENS))
    tilted = fit.tilted(8e-6)
    assert tilted.seconds(4500) == pytest.approx(0.012 + 6e-6 * 4500)
    assert tilted.seconds(5500) - tilted.seconds(4500) == pytest.approx(8e-3)


def test_the_range_is_that_of_the_windows_and_half_as_much_again() -> None:
    fit = fitted(on_a_line(0.012, 6e-6, TOKENS))
    assert fit.reaches(12_000)
    assert not fit.reaches(12_001)
    assert fit.reaches(667)
    assert not fit.reaches(666)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ([], "0 busy windows"),
        (on_a_line(0.012, 6e-6, TOKENS[:7]), "7 busy windows, a fit of the step time needs 8"),
        (on_a_line(0.012, 6e-6, [1000 + 142 * i for i in range(8)]), "1000 to 1994 tokens"),
        (windows(*((n, 0.03) for n in TOKENS)), "tokens explain 0 %"),
        (on_a_line(0.060, -6e-6, TOKENS), "tokens explain 100 %"),  # falls with tokens: nonsense
    ],
)
def test_no_fit_and_why(made: list[StepWindow], words: str) -> None:
    fit = fit_step_time(made)
    assert isinstance(fit, Unfit)
    assert words in fit.reason


def test_little_explained_is_no_fit() -> None:
    rng = np.random.default_rng(7)
    noisy = [(n, 0.112 + 6e-6 * n + float(rng.normal(0, 0.02))) for n in TOKENS * 4]
    share = np.corrcoef(np.array(noisy).T)[0, 1] ** 2
    assert share < 0.8
    fit = fit_step_time(windows(*noisy))
    assert isinstance(fit, Unfit)
    assert f"{100 * share:.0f} %" in fit.reason


@settings(max_examples=60, deadline=None)
@given(
    base=st.floats(0.0, 0.1),
    per_token=st.floats(1e-7, 1e-4),
    tokens=st.lists(st.floats(1.0, 16_384.0), min_size=6, max_size=60),
)
def test_any_line_is_found_again(base: float, per_token: float, tokens: list[float]) -> None:
    made = on_a_line(base, per_token, [100.0, 10_000.0, *tokens])
    fit = fitted(made)
    assert fit.seconds(5000.0) == pytest.approx(base + per_token * 5000.0, rel=1e-6, abs=1e-9)
    assert fit.windows == len(made)
