"""User rules against an evaluator written another way, and against any text at all."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.alerts.evaluate import holds
from enginetop.alerts.grammar import OPERATORS, parse_expression
from enginetop.fleet.errors import ConfigError
from tests.tui.snapshots import signals

_NAMES = ("kv_usage_ratio", "requests_waiting", "requests_running")
_NUMBERS = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0])
_COMPARISONS = st.tuples(st.sampled_from(_NAMES), st.sampled_from(OPERATORS), _NUMBERS)


def _python(terms: list[list[tuple[str, str, float]]], values: dict[str, float | None]) -> bool | None:
    """What Python makes of it over all that an unknown value could be."""
    unknown = [name for name in _NAMES if values[name] is None]
    answers = set()
    candidates = (-2.0, -1.0, -0.5, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)

    def ask(rest: list[str], known: dict[str, float | None]) -> None:
        if not rest:
            text = " or ".join(" and ".join(f"{n} {op} {x}" for n, op, x in term) for term in terms)
            answers.add(bool(eval(text, {}, known)))
            return
        for candidate in candidates:
            ask(rest[1:], {**known, rest[0]: candidate})

    ask(unknown, values)
    return answers.pop() if len(answers) == 1 else None


@settings(max_examples=60, deadline=None)
@given(
    terms=st.lists(st.lists(_COMPARISONS, min_size=1, max_size=3), min_size=1, max_size=3),
    values=st.fixed_dictionaries({name: st.one_of(_NUMBERS, st.just(0.25)) for name in _NAMES}),
)
def test_known_values_mean_what_python_means(
    terms: list[list[tuple[str, str, float]]], values: dict[str, float]
) -> None:
    text = " or ".join(" and ".join(f"{n} {op} {x}" for n, op, x in term) for term in terms)
    assert holds(parse_expression(text), signals(**values)) is _python(terms, dict(values))


@settings(max_examples=60, deadline=None)
@given(
    terms=st.lists(st.lists(_COMPARISONS, min_size=1, max_size=2), min_size=1, max_size=2),
    values=st.fixed_dictionaries({name: st.one_of(st.none(), _NUMBERS) for name in _NAMES}),
)
def test_an_answer_never_depends_on_what_is_not_known(
    terms: list[list[tuple[str, str, float]]], values: dict[str, float | None]
) -> None:
    text = " or ".join(" and ".join(f"{n} {op} {x}" for n, op, x in term) for term in terms)
    found = holds(parse_expression(text), signals(**values))
    if found is not None:
        assert found is _python(terms, values)


@settings(max_examples=120, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from([*_NAMES, *OPERATORS, "and", "or", "1"]))))
def test_any_text_is_read_or_refused_in_one_line(text: str | list[str]) -> None:
    refusal = ""
    try:
        parse_expression(text if isinstance(text, str) else " ".join(text))
    except ConfigError as error:
        refusal = str(error)
    assert refusal.isprintable()
