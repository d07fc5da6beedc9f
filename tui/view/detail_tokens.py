"""Detail view: tokens, reasoning and speculation."""

from __future__ import annotations

from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot, Scalar
from enginetop.fleet.thinking import budget_of
from tui.view import charts, numbers
from tui.view.cells import EMPTY_LINE, UNKNOWN, Span
from tui.view.engines import absence
from tui.view.figures import LABEL_WIDTH, Lines, figure, number_of, row, setting, short_figure, signal_of
from tui.view.reasoning import quantile_marks, ruler
from tui.view.speculation import by_position, conditionals, saved_ratio

_BAR = 30


def token_lines(replica: ReplicaSnapshot, width: int) -> Lines:
    """Throughput, prefix hits, lengths, and what reasoning takes."""
    yield row(
        "tokens/s",
        Span("generated ", "dim"), short_figure(replica, "generation_tokens_per_second"),
        Span(" · prompt ", "dim"), short_figure(replica, "prompt_tokens_per_second"),
    )  # fmt: skip
    yield row(
        "prefix hits", *figure(replica, "prefix_hit_ratio", numbers.percent, " %"), _why_no_hits(replica)
    )
    external = signal_of(replica, "external_prefix_hit_ratio")
    if numbers.scalar_number(external) is not None:
        yield row("external", *figure(replica, "external_prefix_hit_ratio", numbers.percent, " %"))
    for name, label in (
        ("prompt_tokens", "prompt len"),
        ("output_tokens", "output len"),
        ("reasoning_tokens", "reasoning"),
    ):
        value = signal_of(replica, name)
        if isinstance(value, Distribution) and value.count:
            parts = [
                f"{key} {numbers.bounded(numbers.quantile_of(value, key), numbers.count)}"
                for key in ("p50", "p95", "p99", "mean")
            ]
            note = f"  {value.note}" if name == "reasoning_tokens" and value.note else ""
            yield row(label, Span(" · ".join(parts)), Span(f" tokens{note}", "dim"))
        elif (
            name == "reasoning_tokens" and isinstance(value, Distribution) and value.count == 0 and value.note
        ):
            yield row(label, Span(UNKNOWN, "dim"), Span(f" {value.note}", "dim"))
    yield from _thinking(replica, width)


def _why_no_hits(replica: ReplicaSnapshot) -> Span:
    """What else than a cache that does not work can be behind no hits at all."""
    block = replica.config.get("block_size")
    if numbers.scalar_number(signal_of(replica, "prefix_hit_ratio")) != 0 or block is None:
        return Span("")
    return Span(f"  a shared prefix shorter than a block of {block.value} tokens is never found", "dim")


def _thinking(replica: ReplicaSnapshot, width: int) -> Lines:
    """What reasoning takes: its share of output, requests at the budget, KV; nothing where none is known."""
    parts = []
    for name, label, text, unit in (
        ("reasoning_share_ratio", "of output", numbers.percent, " %"),
        ("reasoning_budget_hit_ratio", "at the budget", numbers.percent, " %"),
        ("reasoning_kv_tokens", "KV at least", numbers.count, " tokens"),
    ):
        value = signal_of(replica, name)
        number = numbers.scalar_number(value)
        if number is not None and isinstance(value, Scalar):
            parts.append(f"{label} {numbers.marked(text(number), value.quality)}{unit}")
    if parts:
        yield row("thinking", Span(" · ".join(parts)))
    yield from _against_budget(replica, width)


def _against_budget(replica: ReplicaSnapshot, width: int) -> Lines:
    """Percentiles of reasoning on a scale, with the thinking budget as a line."""
    marks = quantile_marks(replica)
    if not marks:
        return
    budget = budget_of(replica.config)
    top = max([budget or 0.0, *(value for value, _ in marks)])
    room = min(max(width - LABEL_WIDTH - 40, 16), 80)
    line = ruler(marks, budget, top, room)
    legend = "● p50 ○ p95 ◆ p99" + ("" if budget is None else f" ┊ budget {numbers.knob(budget)}")
    yield row("", *line, Span(f"  {legend}", "dim"))


def speculation_lines(replica: ReplicaSnapshot) -> Lines:
    """How many drafts are taken, and a bar for each position."""
    length = signal_of(replica, "spec_accepted_length")
    number = numbers.scalar_number(length)
    if number is None:
        yield row("speculation", Span(UNKNOWN, "dim"), Span(f" {absence(length, replica.engine)}", "dim"))
        yield EMPTY_LINE
        return
    drafts = setting(replica, "num_speculative_tokens")
    spans = [Span("k ", "dim"), Span(f"{numbers.knob(drafts)}"), Span(" · ", "dim")] if drafts else []
    spans += (Span("length ", "dim"), Span(f"{number:.2f}"))
    ratio = number_of(replica, "spec_acceptance_ratio")
    if ratio is not None:
        spans += (Span(" · accepted ", "dim"), Span(f"{numbers.percent(ratio)} %"))
    saved = saved_ratio(number)
    if saved is not None:
        spans += (Span(" · steps saved ", "dim"), Span(f"{numbers.percent(saved)} %"))
    yield row("speculation", *spans)
    taken = by_position(replica)
    for position, (share, chance) in enumerate(zip(taken, conditionals(taken), strict=True), 1):
        once = "" if position == 1 or chance is None else f"  {chance:.2f} once the one before is taken"
        yield row(
            "",
            Span(f"position {position:<3} ", "dim"),
            Span(f"{share:.2f} "),
            Span(charts.bar(share, _BAR), "bar"),
            Span(once, "dim"),
        )
    yield EMPTY_LINE
