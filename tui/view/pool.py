"""Advice on a pool: all replicas of a model and role as one, with what each of them is advised by itself."""

from __future__ import annotations

from collections.abc import Iterator

from enginetop.fleet.snapshot import Advice, PoolAdvice
from tui.view.advice import (
    ACTIONABLE,
    advice_of,
    caveats_of,
    change_text,
    expectation_items,
    reason_text,
    reasons_of,
    setting_text,
)
from tui.view.cells import EMPTY_LINE, Line, Span, clip, plain
from tui.view.change_words import state_text
from tui.view.figures import WIDE, paragraphs, row
from tui.view.page import MODEL_UNKNOWN
from tui.view.picture import Picture
from tui.view.title import screen_title

_TO_DO_IT = (
    "esc, then enter and A on one of its replicas under `suggestions for single replicas`: it is tried there "
    "first, and the pool follows if it does well"
)


def pools_of(picture: Picture, only: str | None = None) -> tuple[PoolAdvice, ...]:
    """The pools that there is advice on, those to be changed first; with `only` that of this target URL."""
    found = picture.snapshot.pools if picture.snapshot is not None else ()
    chosen = [pool for pool in found if only is None or only in pool.replicas]
    return tuple(sorted(chosen, key=lambda pool: not actionable(pool)))


def pool_name(pool: PoolAdvice) -> str:
    """Model, role and size: `Qwen3-32B · decode ×6`."""
    return f"{pool.model or MODEL_UNKNOWN} · {pool.role.value} ×{len(pool.replicas)}"


def pool_key(pool: PoolAdvice) -> str:
    """The key of a pool, the same in every picture."""
    return f"pool {pool.role.value} {pool.model or ''}"


def pool_change(advice: Advice) -> str:
    """What is advised in few words: `8192 → 6144`, or that it stays; empty where the value is not one."""
    if advice.action not in ACTIONABLE:
        return "" if advice.current is None else f"stays at {setting_text(advice.knob, advice.current)}"
    return change_text(advice)


def actionable(pool: PoolAdvice) -> tuple[Advice, ...]:
    """The rows that change something."""
    return tuple(advice for advice in pool.advice if advice.action in ACTIONABLE)


def pool_title(picture: Picture, pool: PoolAdvice | None, width: int) -> Line:
    """Which pool."""
    name = pool_name(pool) if pool is not None else ""
    return screen_title(picture, "pool", f" · {name}", width)


def pool_lines(picture: Picture, pool: PoolAdvice | None, width: int) -> list[Line]:
    """Each knob of the pool: what is advised and why, then replica by replica what differs from it."""
    if pool is None:
        return [clip(plain(" this pool is gone: its replicas are no longer in the fleet", "warn"), width)]
    lines: list[Line] = []
    for advice in sorted(pool.advice, key=lambda one: one.action not in ACTIONABLE):
        lines += (*_knob(picture, pool, advice, width), EMPTY_LINE)
    return [clip(line, width) for line in lines[:-1]]


def _knob(picture: Picture, pool: PoolAdvice, advice: Advice, width: int) -> Iterator[Line]:
    changes = advice.action in ACTIONABLE
    change, sure = pool_change(advice), f" · {advice.confidence} confidence" if changes else ""
    yield (
        Span(f" {advice.knob}  ", "title"),
        Span(f"{change}  " if change else "", "info" if changes else "text"),
        Span(f"{advice.action}{sure}", "dim"),
    )
    trial = _on_trial(picture, pool, advice.knob)
    because = "; ".join(reasons_of(advice))
    if trial and not changes:  # the values are mixed because of it, and nobody is to level them meanwhile
        because, trial = f"{trial}; the pool is advised on again when it is over", ""
    told = (
        ("on trial", trial),
        ("because", because),
        ("expect", " · ".join(expectation_items(advice.expected))),
        ("wrong if", "; ".join(caveats_of(advice))),
    )
    for label, text in told:
        yield from paragraphs(label, (text,), width)
    if changes and not trial and not picture.read_only:
        yield from paragraphs("to do it", (_TO_DO_IT,), width)
    yield from _members(picture, pool, advice, width)


def _on_trial(picture: Picture, pool: PoolAdvice, knob: str) -> str:
    """The change of a knob that is under way in the pool, in words; empty: there is none."""
    for change in picture.in_flight:
        reached = (change.canary_target, *change.together, *change.promote_targets)
        if change.knob == knob and not set(reached).isdisjoint(pool.replicas):
            return f"change {change.id} of it is under way here ({state_text(change)})"
    return ""


def _members(picture: Picture, pool: PoolAdvice, advice: Advice, width: int) -> Iterator[Line]:
    """The replicas whose own advice is another one."""
    name_width = 24 if width >= WIDE else 12
    alike, label = 0, "each"
    for url in pool.replicas:
        own = advice_of(picture.replica(url), advice.knob)
        if own is None or (own.action, own.proposed) == (advice.action, advice.proposed):
            alike += own is not None
            continue
        name = picture.name_cell(url, name_width)
        change = pool_change(own) if own.action in ACTIONABLE else ""
        yield row(
            label, Span(f"{name} {own.action} {change} ".rstrip() + "  "), Span(reason_text(own), "dim")
        )
        label = ""
    if alike:
        yield row(label, Span(f"{alike} of {len(pool.replicas)} are advised the same by themselves", "dim"))
