"""The clock of changes: it goes on where the machine's is set back."""

from __future__ import annotations

from tuners.control.steady_clock import SteadyClock


def test_it_goes_on_where_the_clock_is_set_back() -> None:
    looks = [(100.0, 0.0), (104.0, 4.0), (50.0, 6.0), (53.0, 9.0), (20.0, 10.0), (7000.0, 11.0)]
    walls, times = (iter(one) for one in zip(*looks, strict=True))
    clock = SteadyClock(lambda: next(walls), lambda: next(times))
    # two seconds later, set back by 56; three; one more, set back by 34: 90 ahead from then on, forward too
    assert [clock() for _ in looks] == [100.0, 104.0, 106.0, 109.0, 110.0, 7090.0]
