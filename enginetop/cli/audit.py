"""`enginetop audit`."""

from __future__ import annotations

import argparse
import json
import time

from enginetop.cli import exit_codes
from enginetop.cli.diagnostics import tell
from enginetop.cli.settings import state_folder
from enginetop.fleet.change import AuditRow, value_text
from enginetop.fleet.errors import ConfigError
from tuners.control.audit import Audit, row_document


def run(args: argparse.Namespace) -> int:
    """Run the command: all rows that can be read, and on stderr whether the chain is intact."""
    audit = Audit(state_folder())
    try:
        check, rows = audit.verify(), audit.rows()
    except OSError as error:
        reason = (error.strerror or "not readable").lower()
        raise ConfigError(f"{state_folder()}: {reason}; make it readable, or set XDG_STATE_HOME") from None
    wanted = [row for row in rows if args.change in (None, row.change)]
    for row in wanted:
        print(json.dumps(row_document(row)) if args.format == "json" else _line(row))
    unknown = args.change is not None and not wanted
    if unknown:
        tell(f"the audit knows no change {args.change!r}")
    if not check.intact:
        tell(f"the audit is not intact: {check.problem}")
    return exit_codes.REFUSED if unknown or not check.intact else exit_codes.OK


def _line(row: AuditRow) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.at))
    verdict = f" {row.verdict}" if row.verdict else ""
    change = f"{row.target} {row.knob} {value_text(row.before)} -> {value_text(row.after)}"
    return f"{at} {row.change} {row.state}{verdict} {change} {row.detail}"
