"""`enginetop rules`: recording rules for a Prometheus, to keep and to draw what enginetop shows."""

from __future__ import annotations

import argparse

from collectors.prometheus.rules import rule_file
from enginetop.cli import exit_codes
from enginetop.cli.diagnostics import tell
from enginetop.cli.prometheus import client_of
from enginetop.cli.resolve import resolve
from enginetop.fleet.errors import ConfigError

_RECENT_SECONDS = 3600.0


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    settings = resolve(args, tell)
    known = None
    if settings.prometheus is not None:
        from collectors.prometheus.client import PrometheusError

        client = client_of(settings.prometheus)
        try:
            now = client.now()
            known = frozenset(client.label_values("__name__", now - _RECENT_SECONDS, now))
        except PrometheusError as error:
            raise ConfigError(str(error)) from None
        finally:
            client.close()
    print(rule_file(known), end="")
    return exit_codes.OK
