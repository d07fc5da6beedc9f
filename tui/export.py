"""Views as files: CSV and JSON from the snapshot, names that never overwrite."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from enginetop.fleet.document import snapshot_document
from enginetop.fleet.errors import EnginetopError
from enginetop.fleet.signals import DISTRIBUTIONS, SCALARS
from enginetop.fleet.snapshot import Distribution, FleetSnapshot, ReplicaSnapshot, Scalar

_QUANTILES = ("p50", "p95", "p99")
_WHO = ("name", "target", "engine", "engine_version", "model", "role", "state", "reasons", "scraped_at")
_ALERT = ("rule", "severity", "state", "name", "target", "since", "value", "threshold", "summary")
_ALERT_QUIET = ("inhibited_by", "silenced_by", "acknowledged_by")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_SAFE = re.compile(r"[^A-Za-z0-9.-]+")
_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}\s*")
_MOST_NAMES = 1000


class ExportError(EnginetopError):
    """A view that could not be written; one line says why."""


def only(snapshot: FleetSnapshot, urls: Collection[str]) -> FleetSnapshot:
    """The snapshot with these replicas alone, and the alerts about them."""
    return replace(
        snapshot,
        replicas=tuple(one for one in snapshot.replicas if one.target.url in urls),
        alerts=tuple(alert for alert in snapshot.alerts if alert.target in urls),
    )


def form_text(snapshot: FleetSnapshot, form: str, urls: Collection[str] | None, *, alerts: bool) -> str:
    """A snapshot, or what of it is about the replicas with these URLs, as `json` or `csv`.

    `alerts`: the table is of its alerts.
    """
    shown = snapshot if urls is None else only(snapshot, urls)
    if form == "json":
        return json_text(shown)
    return alerts_csv(shown) if alerts else replicas_csv(shown)


def svg_text(drawn: str) -> str:
    """A drawing that asks nobody for anything: the fonts it would fetch are the viewer's.

    Spaces are kept, those at the ends of a text too, which librsvg takes away otherwise.
    """
    return _FONT_FACE.sub("", drawn).replace("<svg ", '<svg xml:space="preserve" ', 1)


def json_text(snapshot: FleetSnapshot) -> str:
    """The snapshot as `enginetop snapshot` prints it."""
    return json.dumps(snapshot_document(snapshot), allow_nan=False, indent=2) + "\n"


def replicas_csv(snapshot: FleetSnapshot) -> str:
    """A row a replica: who it is, every scalar, p50, p95 and p99 of every distribution.

    What is not known is an empty field. A quantile past the last bucket is its lower bound with `>=`.
    """
    heads = (
        *_WHO,
        *(signal.name for signal in SCALARS),
        *(f"{signal.name}_{quantile}" for signal in DISTRIBUTIONS for quantile in _QUANTILES),
    )
    return _csv(heads, (_replica_row(replica) for replica in snapshot.replicas))


def alerts_csv(snapshot: FleetSnapshot) -> str:
    """A row an alert."""
    names = {replica.target.url: replica.target.name for replica in snapshot.replicas}
    rows = (
        (
            *(alert.rule, alert.severity, alert.state, names.get(alert.target, ""), alert.target),
            *(alert.since, alert.value, alert.threshold, alert.summary),
            *(alert.inhibited_by, alert.silenced_by, alert.acknowledged_by),
        )
        for alert in snapshot.alerts
    )
    return _csv((*_ALERT, *_ALERT_QUIET), rows)


def new_file(folder: Path, view: str, form: str, at: float) -> Path:
    """A name in `folder` that says view and instant and that no file has."""
    when = f"{datetime.fromtimestamp(at).astimezone():%Y%m%d-%H%M%S}"
    stem = f"enginetop-{_SAFE.sub('-', view).strip('-.')[:60] or 'view'}-{when}"
    for number in range(1, _MOST_NAMES):
        path = folder / (f"{stem}.{form}" if number == 1 else f"{stem}-{number}.{form}")
        if not path.exists():
            return path
    raise ExportError(f"{folder}: too many exports of this view; name a file")


def write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet; one that could not be written whole is taken away. ExportError."""
    ours = False
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            ours = True
            file.write(text)
    except FileExistsError:
        raise ExportError(f"{path} is there already; name another file") from None
    except (OSError, ValueError) as error:
        if ours:
            with suppress(OSError):
                path.unlink()
        reason = error.strerror if isinstance(error, OSError) else error
        raise ExportError(f"{path}: {reason}") from error


def _replica_row(replica: ReplicaSnapshot) -> Iterator[object]:
    yield from (replica.target.name, replica.target.url, replica.engine, replica.engine_version)
    yield from (replica.model, replica.role, replica.state, "; ".join(replica.reasons), replica.scraped_at)
    for signal in SCALARS:
        value = replica.signals.get(signal.name)
        number = value.value if isinstance(value, Scalar) else None
        yield " ".join(map(repr, number)) if isinstance(number, tuple) else number
    for distribution in DISTRIBUTIONS:
        found = replica.signals.get(distribution.name)
        for quantile in _QUANTILES:
            yield _quantile(found, quantile) if isinstance(found, Distribution) else None


def _quantile(distribution: Distribution, name: str) -> object:
    quantile = distribution.quantiles.get(name)
    if quantile is None or (quantile.value is None and not quantile.censored):
        return None
    return f">={quantile.low!r}" if quantile.censored else quantile.value


def _csv(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([_field(value) for value in row] for row in rows)
    return text.getvalue()


def _field(value: object) -> object:
    """A text that a spreadsheet would take for a formula gets a quote before it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
