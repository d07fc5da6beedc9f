"""What a probe found: the document of `--format json`, and the same as lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from collectors.fetch import one_line
from collectors.probe.client import ProbeAnswer, ProbePlan
from collectors.records.lines import RequestLine
from enginetop.fleet.derive import no_signals
from enginetop.fleet.figures_document import signal_document
from enginetop.fleet.model import Quality
from enginetop.fleet.request_records import distribution_of, with_records
from enginetop.fleet.signals import SIGNALS
from enginetop.fleet.snapshot import Scalar, SignalValue

SCHEMA = "enginetop.probe/1"

_SOURCE = "the probe"
_ORDERED = ("ttft_seconds", "tpot_seconds", "e2e_seconds", "prompt_tokens", "output_tokens")
_TEXT_SHARE = "reasoning_text_share_ratio"


def probe_document(plan: ProbePlan, answers: Sequence[ProbeAnswer]) -> dict[str, Any]:
    """The outcome. Signals are as in a snapshot; `cost` counts tokens of requests that told them.

    `reasoning_text_share_ratio` is the share of reasoning among the characters of the answers: an estimate
    where the server counts no reasoning tokens, null where it does.
    """
    records = [answer.record for answer in answers if answer.record is not None]
    figures = [answer.record.figures(answer.at, _SOURCE) for answer in answers if answer.record is not None]
    told = with_records(no_signals(Quality.UNKNOWN, "no request was answered"), figures)
    signals: dict[str, SignalValue] = {
        name: distribution_of(_known(records, name), SIGNALS[name].unit) for name in _ORDERED
    }
    for name in ("reasoning_tokens", "reasoning_share_ratio"):
        signals[name] = told[name]
    signals[_TEXT_SHARE] = _text_share(records, counted=any(one.known_reasoning for one in figures))
    return {
        "schema": SCHEMA,
        "target": plan.url,
        "model": one_line(plan.model),
        "requests": {
            "planned": plan.requests,
            "sent": len(answers),
            "answered": len(records),
            "failed": [answer.error for answer in answers if answer.error],
        },
        "max_tokens": plan.max_tokens,
        "finish": _counts(records),
        "signals": {name: signal_document(name, value) for name, value in signals.items()},
        "cost": {
            "prompt_tokens": _sum(records, "prompt_tokens"),
            "output_tokens": _sum(records, "output_tokens"),
            "requests_not_counted": sum(record.output_tokens is None for record in records),
        },
    }


def report_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The document as lines for people."""
    requests, cost = document["requests"], document["cost"]
    yield f"{document['target']}  {document['model']}"
    failed = f", {len(requests['failed'])} failed" if requests["failed"] else ""
    ended = ", ".join(f"{count} by {word}" for word, count in document["finish"].items())
    yield f"{requests['answered']} of {requests['planned']} requests answered{failed}" + (
        f" (ended: {ended})" if ended else ""
    )
    yield f"{'':<18}{'p50':>10}{'p95':>10}{'p99':>10}{'mean':>10}{'n':>6}"
    notes = []
    for name in ("ttft_seconds", "tpot_seconds", "prompt_tokens", "output_tokens", "reasoning_tokens"):
        found = document["signals"][name]
        cells = "".join(f"{_text(found[key]['value']):>10}" for key in ("p50", "p95", "p99", "mean"))
        yield f"{name:<18}{cells}{_text(found['count']):>6}"
    notes.append(f"reasoning_tokens: {document['signals']['reasoning_tokens']['note']}")
    for name in ("reasoning_share_ratio", _TEXT_SHARE):
        found = document["signals"][name]
        if found["value"] is not None:
            notes.append(f"{name}: {100 * found['value']:.1f} % ({found['quality']}; {found['note']})")
        elif name == "reasoning_share_ratio":
            notes.append(f"{name}: unknown ({found['note']})")
    yield from notes
    silent = cost["requests_not_counted"]
    missing = f", and {silent} requests that told no usage" if silent else ""
    spent = f"{_text(cost['prompt_tokens'])} prompt and {_text(cost['output_tokens'])} output tokens"
    yield f"cost: {spent}{missing}"


def _known(records: Sequence[RequestLine], name: str) -> list[float]:
    return [value for record in records if (value := getattr(record, name)) is not None]


def _sum(records: Sequence[RequestLine], name: str) -> float | None:
    known = _known(records, name)
    return math.fsum(known) if known else None


def _counts(records: Sequence[RequestLine]) -> dict[str, int]:
    words = [record.finish or "unknown" for record in records]
    return {word: words.count(word) for word in dict.fromkeys(words)}


def _text_share(records: Sequence[RequestLine], *, counted: bool) -> Scalar:
    thought = math.fsum(record.reasoning_chars or 0.0 for record in records)
    told = math.fsum(record.answer_chars or 0.0 for record in records)
    if counted or not thought:
        why = "reasoning tokens are counted" if counted else "no reasoning text was seen"
        return Scalar(None, "ratio", Quality.UNKNOWN, why)
    note = f"{thought:.0f} of {thought + told:.0f} characters; the server counts no reasoning tokens"
    return Scalar(thought / (thought + told), "ratio", Quality.ESTIMATED, note)


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
