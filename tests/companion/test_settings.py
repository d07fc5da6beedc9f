from __future__ import annotations

from pathlib import Path

import pytest

from enginetop_companion.settings import (
    Address,
    Objective,
    SettingsError,
    is_on,
    read_address,
    read_objective,
    read_settings,
)


@pytest.mark.parametrize(
    ("word", "on"), [("1", True), ("true", True), ("", False), ("0", False), ("off", False)]
)
def test_off_unless_switched_on(word: str, on: bool) -> None:
    assert is_on({"ENGINETOP_COMPANION": word}) is on
    assert not is_on({})


def test_by_default_a_unix_socket_for_each_serving_port() -> None:
    mine = read_settings({"XDG_RUNTIME_DIR": "/run/user/7"}, "vllm", 8000)
    assert mine.address == Address(path=Path("/run/user/7/enginetop/vllm-8000.sock"))
    assert mine.address.is_local
    assert (mine.token_file, mine.objective) == (None, Objective(1.0, 0.1))


def test_one_environment_for_several_servers() -> None:
    listen = {
        "ENGINETOP_COMPANION_LISTEN": "unix:/run/et/{port}.sock",
        "ENGINETOP_COMPANION_TOKEN_FILE": "/t",
    }
    mine = read_settings(listen, "vllm", 8001)
    assert (str(mine.address), mine.token_file) == ("unix:/run/et/8001.sock", Path("/t"))


@pytest.mark.parametrize(
    ("text", "address", "local"),
    [
        ("127.0.0.1:9400", Address(host="127.0.0.1", port=9400), True),
        ("localhost:9400", Address(host="localhost", port=9400), True),
        ("[::1]:9400", Address(host="::1", port=9400), True),
        ("0.0.0.0:9400", Address(host="0.0.0.0", port=9400), False),
    ],
)
def test_addresses(text: str, address: Address, local: bool) -> None:
    assert read_address(text) == address
    assert str(address) == text
    assert address.is_local is local


@pytest.mark.parametrize(
    "text", ["9400", ":9400", "host:", "host:x", "host:0", "host:70000", "unix:rel", "host:\u0661"]
)
def test_an_address_that_is_none_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match="ENGINETOP_COMPANION_LISTEN"):
        read_address(text)


def test_objectives() -> None:
    assert read_objective("ttft=0.6, tpot=0.05,target=0.95") == Objective(0.6, 0.05)
    assert read_objective("tpot=0.05") == Objective(1.0, 0.05)
    assert read_objective("ttft=700ms,tpot=0.05s") == Objective(0.7, 0.05)
    for bad in (
        "ttft=ms",
        "ttft=s",
        "ttft=5mss",
        "ttft=x",
        "ttft=-1",
        "ttft=0",
        "tpot=inf",
        "tpot=nan",
        "ttft=",
    ):
        with pytest.raises(SettingsError, match="ENGINETOP_SLO"):
            read_objective(bad)
