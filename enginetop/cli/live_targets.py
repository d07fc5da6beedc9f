"""Who is to be watched now, and whether this machine's GPUs are among what is seen."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from enginetop.cli.discovering import LOCAL, membership
from enginetop.cli.record_logs import record_logs
from enginetop.cli.settings import Settings, config_path
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import LOCAL_HOST, Target, same_host
from enginetop.fleet.ports import GpuSource


def live_targets(settings: Settings, *, may_come: bool = False) -> tuple[Target, ...]:
    """The targets to scrape now: named ones, and what discovery finds; else engines on this machine.

    How those that were found are reached is added to `settings.credentials`. ConfigError when there are none
    (`may_come`: and none can come), or when a log of requests belongs to none of them. A Prometheus knows its
    own.
    """
    if settings.prometheus is not None:
        return ()
    targets = settings.targets
    members = membership(settings.discovery, targets, settings.credentials)
    if members is not None:
        targets = members.begin(time.time())
        settings.credentials.update(members.credentials)
    follows = settings.discovery not in ((), LOCAL)
    if not targets and follows and (members is None or members.problem or not may_come):
        problem = members.problem if members is not None else ""
        raise ConfigError(problem or "discovery lists no target; see what it is asked with --discover")
    if not targets and not follows:
        raise ConfigError(
            "nothing to watch: name a target (enginetop host:port), list targets in "
            f"{settings.origin or config_path()}, or try `enginetop demo`"
        )
    record_logs(settings.records, targets)
    return targets


def local_gpus(targets: Sequence[Target]) -> GpuSource | None:
    """This machine's GPUs when a target runs on it; those of other machines are not ours to show."""
    own = socket.gethostname()
    here = any(same_host(target.host, LOCAL_HOST) or same_host(target.host, own) for target in targets)
    if not here:
        return None
    from collectors.gpu.source import NvmlSource

    return NvmlSource()
