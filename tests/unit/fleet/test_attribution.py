"""Whose a record is."""

from __future__ import annotations

import pytest

from enginetop.fleet.attribution import ClaimedRecord, Owner, owner_of
from enginetop.fleet.model import Target
from enginetop.fleet.request_records import RequestFigures

R1, R2, BASE = (
    Target("http://r1:8000", "one"),
    Target("http://r2:8000", "two"),
    Target("http://gate/team-a", "three"),
)
FLEET = [(R1, "qwen"), (R2, "qwen"), (BASE, "llama")]
THE_FLEETS, NOBODYS = Owner(), Owner(foreign=True)


def claim(**told: str) -> ClaimedRecord:
    return ClaimedRecord(RequestFigures(1.0), **told)


@pytest.mark.parametrize(
    ("record", "owner"),
    [
        (claim(assigned=R2.url, model="llama", api_base=R1.url), Owner(R2.url)),
        (claim(target=R1.url, api_base=R2.url), Owner(R1.url)),
        (claim(api_base="http://r1:8000/v1"), Owner(R1.url)),
        (claim(api_base="HTTP://R1:8000/v1/"), Owner(R1.url)),
        (claim(api_base="http://gate:80/team-a/v1"), Owner(BASE.url)),
        (claim(api_base="http://gate/team-abc/v1"), NOBODYS),
        (claim(api_base="http://gate/"), NOBODYS),
        (claim(api_base="https://r1:8000/v1"), NOBODYS),
        (claim(api_base="http://[broken"), NOBODYS),
        (claim(api_base="http://r1:99999999"), NOBODYS),
        (claim(model="llama"), Owner(BASE.url)),
        (claim(model="qwen"), THE_FLEETS),
        (claim(model="qwen", api_base="http://service/v1"), THE_FLEETS),
        (claim(model="gpt"), NOBODYS),
        (claim(), THE_FLEETS),
    ],
)
def test_who_served_it(record: ClaimedRecord, owner: Owner) -> None:
    assert owner_of(record, FLEET) == owner


def test_a_record_that_says_nothing_belongs_to_the_only_target() -> None:
    assert owner_of(claim(), [(R1, "qwen")]) == Owner(R1.url)
    assert owner_of(claim(), []) == THE_FLEETS


def test_a_model_may_be_that_of_a_target_whose_model_is_not_known() -> None:
    assert owner_of(claim(model="gpt"), [(R1, "qwen"), (R2, None)]) == THE_FLEETS
