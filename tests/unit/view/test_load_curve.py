"""The load curve as rows."""

from __future__ import annotations

from enginetop.fleet.load_curve import LoadPoint, load_curve
from tests.tui.snapshots import fleet, replica
from tui.view.cells import line_text
from tui.view.detail import detail_lines
from tui.view.load_curve import curve_lines
from tui.view.picture import Picture

POINTS = [
    LoadPoint(8, 5.2, 1.0, 0.21),
    LoadPoint(16, 9.8, 1.0, 0.37),
    LoadPoint(32, 12.2, 0.976, 0.42),
    LoadPoint(48, 7.4, 0.536, 0.68),
    LoadPoint(64, 2.1, 0.15, 1.2),
]


def test_a_row_for_each_bin_and_the_knee_by_hand() -> None:
    lines = curve_lines(load_curve(POINTS, 0.5, least_points=1), 0.5, bar_width=10)
    # 5.2 of 12.2 of ten cells are 34.1 eighths, 9.8 are 64.3, 7.4 are 48.52, so 49, and 2.1 are 13.8
    assert [line_text(line) for line in lines] == [
        " running   good/s  within %  TTFT p99 ms  windows",
        "    8.00     5.20     100.0          210        1 ████▎     ",
        "    16.0     9.80     100.0          370        1 ████████  ",
        "    32.0     12.2      97.6          420        1 ██████████ ◄ knee",
        "    48.0     7.40      53.6          680        1 ██████▏   ",
        "    64.0     2.10      15.0         1200        1 █▊        ",
        " knee at 32.0 running: 12.2 good/s; at 48 goodput is 7.4/s, TTFT p99 0.68 s",
    ]


def test_estimates_are_marked_and_why_there_is_no_knee_is_said() -> None:
    points = [LoadPoint(8, 5.2, None, None, estimated=True)] * 3
    lines = [line_text(line) for line in curve_lines(load_curve(points, 0.5), 0.5, 4)]
    assert lines == [
        " running  good/s?  within %  TTFT p99 ms  windows",
        "    8.00     5.20         –            –        3 ████",
        " no knee named: 1 of 3 loads seen",
    ]


def test_the_replica_view_shows_it_once_there_is_a_bin() -> None:
    columns = {name: (value,) * 3 for name, value in (("running", 8.0), ("good_per_second", 5.0))}
    unknown = dict.fromkeys(("attainment", "ttft_p99_seconds", "estimated"), (None,) * 3)
    one, other = replica("a1", load=columns | unknown), replica("a2")
    picture = Picture(fleet([one, other]))
    assert any(
        line_text(line).startswith(" load curve") for line in detail_lines(picture, one.target.url, 120)
    )
    assert not any("load curve" in line_text(line) for line in detail_lines(picture, other.target.url, 120))
