"""Who belongs to the fleet: differences between lists, identities that move, flapping without doubles."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.discovery.listing import Listed
from collectors.discovery.roster import Changes, Roster
from enginetop.fleet.model import Target


def at(place: str, name: str = "") -> Target:
    return Target(f"http://{place}:8000", name or place)


def listed(place: str, identity: str = "", name: str = "") -> Listed:
    return Listed(at(place, name), identity)


def test_new_ones_join_and_missing_ones_leave_and_are_forgotten_later() -> None:
    roster = Roster((at("fixed"),), kept_seconds=60.0)
    assert roster.take("f", [listed("a"), listed("b")], 0.0) == Changes(joined=(at("a"), at("b")))
    assert roster.take("f", [listed("b")], 10.0) == Changes(left=("http://a:8000",))
    assert roster.targets == (at("fixed"), at("b"))
    assert roster.expire(69.9) == Changes()
    assert roster.expire(70.0) == Changes(dropped=("http://a:8000",))
    assert roster.take("f", [listed("b")], 80.0) == Changes()


def test_one_that_flaps_is_the_same_one() -> None:
    roster = Roster(kept_seconds=60.0)
    roster.take("f", [listed("a")], 0.0)
    for now in (10.0, 20.0, 30.0):
        assert roster.take("f", [], now).left == ("http://a:8000",)
        back = roster.take("f", [listed("a")], now + 5)
        assert back == Changes(moved=(("http://a:8000", at("a")),))
    assert roster.expire(1000.0) == Changes()


def test_one_that_moves_is_followed_by_its_identity() -> None:
    roster = Roster()
    roster.take("f", [listed("a", "pod-1")], 0.0)
    assert roster.take("f", [listed("b", "pod-1")], 5.0) == Changes(moved=(("http://a:8000", at("b")),))
    assert roster.targets == (at("b"),)


def test_one_that_was_away_comes_back_elsewhere() -> None:
    roster = Roster()
    roster.take("f", [listed("a", "pod-1")], 0.0)
    roster.take("f", [], 5.0)
    assert roster.take("f", [listed("b", "pod-1")], 9.0) == Changes(moved=(("http://a:8000", at("b")),))


def test_two_that_change_places_change_places() -> None:
    roster = Roster()
    roster.take("f", [listed("a", "1"), listed("b", "2")], 0.0)
    changes = roster.take("f", [listed("a", "2"), listed("b", "1")], 5.0)
    assert dict(changes.moved) == {"http://a:8000": at("b"), "http://b:8000": at("a")}
    assert not changes.dropped
    assert not changes.joined
    assert not changes.left


def test_one_that_moves_to_the_place_of_another_takes_it() -> None:
    roster = Roster()
    roster.take("f", [listed("a", "1"), listed("b", "2")], 0.0)
    changes = roster.take("f", [listed("b", "1")], 5.0)
    assert changes == Changes(dropped=("http://b:8000",), moved=(("http://a:8000", at("b")),))
    assert roster.targets == (at("b"),)


def test_an_identity_of_several_addresses_is_none() -> None:
    roster = Roster()
    first = roster.take("f", [listed("a", "same"), listed("b", "same")], 0.0)
    assert first.joined == (at("a"), at("b"))
    assert roster.take("f", [listed("b", "same"), listed("c", "same")], 1.0) == Changes(
        left=("http://a:8000",), joined=(at("c"),)
    )


def test_two_sources_that_list_one_address_list_one_replica() -> None:
    roster = Roster()
    roster.take("f", [listed("a", "pod")], 0.0)
    assert roster.take("g", [listed("a", "other"), listed("a")], 1.0) == Changes()
    assert roster.take("f", [], 2.0) == Changes()  # g still lists it
    assert roster.take("g", [], 3.0) == Changes(left=("http://a:8000",))


def test_a_fixed_target_is_not_listed_again() -> None:
    roster = Roster((at("a"),))
    assert roster.take("f", [listed("a", "1")], 0.0) == Changes()
    assert roster.take("f", [], 1.0) == Changes()
    assert roster.targets == (at("a"),)


def test_names_stay_apart() -> None:
    roster = Roster((at("x", "n"),))
    joined = roster.take("f", [listed("a", name="n"), listed("b", name="n")], 0.0).joined
    assert [target.name for target in joined] == ["n (2)", "n (3)"]
    assert roster.take("f", [listed("a", name="n"), listed("b", name="n")], 1.0) == Changes()


def test_what_is_told_of_a_target_may_change_in_place() -> None:
    roster = Roster()
    roster.take("f", [listed("a")], 0.0)
    told = Target("http://a:8000", "a", model="m")
    assert roster.take("f", [Listed(told)], 1.0) == Changes(moved=(("http://a:8000", told),))


PLACES = st.sampled_from("abcd")
LISTS = st.lists(st.tuples(PLACES, st.sampled_from(["", "1", "2", "3"])), max_size=5)
STEPS = st.lists(st.tuples(st.sampled_from("fg"), LISTS), max_size=12)


@settings(max_examples=120, deadline=None)
@given(STEPS)
def test_differences_add_up_to_the_lists(steps: list[tuple[str, list[tuple[str, str]]]]) -> None:
    """Whoever applies the differences has exactly the listed addresses, each once, whatever the lists do."""
    roster = Roster((at("d"),), kept_seconds=3.0)
    fleet: dict[str, bool] = {}  # URL: present
    lists: dict[str, set[str]] = {}
    for now, (source, pairs) in enumerate(steps):
        changes = roster.take(source, [listed(place, identity) for place, identity in pairs], float(now))
        lists[source] = {at(place).url for place, _ in pairs}
        for url in changes.dropped:
            del fleet[url]
        moved = dict(changes.moved)
        assert moved.keys() <= fleet.keys()
        kept = {url: present for url, present in fleet.items() if url not in moved}
        fleet = {**kept, **{target.url: True for target in moved.values()}}
        assert len(fleet) == len(kept) + len(moved)
        for url in changes.left:
            assert fleet[url]
            fleet[url] = False
        for target in changes.joined:
            assert target.url not in fleet
            fleet[target.url] = True
        wanted = set().union(*lists.values()) - {at("d").url}
        assert {url for url, present in fleet.items() if present} == wanted
        assert [target.url for target in roster.targets if target.url != at("d").url] == [
            url for url in (target.url for target in roster.targets) if url in wanted
        ]
        assert len({target.name for target in roster.targets}) == len(roster.targets)
        for url in roster.expire(float(now)).dropped:
            assert not fleet.pop(url)
