"""When requests arrive: instants of a seeded point process with a given mean rate."""

from __future__ import annotations

import math
import random

from enginetop.simulator.scenario import Arrival, Traffic


class ArrivalClock:
    """Instants in seconds since the engine began; `offset` is that instant in seconds of the fleet, so that
    all replicas see the same time of day. `share` is the share of the traffic's rate.

    `surge` multiplies the rate of what has not been drawn yet.
    """

    def __init__(self, traffic: Traffic, share: float, offset: float, seed: str) -> None:
        self.surge = 1.0
        self._random = random.Random(seed)
        self._rate = traffic.requests_per_second * share
        self._traffic = traffic
        self._offset = offset
        self._bursting = False
        self._changes_at = 0.0
        # Half of all requests come in bursts, which therefore fill 1 / (2 ratio) of the time.
        in_burst = 0.5 / traffic.burst_ratio
        self._quiet_ratio = 0.5 / (1.0 - in_burst)
        self._quiet_seconds = traffic.burst_seconds * (1.0 - in_burst) / in_burst
        if traffic.arrival is Arrival.BURSTY:
            self._bursting = self._random.random() < in_burst
            self._changes_at = self._draw_spell()

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
        waiting = self._random.expovariate(1.0)
        while True:
            ratio = self._traffic.burst_ratio if self._bursting else self._quiet_ratio
            rate = self._rate * self.surge * ratio
            if at + waiting / rate <= self._changes_at:
                return at + waiting / rate
            waiting -= (self._changes_at - at) * rate
            at = self._changes_at
            self._bursting = not self._bursting
            self._changes_at = at + self._draw_spell()

    def _draw_spell(self) -> float:
        mean = self._traffic.burst_seconds if self._bursting else self._quiet_seconds
        return self._random.expovariate(1.0 / mean)
