"""Names stay different from one another when they are cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.fleet.model import Target
from tests.tui.snapshots import AT, alert, down_replica, event, fleet, replica
from tui.view.alerts import alert_rows
from tui.view.below import LoadMemory, below_lines
from tui.view.cells import line_text
from tui.view.events import events_line
from tui.view.names import room_of_names, shown_names
from tui.view.picture import Picture
from tui.view.verdict import verdict_line


def test_names_that_fit_stay() -> None:
    assert shown_names(["a1", "b200"], 8) == ["a1", "b200"]


def test_a_shared_port_goes_first() -> None:
    assert shown_names(["10.0.0.13:8000", "10.0.0.14:8000"], 9) == ["10.0.0.13", "10.0.0.14"]


def test_then_a_shared_start_up_to_a_separator() -> None:
    assert shown_names(["127.0.0.1:18001", "127.0.0.1:18002"], 8) == ["…18001", "…18002"]
    names = ["llama-70b-decode-6f9c-abcde", "llama-70b-decode-6f9c-xyzuv"]
    assert shown_names(names, 8) == ["…abcde", "…xyzuv"]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (6, ["…24111", "…24112"]),
        (5, ["…2…11", "…2…12"]),
        (4, ["…111", "…112"]),  # not `……11`
        (2, ["…1", "…2"]),
        (1, ["…", "…"]),
        (0, ["", ""]),
    ],
)
def test_in_few_cells_their_ends_stay_behind_one_ellipsis(width: int, shown: list[str]) -> None:
    assert shown_names(["127.0.0.1:24111", "127.0.0.1:24112"], width) == shown


@pytest.mark.parametrize(
    ("names", "room"),
    [
        (["a1", "b200"], 4),
        (["10.0.0.13:8000", "10.0.0.14:8000"], 14),
        (["llama-70b-decode-6f9c-abcde", "llama-70b-decode-6f9c-xyzuv"], 6),
        (["eu-west-llama-a7-canary", "us-east-llama-a7-canary"], 16),
        ([f"{pool}-decode-canary-07" for pool in ("prod-eu-west", "prod-us-west", "dev-eu-west")], 20),
        ([f"{pool}-{40 * '7'}" for pool in ("prod-pool-eu", "prod-pool-us", "dev")], 28),
        (["same", "same"], 4),
        ([], 0),
    ],
)
def test_names_take_as_much_room_as_tells_them_apart(names: list[str], room: int) -> None:
    """Sixteen cells without need; more, up to 28, while two look alike."""
    assert room_of_names(names, 16, 28) == room


def test_a_name_alone_is_cut_in_the_middle() -> None:
    assert shown_names(["llama-70b-decode-abcde"], 10) == ["lla…-abcde"]


def test_no_name_vanishes_when_one_is_the_start_of_another() -> None:
    shown = shown_names(["pod-aaaaaaaaaa-", "pod-aaaaaaaaaa-1"], 8)
    assert all(shown)
    assert len(set(shown)) == 2


def test_a_name_is_the_same_wherever_it_has_as_much_room() -> None:
    pods = [f"vllm-qwen3-32b-7c9f8d6b5-{end}:8000" for end in ("x2x4z", "k9j2p", "m4m4m")]
    dead, *others = [
        replace(down_replica(pod) if not place else replica(pod), target=Target(f"http://{pod}", pod))
        for place, pod in enumerate(pods)
    ]
    dead = replace(dead, events=(event("state_changed", 60, "ok -> down"),))
    alerts = [alert("TargetDown", dead.target.url, "critical", "gone", since=AT - 60)]
    shown = Picture(fleet([dead, *others], alerts=alerts))
    assert [shown.name_in(f"http://{pod}", 16) for pod in pods] == ["…x2x4z", "…k9j2p", "…m4m4m"]
    assert shown.name_in(f"http://{pods[0]}", 40) == pods[0]
    assert shown.name_in("http://elsewhere.example.net:8000", 10) == "els…t:8000"
    assert shown.name_cell(f"http://{pods[1]}", 10) == "…k9j2p    "
    lines = [
        verdict_line(shown, 80),
        events_line(shown, 120),
        alert_rows(shown, 50).line(0),
        *below_lines(shown, LoadMemory(), 80, 9),
    ]
    telling = [line_text(line) for line in lines if "x2x4z" in line_text(line)]
    assert len(telling) == 5
    assert all("…x2x4z" in line for line in telling)
