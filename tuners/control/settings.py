"""How changes are tried out: the `[control]` table, with its defaults."""

from __future__ import annotations

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Target


@frozen
class ControlSettings:
    """Times are seconds.

    A canary is observed over `blocks` blocks of `block_seconds` after `warmup_seconds`. `alpha` is the
    one-sided error of `improved` and of `worse` each; `margin` the loss of SLO attainment (a ratio) that
    `not_worse` rules out, beside that of a tenth of what the baselines attain. A value goes back by itself
    after `ttl_seconds` unless renewed, where its path counts down. At most `baselines` other replicas are
    compared with. Promotion goes in waves of at most `wave_ratio` of the replicas (at least one) and of at
    most `most_at_once`, baselines last, with `soak_seconds` between waves. An engine that was restarted has
    cold caches: its warm-up lasts at least `restart_warmup_seconds`.

    `accept_open_admin`: engines that whoever reaches their port can change are changed all the same; all of
    them, or those of these names and addresses.
    """

    warmup_seconds: float = 120.0
    blocks: int = 30
    block_seconds: float = 60.0
    alpha: float = 0.05
    margin: float = 0.01
    ttl_seconds: float = 180.0
    baselines: int = 4
    wave_ratio: float = 0.25
    most_at_once: int | None = None
    soak_seconds: float = 60.0
    restart_warmup_seconds: float = 300.0
    accept_open_admin: bool | frozenset[str] = False

    @property
    def observation_seconds(self) -> float:
        """How long a canary is observed, warm-up included."""
        return self.warmup_seconds + self.blocks * self.block_seconds

    def accepts_open(self, target: Target) -> bool:
        """Whether the user accepts that anybody can change this target."""
        accepted = self.accept_open_admin
        return accepted if isinstance(accepted, bool) else not accepted.isdisjoint((target.name, target.url))
