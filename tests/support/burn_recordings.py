"""Recordings in which a known share of requests is bad for a known time, written page by page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SLO = "ttft=0.5,tpot=0.05,target=0.99"
"""What the pages are held against: one per cent of requests may be bad."""

LABELS = 'engine="0",model_name="m"'


@dataclass(frozen=True)
class Outage:
    """On every page with `begin < t <= end` this replica counts `late` requests whose first token came after
    the objective and `failed` ones that ended in an error, out of `BurnStory.requests`.
    """

    begin: float
    end: float
    late: int = 0
    failed: int = 0


@dataclass(frozen=True)
class BurnStory:
    """Pages of some replicas from 0 to `until`, every `spacing` seconds, `requests` more on each."""

    until: float
    spacing: float
    requests: int
    outages: Mapping[str, Outage | None]

    def write(self, path: Path) -> Path:
        """The recording as a file."""
        totals = dict.fromkeys(self.outages, (0, 0, 0))
        with path.open("w", encoding="utf-8") as file:
            for step in range(int(self.until / self.spacing) + 1):
                at = step * self.spacing
                for url, outage in self.outages.items():
                    ended, late, failed = totals[url]
                    if step:
                        bad = outage is not None and outage.begin < at <= outage.end
                        late += outage.late if bad and outage is not None else 0
                        failed += outage.failed if bad and outage is not None else 0
                        ended += self.requests
                    totals[url] = ended, late, failed
                    page = {"t": at, "target": url, "path": "/metrics", "body": _body(ended, late, failed)}
                    file.write(json.dumps(page) + "\n")
        return path


def _body(ended: int, late: int, failed: int) -> str:
    done = ended - failed
    lines = [
        f"vllm:num_requests_running{{{LABELS}}} 1",
        f"vllm:generation_tokens_total{{{LABELS}}} {100 * ended}",
        f'vllm:request_success_total{{{LABELS},finished_reason="stop"}} {done}',
        f'vllm:request_success_total{{{LABELS},finished_reason="error"}} {failed}',
    ]
    for name, bound, within, count in (
        ("time_to_first_token_seconds", 0.5, done - late, done),
        ("request_time_per_output_token_seconds", 0.05, done, done),
    ):
        lines += [
            f'vllm:{name}_bucket{{{LABELS},le="{bound}"}} {within}',
            f'vllm:{name}_bucket{{{LABELS},le="+Inf"}} {count}',
            f"vllm:{name}_sum{{{LABELS}}} {0.01 * count}",
            f"vllm:{name}_count{{{LABELS}}} {count}",
        ]
    return "\n".join(lines) + "\n"


def clock(hours: int, minutes: int = 0, seconds: int = 0) -> float:
    """Seconds since the beginning of a recording."""
    return 3600.0 * hours + 60.0 * minutes + seconds


Told = list[tuple[float, str, str, str]]


def burns(printed: str) -> Told:
    """The changes of `BudgetBurn` that `watch` printed: time, severity, long window, state."""
    events = [json.loads(line) for line in printed.splitlines()]
    return [
        (event["at"], event["severity"], event["labels"]["window"], event["state"])
        for event in events
        if event["event"] == "alert" and event["rule"] == "BudgetBurn"
    ]
