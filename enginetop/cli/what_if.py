"""`enginetop tune --what-if KNOB=VALUE`: what a knob would do at another value, as the evidence has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from enginetop.cli.tune_report import labelled
from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import FleetSnapshot, Outlook, ReplicaSnapshot
from tui.view.advice import expectation_items, setting_text
from tui.view.cells import Line, plain, printable

Asked = tuple[str, tuple[int, ...]]
"""A knob, and the values to ask for."""


@frozen
class Answer:
    """The outlook of one knob and value on one replica."""

    replica: ReplicaSnapshot
    outlook: Outlook


def answers(snapshot: FleetSnapshot, asked: Sequence[Asked]) -> list[Answer]:
    """An answer for each value asked and each engine replica, in this order."""
    return [
        Answer(replica, replica.what_if(knob, value))
        for knob, values in asked
        for value in values
        for replica in snapshot.replicas
        if replica.what_if is not None
    ]


def answer_document(answer: Answer) -> dict[str, Any]:
    """One item of `what_if` in the JSON form."""
    replica, outlook = answer.replica, answer.outlook
    return {
        "target": replica.target.url,
        "name": replica.target.name,
        "knob": outlook.knob,
        "from": outlook.current,
        "to": outlook.value,
        "action": outlook.action,
        "because": list(outlook.because),
        "expected": dict(outlook.expected),
        "limits": list(outlook.limits),
    }


def answer_lines(found: Sequence[Answer]) -> Iterator[Line]:
    """The answers as text; never empty."""
    if not found:
        yield plain("nothing to tell: no engine answers")
    for answer in found:
        outlook = answer.outlook
        now, then = (setting_text(outlook.knob, value) for value in (outlook.current, outlook.value))
        yield plain(printable(f"what if {outlook.knob}  {now} → {then}   {answer.replica.target.name}"))
        items = " · ".join(expectation_items(outlook.expected))
        label = "because" if outlook.action == "predicted" else outlook.action
        yield from labelled(label, outlook.because)
        yield from labelled("predicted", [items])
        yield from labelled("limits", outlook.limits)
        yield plain("")
