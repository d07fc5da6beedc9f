"""Recording rules: what is recorded under which name, and that Prometheus's own tool takes them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from collectors.prometheus.rules import rule_file, rules
from enginetop.cli.main import main
from tests.support.fake_prometheus import FakePrometheus
from tests.support.small_fleet import vllm_page

PROMTOOL = shutil.which("promtool")


def test_the_rules_of_what_is_there() -> None:
    known = {
        "vllm:time_to_first_token_seconds_bucket",
        "vllm_num_requests_running",
        "vllm:num_requests_running",
        "vllm:kv_cache_usage_perc",
        "vllm:generation_tokens_total",
        "node_load1",
    }
    ttft = '{__name__="vllm:time_to_first_token_seconds_bucket",server=""}'
    buckets = f"sum by (job, instance, le) (rate({ttft}[5m]))"
    assert dict(rules(known)) == {
        "enginetop:requests_running": (
            'sum by (job, instance) ({__name__="vllm:num_requests_running",server=""})'
            ' or sum by (job, instance) ({__name__="vllm_num_requests_running",server=""})'
        ),
        "enginetop:kv_usage_ratio": (
            'max by (job, instance) ({__name__="vllm:kv_cache_usage_perc",server=""})'
        ),
        "enginetop:generation_tokens:rate5m": (
            'sum by (job, instance) (rate({__name__="vllm:generation_tokens_total",server=""}[5m]))'
        ),
        "enginetop:ttft_seconds:buckets_rate5m": buckets,
        "enginetop:ttft_seconds:p50_5m": f"histogram_quantile(0.5, {buckets})",
        "enginetop:ttft_seconds:p95_5m": f"histogram_quantile(0.95, {buckets})",
        "enginetop:ttft_seconds:p99_5m": f"histogram_quantile(0.99, {buckets})",
    }


def test_what_one_expression_cannot_say_has_no_rule() -> None:
    assert not any("sglang:num_queue_reqs" in expression for _, expression in rules())  # totals and breakdown
    assert "num_api_requests_waiting" not in rule_file()  # a sum of two series


def test_a_part_of_a_counter_is_picked_by_its_label() -> None:
    told = dict(rules({"vllm:request_success_total"}))
    assert told["enginetop:requests_aborted:rate5m"] == (
        "sum by (job, instance) (rate("
        '{__name__="vllm:request_success_total",finished_reason=~"abort",server=""}[5m]))'
    )


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool here: apt-get install prometheus")
def test_promtool_takes_them(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rule_file())
    checked = subprocess.run(
        [str(PROMTOOL), "check", "rules", str(tmp_path / "rules.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert f"{len(list(rules()))} rules found" in checked.stdout


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    assert capsys.readouterr().out == rule_file()
    fake = FakePrometheus()
    fake.scraped({"job": "vllm", "instance": "h:1"}, 990.0, vllm_page().decode())
    with fake.serving() as url:
        assert main(["rules", "--prometheus", url]) == 0
    assert "vllm_num" not in (printed := capsys.readouterr().out)
    assert "enginetop:generation_tokens:rate5m" in printed
