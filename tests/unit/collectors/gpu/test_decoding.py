"""Profiles, parts and host memory, against figures published by NVIDIA."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.gpu import decoding
from enginetop.fleet.throttle import ALARMING_THROTTLE_WORDS, THROTTLE_REASONS, throttle_words

MIB = 1024**2


@pytest.mark.parametrize(
    ("name", "slices", "board_mib", "profile"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None, None, "1g.5gb"),
        ("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", None, None, "1c.3g.20gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", (7, 7, 81559), 81559, "1g.10gb+me"),
        # Memory of profiles (nvidia-smi mig -lgip) and of boards: A100 40 GB, then 80 GB boards.
        ("", (1, 1, 4864), 40536, "1g.5gb"),
        ("", (3, 3, 19968), 40536, "3g.20gb"),
        ("", (7, 7, 40192), 40536, "7g.40gb"),
        ("", (1, 1, 9856), 81559, "1g.10gb"),
        ("", (4, 2, 40192), 81559, "2c.4g.40gb"),
        ("", None, 81559, "unknown"),
        ("", (1, 1, 9856), None, "unknown"),
    ],
)
def test_mig_profiles(
    name: str, slices: tuple[int, int, int] | None, board_mib: int | None, profile: str
) -> None:
    board = None if board_mib is None else float(board_mib * MIB)
    assert decoding.mig_profile(name, slices, board) == profile


@pytest.mark.parametrize(
    "text",
    ["", "MemTotal: 100 kB\n", "MemAvailable: 100 kB\n", "MemTotal: many kB\nMemAvailable: 3 kB\n", "\0\xff"],
)
def test_without_meminfo_the_hosts_memory_is_not_known(tmp_path: Path, text: str) -> None:
    assert decoding.host_memory(tmp_path) == (None, None)
    (tmp_path / "meminfo").write_text(text, "latin-1")
    assert decoding.host_memory(tmp_path) == (None, None)


def test_only_what_nvidia_calls_hardware_throttling_alarms() -> None:
    assert {"hw_slowdown", "hw_thermal", "hw_power_brake"} == ALARMING_THROTTLE_WORDS
    assert [reason.bit for reason in THROTTLE_REASONS] == [1 << n for n in range(9)]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_every_bit_of_a_mask_has_one_word(mask: int) -> None:
    words = throttle_words(mask)
    assert len(words) == len(set(words)) == mask.bit_count()
