"""What a simulated fleet is made of: engines, traffic, faults, as plain data. Built-in ones: `builtin`.

Field names are those of the scenario file, so that a file is one more way to build the same values.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.faults import Fault

DEFAULT_SLO = Slo()


@frozen
class StepTime:
    """Time of one engine step, linear in what the step does."""

    base_ms: float
    per_token_us: float
    per_kv_token_ns: float
    per_draft_ms: float = 0.0

    def seconds(self, scheduled_tokens: int, kv_tokens: int, draft_tokens: int) -> float:
        """Step time in seconds: `scheduled_tokens` in the step (k+1 for a decoding request), `kv_tokens` of
        all running requests, `draft_tokens` k drafted for each decoding request.
        """
        return (self.fixed_ms(scheduled_tokens, draft_tokens) + self.per_kv_token_ns * kv_tokens / 1e6) / 1e3

    def fixed_ms(self, scheduled_tokens: int, draft_tokens: int) -> float:
        """The part that does not depend on the KV cache, in milliseconds."""
        return self.base_ms + self.per_token_us * scheduled_tokens / 1e3 + self.per_draft_ms * draft_tokens

    def slowed(self, factor: float) -> StepTime:
        """The same step on hardware that is `factor` times slower."""
        return StepTime(
            self.base_ms * factor,
            self.per_token_us * factor,
            self.per_kv_token_ns * factor,
            self.per_draft_ms * factor,
        )


@frozen
class EngineSettings:
    """One replica's engine. `acceptance[i]` is the unconditional probability that draft position i is
    accepted; positions past `num_speculative_tokens` are known and not drafted.

    The sizes are those of one data-parallel rank; `gpus` is the number of all `ranks` together.
    `thinking_token_budget` is the default of requests, -1: none. A restart takes `restart_seconds`.
    `gpu_throttled` is what its GPUs report; how slow that makes it is in `step`.
    """

    model: str
    max_model_len: int
    gpus: int
    kv_blocks: int
    step: StepTime
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256
    num_speculative_tokens: int = 0
    acceptance: tuple[float, ...] = ()
    block_size: int = 16
    thinking_token_budget: int = -1
    restart_seconds: float = 60.0
    kind: EngineKind = EngineKind.VLLM
    role: Role = Role.AGGREGATED
    ranks: int = 1
    gpu_throttled: bool = False

    def __post_init__(self) -> None:
        if len(self.acceptance) < self.num_speculative_tokens:
            raise ConfigError(
                f"{self.model}: acceptance has {len(self.acceptance)} numbers for "
                f"num_speculative_tokens = {self.num_speculative_tokens}; give one a position"
            )
        if any(
            later > earlier
            for earlier, later in zip((1.0, *self.acceptance), (*self.acceptance, 0.0), strict=True)
        ):
            raise ConfigError(f"{self.model}: acceptance must lie between 0 and 1 and never rise by position")
        if self.max_num_batched_tokens < self.max_num_seqs * (1 + self.num_speculative_tokens):
            raise ConfigError(
                f"{self.model}: max_num_batched_tokens = {self.max_num_batched_tokens} is below "
                f"max_num_seqs x (1 + num_speculative_tokens); raise it"
            )
        if self.kv_capacity_tokens < self.max_model_len + 1 + self.num_speculative_tokens:
            raise ConfigError(
                f"{self.model}: kv_blocks cannot hold one request of max_model_len; raise kv_blocks"
            )

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens that the KV cache can hold."""
        return self.kv_blocks * self.block_size


@frozen
class Lengths:
    """A log-normal length in tokens; a median of 0 means none at all."""

    median: float
    sigma: float


class Arrival(StrEnum):
    """How requests arrive; the mean rate is the same."""

    POISSON = "poisson"
    BURSTY = "bursty"  # half of all requests come in bursts
    DIURNAL = "diurnal"  # the rate swings as a sine wave


@frozen
class Traffic:
    """What one replica is asked for.

    A request starts with probability `shared_prefix_ratio` with one of `shared_prefixes` prefixes of
    `shared_prefix_tokens`; a share `long_ratio` of the requests has a prompt of `long_prompt_tokens` instead.
    `abort_ratio` of the clients hang up while they are being answered. Bursts come at `burst_ratio` times the
    mean rate and last `burst_seconds` on average; a diurnal rate swings by `wave_ratio` around its mean.
    `rank_weights` shares the requests out over the ranks; empty: evenly.
    """

    requests_per_second: float
    prompt_tokens: Lengths
    answer_tokens: Lengths
    reasoning_tokens: Lengths = Lengths(0.0, 0.0)
    shared_prefix_tokens: int = 0
    shared_prefix_ratio: float = 0.0
    shared_prefixes: int = 1
    long_ratio: float = 0.0
    long_prompt_tokens: Lengths = Lengths(0.0, 0.0)
    max_tokens: int = 2048
    abort_ratio: float = 0.0
    arrival: Arrival = Arrival.POISSON
    burst_ratio: float = 3.0
    burst_seconds: float = 20.0
    wave_ratio: float = 0.5
    wave_period_seconds: float = 600.0
    rank_weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.requests_per_second > 0:
            raise ConfigError(f"requests_per_second must be above 0, not {self.requests_per_second}")
        if not self.burst_ratio > 1:
            raise ConfigError(f"burst_ratio must be above 1, not {self.burst_ratio}")
        if not 0 <= self.wave_ratio <= 1:
            raise ConfigError(f"wave_ratio must lie between 0 and 1, not {self.wave_ratio}")
        if any(not weight > 0 for weight in self.rank_weights):
            raise ConfigError("rank_weights must be above 0")
        if self.shared_prefixes < 1:
            raise ConfigError(f"shared_prefixes must be at least 1, not {self.shared_prefixes}")

    def share_of_rank(self, rank: int, ranks: int) -> float:
        """The share of the replica's requests that goes to `rank`. ConfigError: not one weight a rank."""
        if not self.rank_weights:
            return 1.0 / ranks
        if len(self.rank_weights) != ranks:
            raise ConfigError(f"rank_weights has {len(self.rank_weights)} numbers for ranks = {ranks}")
        return self.rank_weights[rank] / sum(self.rank_weights)


@frozen
class ReplicaPlan:
    """One replica of a scenario."""

    engine: EngineSettings
    traffic: Traffic
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        self.traffic.share_of_rank(0, self.engine.ranks)

    def with_traffic(self, **changes: object) -> ReplicaPlan:
        """The same replica under other traffic; `changes` are fields of `Traffic`."""
        return replace(self, traffic=replace(self.traffic, **changes))  # type: ignore[arg-type]

    def with_engine(self, **changes: object) -> ReplicaPlan:
        """The same replica with another engine; `changes` are fields of `EngineSettings`."""
        return replace(self, engine=replace(self.engine, **changes))  # type: ignore[arg-type]

    def with_faults(self, *faults: Fault) -> ReplicaPlan:
        """The same replica with more faults."""
        return replace(self, faults=(*self.faults, *faults))


@frozen
class Pool:
    """Replicas named `<name>1`, `<name>2`, ...; more of them than `members` repeat the members in turn.

    A pool gets replicas in proportion to its `size`.
    """

    name: str
    members: tuple[ReplicaPlan, ...]
    size: int = 1

    @property
    def role(self) -> Role:
        """The role of its replicas."""
        return self.members[0].engine.role


@frozen
class Scenario:
    """A fleet that can be simulated. `summary` is its line in the list of scenarios.

    `replicas` is how many there are unless the user says so, `duration_seconds` how long a stepped run lasts.
    Replicas of a prefill pool hand their requests over to those of the decode pools, which takes
    `transfer_seconds`. `faults` name a replica by its number in the fleet, from 1 on.
    """

    name: str
    summary: str
    pools: tuple[Pool, ...]
    slo: Slo = DEFAULT_SLO
    replicas: int = 12
    duration_seconds: float = 300.0
    transfer_seconds: float = 0.02
    faults: tuple[tuple[int, Fault], ...] = ()

    def __post_init__(self) -> None:
        roles = {pool.role for pool in self.pools}
        if (Role.PREFILL in roles) is not (Role.DECODE in roles):
            raise ConfigError(f"{self.name}: prefill and decode pools need each other")

    def plans(self, replicas: int) -> list[tuple[str, ReplicaPlan]]:
        """Name and plan of each of `replicas` replicas.

        Raises:
            ConfigError: there are too few replicas for the pools, or for the faults.
        """
        if replicas < 1:
            raise ConfigError(f"a simulated fleet needs at least 1 replica, not {replicas}")
        counts = self._shared_out(replicas)
        for role in (Role.PREFILL, Role.DECODE):
            of_role = [number for pool, number in zip(self.pools, counts, strict=True) if pool.role is role]
            if of_role and not sum(of_role):
                raise ConfigError(f"{replicas} replicas leave none for role {role.value}; ask for more")
        plans = [
            (f"{pool.name}{index + 1}", pool.members[index % len(pool.members)])
            for pool, number in zip(self.pools, counts, strict=True)
            for index in range(number)
        ]
        for number, fault in self.faults:
            if not 1 <= number <= replicas:
                raise ConfigError(f"a fault names replica {number}, and there are {replicas}")
            name, plan = plans[number - 1]
            plans[number - 1] = (name, plan.with_faults(fault))
        return plans

    def _shared_out(self, replicas: int) -> list[int]:
        """Replicas of each pool: the whole part of its share, and the rest to the largest fractions."""
        total = sum(pool.size for pool in self.pools)
        shares = [divmod(replicas * pool.size, total) for pool in self.pools]
        counts = [whole for whole, _ in shares]
        by_fraction = sorted(range(len(shares)), key=lambda place: -shares[place][1])
        for place in by_fraction[: replicas - sum(counts)]:
            counts[place] += 1
        return counts
