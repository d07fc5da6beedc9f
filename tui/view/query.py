"""The filter line: words, `field:text` and `field>number`, all of which must hold."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import ReplicaSnapshot
from tui.view.columns import BY_KEY
from tui.view.engines import engine_text
from tui.view.severity import Condition

Term = Callable[[ReplicaSnapshot, Condition], bool]


class QueryError(ValueError):
    """The filter cannot be read; the text is one short line for the filter row."""


_TEXT_FIELDS: Mapping[str, Callable[[ReplicaSnapshot, Condition], str]] = {
    "state": lambda replica, condition: f"{replica.state} {condition.word}",
    "model": lambda replica, _condition: replica.model or "",
    "name": lambda replica, _condition: f"{replica.target.name} {replica.target.url}",
    "engine": lambda replica, _condition: engine_text(replica),
    "role": lambda replica, _condition: str(replica.role),
}

_AGES = frozenset({"age", "since"})
"""Columns that are sorted by a moment: no number of theirs can be asked for."""

_NUMBER_FIELDS = tuple(
    column.key for column in BY_KEY.values() if column.right and column.sortable and column.key not in _AGES
)

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}

_COMPARISON = re.compile(r"([a-z0-9_]+)(>=|<=|!=|>|<|=)(.*)")
_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{0,9})?|\.\d{1,9})(%|ms|s|k|)")
_UNITS = {"": 1.0, "%": 0.01, "ms": 0.001, "s": 1.0, "k": 1000.0}

FILTER_FIELDS = (*(f"{name}:" for name in _TEXT_FIELDS), *(f"{name}>" for name in _NUMBER_FIELDS))
"""How a term may begin."""

FILTER_HELP = (
    "text              name, model, engine, role or state holds the text",
    "state:down        one field: " + ", ".join(_TEXT_FIELDS),
    "kv>0.9  kv>90%    one number: " + ", ".join(_NUMBER_FIELDS),
    "ttft>500ms        times in seconds, or with ms; all terms of a filter must hold; ! before one turns it",
)


@frozen
class Query:
    """A filter as it was typed, with what it asks. An empty one matches all."""

    text: str = ""
    terms: tuple[Term, ...] = ()

    def matches(self, replica: ReplicaSnapshot, condition: Condition) -> bool:
        """Whether every term holds. A number that is not known fulfils no comparison."""
        return all(term(replica, condition) for term in self.terms)


def parse_query(text: str) -> Query:
    """Read a filter. QueryError: an unknown field, or something that is not a number."""
    words = text.lower().split()
    return Query(text.strip(), tuple(_term(word) for word in words))


def _term(word: str) -> Term:
    if word.startswith("!") and len(word) > 1:
        inner = _term(word[1:])
        return lambda replica, condition: not inner(replica, condition)
    if match := _COMPARISON.fullmatch(word):
        return _comparison(*match.groups())
    field, colon, wanted = word.partition(":")
    if colon and field in _TEXT_FIELDS:
        read = _TEXT_FIELDS[field]
        return lambda replica, condition: wanted in read(replica, condition).lower()
    return lambda replica, condition: any(
        word in read(replica, condition).lower() for read in _TEXT_FIELDS.values()
    )


def _comparison(field: str, sign: str, written: str) -> Term:
    if field not in _NUMBER_FIELDS:
        raise QueryError(f"no number called {field}; there are {' '.join(_NUMBER_FIELDS)}")
    number = _NUMBER.fullmatch(written)
    if number is None:
        raise QueryError(f"{field}{sign} wants a number such as 0.9, 90%, 500ms")
    limit = float(number[1]) * _UNITS[number[2]]
    compare, read = _OPERATORS[sign], BY_KEY[field].read

    def term(replica: ReplicaSnapshot, _condition: Condition) -> bool:
        value = read(replica)
        return isinstance(value, int | float) and compare(value, limit)

    return term
