"""Cases from the field as recordings, through `snapshot --replay`: metrics that are there twice, labels and
lines that break parsers, and burn rates that must page, or must not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli.main import main

Run = Callable[..., dict[str, Any]]
R1 = "http://r1:8000"
M = 'engine="0",model_name="m"'


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The snapshot at the end of a recording of (time, page); more are arguments of the command."""

    def snapshot(pages: Sequence[tuple[float, str]], *arguments: str) -> dict[str, Any]:
        path = tmp_path / "case.jsonl"
        records = ({"t": t, "target": R1, "path": "/metrics", "body": body} for t, body in pages)
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        assert main(["snapshot", "--replay", str(path), *arguments]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return snapshot


def gauge(name: str, value: object, labels: str = M) -> str:
    return f"# TYPE {name} gauge\n{name}{{{labels}}} {value}\n"


def counter(name: str, value: float, labels: str = M) -> str:
    return f"# TYPE {name} counter\n{name}{{{labels}}} {value}\n"


def histogram(name: str, count: float, within: float | None = None, bound: float = 0.05) -> str:
    """`within` observations up to `bound` (default: all)."""
    return (
        f"# TYPE {name} histogram\n"
        f'{name}_bucket{{{M},le="{bound}"}} {count if within is None else within}\n'
        f'{name}_bucket{{{M},le="+Inf"}} {count}\n{name}_sum{{{M}}} {count * 0.02}\n'
        f"{name}_count{{{M}}} {count}\n"
    )


RUNNING = gauge("vllm:num_requests_running", 1)


class TestOneMetricUnderTwoNames:
    """Old and new spellings stand side by side for some versions; then the old ones vanish."""

    def test_cache_and_token_times_of_both_names_are_one(self, run: Run) -> None:
        def both(count: float) -> str:
            old = gauge("vllm:gpu_cache_usage_perc", 0.62) + histogram(
                "vllm:time_per_output_token_seconds", count
            )
            new = gauge("vllm:kv_cache_usage_perc", 0.62) + histogram(
                "vllm:inter_token_latency_seconds", count
            )
            return RUNNING + old + new

        pages = [(0.0, both(500)), (60.0, both(600))]
        (found,) = run(pages)["replicas"]
        assert found["signals"]["kv_usage_ratio"]["value"] == 0.62
        assert found["signals"]["itl_seconds"]["count"] == 100
        new = gauge("vllm:kv_cache_usage_perc", 0.62) + histogram("vllm:inter_token_latency_seconds", 700)
        snapshot = run([*pages, (120.0, RUNNING + new)])
        (found,) = snapshot["replicas"]
        assert found["signals"]["kv_usage_ratio"]["value"] == 0.62
        assert found["signals"]["itl_seconds"]["count"] == 100  # from 600 to 700
        assert snapshot["alerts"] == []
        assert not [event for event in found["events"] if event["kind"] == "restarted"]

    @pytest.mark.parametrize("first", [0, 1])
    def test_the_newer_name_wins_wherever_it_stands(self, run: Run, first: int) -> None:
        names = [gauge("vllm:gpu_cache_usage_perc", 0.9), gauge("vllm:kv_cache_usage_perc", 0.3)]
        page = RUNNING + names[first] + names[1 - first]
        (found,) = run([(0.0, page), (60.0, page)])["replicas"]
        assert found["signals"]["kv_usage_ratio"]["value"] == 0.3

    def test_prefix_counters_of_both_names_are_one_ratio(self, run: Run) -> None:
        def page(queries: float, hits: float) -> str:
            return RUNNING + "".join(
                counter(f"vllm:{prefix}prefix_cache_{what}_total", value)
                for prefix in ("gpu_", "")
                for what, value in (("queries", queries), ("hits", hits))
            )

        # 800 queries and 200 hits in the window, whatever came before it
        (found,) = run([(0.0, page(1000, 900)), (60.0, page(1800, 1100))])["replicas"]
        assert found["signals"]["prefix_hit_ratio"]["value"] == 0.25

    def test_colon_and_underscore_with_and_without_total(self, run: Run) -> None:
        def page(tokens: float) -> str:
            return RUNNING + "".join(
                counter(name, value)
                for name, value in (
                    ("vllm:generation_tokens_total", tokens),
                    ("vllm_generation_tokens_total", 7 * tokens),
                    ("vllm_generation_tokens", 9 * tokens),
                )
            )

        # 3000 tokens in 60 s by the colon form, and by no sum of the three
        (found,) = run([(0.0, page(0)), (60.0, page(3000))])["replicas"]
        assert found["signals"]["generation_tokens_per_second"]["value"] == 50.0


class TestLabelsAndLinesThatBreakParsers:
    def test_a_path_with_quotes_braces_and_commas(self, run: Run) -> None:
        labels = r'engine="0",model_name="C:\\m\\q\"4\" {x},y"'
        page = (
            f"vllm:num_requests_running{{{labels}}} 1\n"
            'vllm:num_requests_waiting{model_name="x"y"} 2\n'
            f"vllm:kv_cache_usage_perc{{{labels}}} -nan\n"
        )
        (found,) = run([(0.0, page), (60.0, page)])["replicas"]
        assert found["model"] == 'C:\\m\\q"4" {x},y'
        assert found["bad_lines"] == 1
        assert found["state"] == "ok"
        assert found["signals"]["requests_running"]["value"] == 1
        assert found["signals"]["kv_usage_ratio"]["value"] is None
        assert found["signals"]["requests_waiting"]["value"] is None

    @pytest.mark.parametrize(
        ("written", "read"),
        [
            (r"a,b=\"c\"", 'a,b="c"'),
            ("{curly} and spaces", "{curly} and spaces"),
            (r"back\\slash\\", "back\\slash\\"),
            ("le=5,}", "le=5,}"),
            ("模型 7B", "模型 7B"),
            ("# HELP no comment", "# HELP no comment"),
        ],
    )
    def test_other_names_of_models(self, run: Run, written: str, read: str) -> None:
        page = f'vllm:num_requests_running{{engine="0",model_name="{written}"}} 3\n'
        (found,) = run([(0.0, page), (60.0, page)])["replicas"]
        assert (found["model"], found["bad_lines"]) == (read, 0)
        assert found["signals"]["requests_running"]["value"] == 3

    @pytest.mark.parametrize(
        "bad",
        [
            'vllm:num_requests_waiting{model_name="m} 2',
            "vllm:num_requests_waiting{model_name=m} 2",
            'vllm:num_requests_waiting{model_name="m"',
            'vllm:num_requests_waiting{model_name="m"} ',
            'vllm:num_requests_waiting{model_name="m"} two',
            '{model_name="m"} 2',
        ],
    )
    def test_one_bad_line_costs_one_figure(self, run: Run, bad: str) -> None:
        page = f"{RUNNING}{bad}\n{gauge('vllm:kv_cache_usage_perc', 0.5)}"
        (found,) = run([(0.0, page), (60.0, page)])["replicas"]
        assert (found["bad_lines"], found["state"], found["model"]) == (1, "ok", "m")
        assert found["signals"]["kv_usage_ratio"]["value"] == 0.5
        assert found["signals"]["requests_waiting"]["value"] is None

    @pytest.mark.parametrize(
        ("number", "read"), [("1e3", 1000.0), ("+Inf", None), ("-nan", None), ("NaN", None)]
    )
    def test_numbers_as_programs_write_them(self, run: Run, number: str, read: float | None) -> None:
        page = RUNNING + gauge("vllm:num_requests_waiting", number)
        (found,) = run([(0.0, page), (60.0, page)])["replicas"]
        assert found["signals"]["requests_waiting"]["value"] == read
        assert found["bad_lines"] == 0


SPACING = 15.0


class Story:
    """Pages 15 s apart, each with so many requests ended and so many of them late."""

    def __init__(self) -> None:
        self.pages: list[tuple[float, str]] = []
        self._ended = self._late = 0
        self._page()

    def goes_on(self, seconds: float, ended: int, late: Sequence[int]) -> Story:
        """`late` takes turns."""
        for number in range(round(seconds / SPACING)):
            self._ended += ended
            self._late += late[number % len(late)]
            self._page()
        return self

    def _page(self) -> None:
        page = (
            RUNNING
            + counter("vllm:request_success_total", self._ended, f'{M},finished_reason="stop"')
            + histogram("vllm:time_to_first_token_seconds", self._ended, self._ended - self._late, bound=0.5)
            + histogram("vllm:request_time_per_output_token_seconds", self._ended)
        )
        self.pages.append((SPACING * len(self.pages), page))


def burn(snapshot: dict[str, Any], hours: float = 1) -> dict[str, Any]:
    rows = snapshot["fleet"]["goodput"]["burn"]
    found: dict[str, Any] = next(row for row in rows if row["long_seconds"] == 3600 * hours)
    return found


def paging(snapshot: dict[str, Any]) -> bool:
    return any(
        alert["rule"] == "BudgetBurn" and alert["severity"] == "critical" and alert["state"] == "firing"
        for alert in snapshot["alerts"]
    )


def slo(target: float) -> tuple[str, str]:
    return "--slo", f"ttft=0.5,tpot=0.05,target={target}"


class TestBurnRates:
    def test_fifteen_and_sixteen_page_and_a_good_five_minutes_clear_it(self, run: Run) -> None:
        # 220 pages with 164 late of 1100, 20 with 176 (16 %): in the hour (36080 + 3520) / 264000 = 15 %
        story = Story().goes_on(3300, 1100, [164]).goes_on(300, 1100, [176])
        snapshot = run(story.pages, *slo(0.99))
        assert burn(snapshot)["long"] == pytest.approx(15.0)
        assert burn(snapshot)["short"] == pytest.approx(16.0)
        assert (burn(snapshot)["threshold"], burn(snapshot)["firing"]) == (14.4, True)
        assert paging(snapshot)
        # 5 min with 5 or 6 late of 1100: 0.5 %
        snapshot = run(story.goes_on(300, 1100, [5, 6]).pages, *slo(0.99))
        assert burn(snapshot)["short"] == pytest.approx(0.5)
        assert burn(snapshot)["long"] > 13.5
        assert not burn(snapshot)["firing"]

    def test_an_objective_of_ninety_percent_can_never_page_so_fast(self, run: Run) -> None:
        snapshot = run(Story().goes_on(3600, 100, [100]).pages, *slo(0.9))
        row = burn(snapshot)
        assert row["long"] == row["short"] == pytest.approx(10.0)  # 1 / (1 - 0.9): everything is late
        assert (row["firing"], row["reachable"]) == (False, False)

    @pytest.mark.parametrize(("target", "reachable"), [(0.93, False), (0.931, True), (0.95, True)])
    def test_from_which_objective_on_it_can(self, run: Run, target: float, reachable: bool) -> None:
        # 1 - 1 / 14.4 = 0.93056
        assert burn(run(Story().goes_on(30, 10, [0]).pages, *slo(target)))["reachable"] is reachable

    @pytest.mark.parametrize(("late", "rate", "firing"), [(73, 14.6, True), (71, 14.2, False)])
    def test_either_side_of_the_threshold(self, run: Run, late: int, rate: float, firing: bool) -> None:
        snapshot = run(Story().goes_on(3600, 100, [late]).pages, *slo(0.95))
        assert burn(snapshot)["long"] == pytest.approx(rate)  # late % over a budget of 5 %
        assert burn(snapshot)["firing"] is firing

    def test_a_bad_five_minutes_alone_does_not_page(self, run: Run) -> None:
        # 20 of 240 pages half late: the hour has 50 / 12 = 4.17 %, 5 min have 50 %
        snapshot = run(Story().goes_on(3300, 100, [0]).goes_on(300, 100, [50]).pages, *slo(0.99))
        assert burn(snapshot)["short"] == pytest.approx(50.0)
        assert burn(snapshot)["long"] == pytest.approx(50 / 12)
        assert not burn(snapshot)["firing"]

    def test_six_hours_at_six_times(self, run: Run) -> None:
        # 31 % late over a budget of 5 %: 6.2; the hour is then below 14.4
        snapshot = run(Story().goes_on(6 * 3600, 100, [31]).pages, *slo(0.95))
        assert burn(snapshot, 6)["long"] == pytest.approx(6.2)
        assert burn(snapshot, 6)["firing"]
        assert not burn(snapshot)["firing"]
        assert paging(snapshot)

    @pytest.mark.parametrize(
        ("late", "rate", "firing"), [([1, 1, 0], 50 / 3, False), ([1, 1, 1], 25.0, True)]
    )
    def test_few_requests_need_ten_bad_ones(
        self, run: Run, late: list[int], rate: float, firing: bool
    ) -> None:
        # at the end of each quarter of an hour three pages of 4 requests: 8 bad ones of 48 in the hour, or 12
        story = Story()
        for _ in range(4):
            story.goes_on(855, 0, [0]).goes_on(45, 4, late)
        row = burn(run(story.pages, *slo(0.99)))
        assert row["long"] == row["short"] == pytest.approx(rate)
        assert row["firing"] is firing

    def test_a_history_shorter_than_the_window_is_not_known(self, run: Run) -> None:
        snapshot = run(Story().goes_on(1800, 100, [100]).pages, *slo(0.99))
        assert burn(snapshot)["long"] is None
        assert burn(snapshot)["short"] == pytest.approx(100.0)
        assert not burn(snapshot)["firing"]
