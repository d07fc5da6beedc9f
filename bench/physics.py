"""How true the simulator's step time is: `python -m bench.physics [--json]`.

The reference is a table of TPOT by batch that NVIDIA's aiconfigurator 0.12 worked out for vLLM with Qwen3-32B
on H200s, 4000 tokens in and 500 out. For each tensor-parallel size the step's constants are calibrated on
every second row, and the engine model then runs every other row's batch as a closed loop.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from enginetop.fleet.snapshot import Slo
from enginetop.simulator.model import EngineModel
from enginetop.simulator.scenario import EngineSettings, StepTime
from enginetop.simulator.traffic import DrawnRequest

TABLE = (
    Path(__file__).resolve().parents[1]
    / "tests/fixtures/aiconfigurator/0.12.0/aiconfigurator-0.12.0-qwen3-32b-h200-vllm-agg-pareto.csv"
)
KV_BYTES_PER_TOKEN = 2 * 64 * 8 * 128 * 2
"""Keys and values of 64 layers, 8 KV heads of 128, two bytes each (Qwen3-32B in bf16)."""
BANDWIDTH_BYTES_PER_SECOND = 4.8e12
"""Memory of one H200."""
_ROUNDS = 4
"""How often every place of the batch is filled; the first fillings and the last ones are left out."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: TPOT of `batch` requests at a time, steps of at most `step_tokens`."""

    tp: int
    batch: int
    prompt_tokens: int
    output_tokens: int
    step_tokens: int
    tpot_ms: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """One tensor-parallel size: the calibrated step, and of each judged row the TPOT simulated for it."""

    tp: int
    calibrated_rows: int
    step: StepTime
    judged: tuple[tuple[Row, float], ...]

    @property
    def worst_error_ratio(self) -> float:
        """The largest relative error of a judged row."""
        return max(abs(tpot_ms / row.tpot_ms - 1.0) for row, tpot_ms in self.judged)


def read_table(path: Path = TABLE) -> list[Row]:
    """The rows of the reference, by tensor-parallel size and batch."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows = [
            Row(
                tp=int(line["tp"]),
                batch=int(line["bs"]),
                prompt_tokens=int(line["isl"]),
                output_tokens=int(line["osl"]),
                step_tokens=math.ceil(float(line["num_tokens"])),
                tpot_ms=float(line["tpot"]),
            )
            for line in csv.DictReader(lines)
        ]
    return sorted(rows, key=lambda row: (row.tp, row.batch, row.step_tokens))


def calibrate(rows: Sequence[Row]) -> StepTime:
    """The constants of one tensor-parallel size.

    Reading the KV cache costs what the memory's bandwidth says. Base and cost of a token are the least
    squares of the relative errors of TPOT = base + tokens of the mean step x cost + KV tokens x cost. Its
    tokens are the answers of the batch, and the prompts that are computed while one request is answered.
    """
    per_kv_token_ns = KV_BYTES_PER_TOKEN / rows[0].tp / BANDWIDTH_BYTES_PER_SECOND * 1e9
    ones = tokens = squares = ones_by_rest = tokens_by_rest = 0.0
    for row in rows:
        step_tokens = row.batch + (row.batch - 1) * row.prompt_tokens / row.output_tokens
        kv_ms = per_kv_token_ns * row.batch * (row.prompt_tokens + row.output_tokens / 2) / 1e6
        weight = 1.0 / row.tpot_ms**2
        rest = row.tpot_ms - kv_ms
        ones += weight
        tokens += weight * step_tokens
        squares += weight * step_tokens**2
        ones_by_rest += weight * rest
        tokens_by_rest += weight * step_tokens * rest
    per_token_ms = (ones * tokens_by_rest - tokens * ones_by_rest) / (ones * squares - tokens**2)
    base_ms = (ones_by_rest - tokens * per_token_ms) / ones
    return StepTime(base_ms, per_token_ms * 1e3, per_kv_token_ns)


class _ClosedLoop:
    """Arrivals that keep `batch` requests in the engine, all alike."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._asked = 0
        self.engine: EngineModel | None = None

    @property
    def next_arrival_at(self) -> float:
        if self.engine is None:
            return 0.0
        in_engine = self._asked - self.engine.metrics.request_samples.count
        return self.engine.now if in_engine < self._row.batch else math.inf

    def pop(self) -> DrawnRequest:
        self._asked += 1
        row = self._row
        at = self.engine.now if self.engine is not None else 0.0
        return DrawnRequest(at, row.prompt_tokens, row.output_tokens, max_tokens=row.output_tokens + 1)


def simulate(row: Row, step: StepTime) -> float:
    """Mean TPOT in milliseconds of the engine model under the load of `row`."""
    length = row.prompt_tokens + row.output_tokens
    engine = EngineSettings(
        model="Qwen3-32B",
        max_model_len=length + 1,
        gpus=row.tp,
        kv_blocks=math.ceil((length + 1) / 16) * (row.batch + 1) * 2,
        step=step,
        max_num_batched_tokens=row.step_tokens,
        max_num_seqs=row.batch,
    )
    source = _ClosedLoop(row)
    model = EngineModel(engine, source, Slo(), history=_ROUNDS * row.batch)
    source.engine = model
    second = 0.0
    while len(model.finished) < _ROUNDS * row.batch:
        second += 10.0
        model.advance(second)
    steady = list(model.finished)[row.batch : -row.batch]
    return sum(request.tpot_seconds for request in steady) / len(steady) * 1e3


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Every tensor-parallel size, calibrated on every second row and judged on the others."""
    verdicts = []
    for tp in sorted({row.tp for row in rows}):
        group = [row for row in rows if row.tp == tp]
        step = calibrate(group[::2])
        judged = tuple((row, simulate(row, step)) for row in group[1::2])
        verdicts.append(Verdict(tp, len(group[::2]), step, judged))
    return verdicts


def main() -> None:
    """Print a line a row; `--json`: one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    verdicts = judge(read_table())
    figures: dict[str, float | int] = {}
    for verdict in verdicts:
        step = verdict.step
        print(
            f"tp {verdict.tp}: base {step.base_ms:.2f} ms, {step.per_token_us:.1f} us a token, "
            f"{step.per_kv_token_ns:.1f} ns a KV token, from {verdict.calibrated_rows} rows"
        )
        for row, tpot_ms in verdict.judged:
            error = tpot_ms / row.tpot_ms - 1
            print(f"  batch {row.batch:>4}  TPOT {row.tpot_ms:>8.3f} ms, here {tpot_ms:>8.3f}: {error:+.1%}")
        figures[f"tp{verdict.tp}_worst_error_ratio"] = round(verdict.worst_error_ratio, 4)
        figures[f"tp{verdict.tp}_judged_rows"] = len(verdict.judged)
    figures["worst_error_ratio"] = max(round(verdict.worst_error_ratio, 4) for verdict in verdicts)
    print(f"worst error {100 * figures['worst_error_ratio']:.1f} %")
    if args.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
