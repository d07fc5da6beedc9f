"""When requests arrive: instants of a seeded point process with a given mean rate."""

from __future__ import annotations

import math
import random

from enginetop.simulator.scenario import Arrival, Traffic


class Spells:
    """Bursts and lulls in turn, from second `begun_at` of the fleet on: `bursting` holds until `until`.

    Half of all requests come in bursts, which therefore fill 1 / (2 ratio) of the time. Equal seeds give
    equal spells: replicas that a router deals one stream to have their bursts at the same time.
    """

    def __init__(self, traffic: Traffic, seed: str, begun_at: float) -> None:
        self._random = random.Random(seed)
        in_burst = 0.5 / traffic.burst_ratio
        self._burst_seconds = traffic.burst_seconds
        self._quiet_seconds = traffic.burst_seconds * (1.0 - in_burst) / in_burst
        self._burst_ratio, self._quiet_ratio = traffic.burst_ratio, 0.5 / (1.0 - in_burst)
        self.bursting = self._random.random() < in_burst
        self.until = begun_at + self._drawn()

    @property
    def ratio(self) -> float:
        """The rate of this spell over the mean rate."""
        return self._burst_ratio if self.bursting else self._quiet_ratio

    def turn(self) -> None:
        """Go on to the next spell."""
        self.bursting = not self.bursting
        self.until += self._drawn()

    def _drawn(self) -> float:
        mean = self._burst_seconds if self.bursting else self._quiet_seconds
        return self._random.expovariate(1.0 / mean)


class ArrivalClock:
    """Instants in seconds since the engine began; `offset` is that instant in seconds of the fleet, so that
    all replicas see the same time of day. `share` is the share of the traffic's rate. `spells` are those of
    bursty traffic, its own unless given.

    `surge` multiplies the rate of what has not been drawn yet.
    """

    def __init__(
        self, traffic: Traffic, share: float, offset: float, seed: str, spells: Spells | None = None
    ) -> None:
        self.surge = 1.0
        self._random = random.Random(seed)
        self._rate = traffic.requests_per_second * share
        self._traffic = traffic
        self._offset = offset
        self._spells = spells or Spells(traffic, f"{seed}/spells", offset)

    def after(self, at: float) -> float:
        """The first arrival after `at`, the last one drawn."""
        if self._traffic.arrival is Arrival.DIURNAL:
            return self._after_in_wave(at)
        if self._traffic.arrival is Arrival.BURSTY:
            return self._after_in_bursts(at)
        return at + self._random.expovariate(self._rate * self.surge)

    def _after_in_wave(self, at: float) -> float:
        """By thinning the arrivals of the peak rate."""
        traffic, draw = self._traffic, self._random
        peak = 1.0 + traffic.wave_ratio
        while True:
            at += draw.expovariate(self._rate * self.surge * peak)
            angle = 2.0 * math.pi * (at + self._offset) / traffic.wave_period_seconds
            if draw.random() * peak < 1.0 + traffic.wave_ratio * math.sin(angle):
                return at

    def _after_in_bursts(self, at: float) -> float:
        """A unit of exponential waiting is used up at the rate of each spell."""
        waiting, spells = self._random.expovariate(1.0), self._spells
        while True:
            rate = self._rate * self.surge * spells.ratio
            ends_at = spells.until - self._offset
            if at + waiting / rate <= ends_at:
                return at + waiting / rate
            if ends_at > at:
                waiting -= (ends_at - at) * rate
                at = ends_at
            spells.turn()
