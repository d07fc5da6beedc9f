"""Names stay different from one another when they are cut."""

from __future__ import annotations

from tui.view.names import shown_names


def test_names_that_fit_stay() -> None:
    assert shown_names(["a1", "b200"], 8) == ["a1", "b200"]


def test_a_shared_port_goes_first() -> None:
    assert shown_names(["10.0.0.13:8000", "10.0.0.14:8000"], 9) == ["10.0.0.13", "10.0.0.14"]


def test_then_a_shared_start_up_to_a_separator() -> None:
    assert shown_names(["127.0.0.1:18001", "127.0.0.1:18002"], 8) == ["…18001", "…18002"]
    names = ["llama-70b-decode-6f9c-abcde", "llama-70b-decode-6f9c-xyzuv"]
    assert shown_names(names, 8) == ["…abcde", "…xyzuv"]


def test_a_name_alone_is_cut_in_the_middle() -> None:
    assert shown_names(["llama-70b-decode-abcde"], 10) == ["lla…-abcde"]


def test_no_name_vanishes_when_one_is_the_start_of_another() -> None:
    shown = shown_names(["pod-aaaaaaaaaa-", "pod-aaaaaaaaaa-1"], 8)
    assert all(shown)
    assert len(set(shown)) == 2
