"""Whatever fires, is delivered, crashes and starts again: each change is told once, in order, to the end."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.alerts.sinks.outbox import Outbox
from enginetop.fleet.snapshot import Alert
from tests.tui.snapshots import AT, alert

NAMES = ("a", "b", "c")
LOOKS = st.frozensets(st.sampled_from(NAMES))
"""The alerts that fire at one look."""
STEPS = st.one_of(LOOKS, st.sampled_from(["deliver one", "deliver all", "restart", "crash"]))


def everything(_: Alert) -> bool:
    return True


def firing(names: frozenset[str]) -> list[Alert]:
    return [alert("R", name) for name in sorted(names)]


def deliver(outbox: Outbox, told: list[tuple[str, str]], most: int) -> None:
    notices = outbox.waiting("s")[:most]
    told += [(notice.alert.target, notice.alert.state) for notice in notices]
    outbox.settle("s", notices)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEPS, max_size=25), end=LOOKS)
def test_each_change_is_told_once(steps: list[frozenset[str] | str], end: frozenset[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl"
        outbox = Outbox(path, {"s": everything})
        told: list[tuple[str, str]] = []
        expected: list[tuple[str, str]] = []
        now: frozenset[str] = frozenset()
        for at, step in enumerate([*steps, end, "deliver all"]):
            if isinstance(step, frozenset):
                outbox.offer(AT + at, firing(step))
                expected += [(name, "firing") for name in sorted(step - now)]
                expected += [(name, "resolved") for name in sorted(now - step)]
                now = step
            elif step in ("restart", "crash"):
                outbox.close()
                if step == "crash":
                    with path.open("ab") as file:
                        file.write(b'{"n": 99, "at')
                outbox = Outbox(path, {"s": everything})
                assert {one.target for one in outbox.told()} == now
            else:
                deliver(outbox, told, 1 if step == "deliver one" else 1000)
        outbox.close()
    for name in NAMES:
        assert [one for one in told if one[0] == name] == [one for one in expected if one[0] == name]


@settings(max_examples=25, deadline=None)
@given(cut=st.integers(min_value=0, max_value=2000), looks=st.lists(LOOKS, max_size=8))
def test_a_file_cut_anywhere_still_serves(cut: int, looks: list[frozenset[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl"
        outbox = Outbox(path, {"s": everything})
        for at, look in enumerate(looks):
            outbox.offer(AT + at, [replace(one, summary="x") for one in firing(look)])
        outbox.close()
        path.write_bytes(path.read_bytes()[:cut])
        again = Outbox(path, {"s": everything})
        told: list[tuple[str, str]] = []
        again.offer(AT + 100, firing(frozenset({"a"})))
        again.offer(AT + 101, [])
        deliver(again, told, 1000)
        assert told[-1][1] == "resolved"
        assert again.told() == ()
        again.close()
