"""Every GPU of the fleet, with the replicas that run on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby

from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import GpuDevice, ReplicaSnapshot
from themes.loader import Ink
from tui.view import charts, numbers
from tui.view.cells import UNKNOWN, Line, Span, cut_middle, fit, pad
from tui.view.figures import WIDE, number_of
from tui.view.gpu_words import gpu_name, is_held_back, is_hot, memory_text, provenance
from tui.view.page import heading, names_text, paragraph
from tui.view.picture import NOTHING_YET, Picture
from tui.view.rows import Row, Rows

_BAR_WIDTH = 10
_NARROW = 70


@frozen
class Placed:
    """A device and the replicas on it."""

    gpu: GpuDevice
    host: str
    replicas: tuple[ReplicaSnapshot, ...]

    @property
    def key(self) -> str:
        """The row's key: a MIG instance has one of its own."""
        return f"{self.host} {self.gpu.uuid} {self.gpu.mig or ''} {self.gpu.index}"

    @property
    def is_troubled(self) -> bool:
        """Whether somebody should look at it."""
        gpu = self.gpu
        return is_held_back(gpu) or is_hot(gpu) or gpu.last_xid is not None or gpu.state != "ok"


def devices_of(replicas: Iterable[ReplicaSnapshot]) -> list[Placed]:
    """Each device once, by host, by index, trouble first; two replicas may share one."""
    found: dict[tuple[str, str, str | None, int], list[ReplicaSnapshot]] = {}
    newest: dict[tuple[str, str, str | None, int], GpuDevice] = {}
    for replica in replicas:
        for gpu in replica.gpus:
            # An index names no device by itself: without a UUID a device belongs to its replica's host.
            key = (replica.target.host, gpu.uuid, gpu.mig, gpu.index)
            found.setdefault(key, []).append(replica)
            newest[key] = gpu
    placed = [Placed(newest[key], key[0], tuple(users)) for key, users in found.items()]
    troubled = {one.host for one in placed if one.is_troubled}
    hosts = dict.fromkeys(one.host for one in placed)
    places = {host: (host not in troubled, number) for number, host in enumerate(hosts)}
    return sorted(
        placed, key=lambda one: (places[one.host], not one.is_troubled, one.gpu.index, one.gpu.mig or "")
    )


def gpu_rows(picture: Picture, width: int) -> Rows[str]:
    """A row for each device, by host."""
    return Rows(_rows(picture, width), width)


def _rows(picture: Picture, width: int) -> Iterator[Row[str]]:
    snapshot = picture.snapshot
    if snapshot is None:
        yield from paragraph(NOTHING_YET, width)
        return
    placed = devices_of(snapshot.replicas)
    if not placed:
        why = snapshot.gpu_problem or "none runs on this machine, and no engine's page tells of its own"
        yield from paragraph(f"no GPU is known: {why}", width)
        yield from paragraph(
            "GPUs are read on the machine that enginetop runs on, of exporters that --gpu-exporter names "
            "(dcgm-exporter, AMD, Intel, Triton), and where --prometheus has their series",
            width,
        )
        return
    yield Row(_sums(placed, picture))
    wide = width >= WIDE
    for host, devices in groupby(placed, key=lambda one: one.host):
        own = list(devices)
        yield heading(f"{host} · {numbers.many(len(own), 'GPU')}", width, snapshot.gpu_problem)
        yield Row(_head(wide=wide, narrow=width < _NARROW))
        for one in own:
            yield Row(
                partial(_line, one, snapshot.at, wide=wide, narrow=width < _NARROW),
                one.key,
                one.replicas[0].target.url,
            )


def _sums(placed: list[Placed], picture: Picture) -> Line:
    gpus = [one.gpu for one in placed]
    used = [gpu.utilization_ratio for gpu in gpus if gpu.utilization_ratio is not None]
    watts = [gpu.power_watts for gpu in gpus if gpu.power_watts is not None]
    throttled = sum(map(is_held_back, gpus))
    lost = sum(gpu.state != "ok" for gpu in gpus)
    parts = [numbers.many(len(gpus), "GPU")]
    if used:
        parts.append(f"{numbers.percent(sum(used) / len(used))} % busy on average")
    if watts:
        of = f" ({len(watts)} of them tell)" if len(watts) < len(gpus) else ""
        parts.append(f"{numbers.count(sum(watts))} W{of}")
    if picture.snapshot is not None:
        energy = number_of(picture.snapshot.fleet, "energy_joules_per_token")
        if energy is not None:
            parts.append(f"{numbers.rate(energy)} J/token")
    spans = [Span(f" {' · '.join(parts)}")]
    if throttled:
        spans.append(Span(f" · {throttled} throttled", "warn"))
    if lost:
        spans.append(Span(f" · {lost} not ok", "crit"))
    return tuple(spans)


def _head(*, wide: bool, narrow: bool) -> Line:
    if narrow:
        return (Span(f" {'GPU':<5}{'util %':>7}{'W':>6}{'°C':>5}  replicas, state", "head"),)
    bar = " " * (_BAR_WIDTH + 1) if wide else ""
    name = f"{'name':<24}" if wide else ""
    clock = f"{'MHz':>6}" if wide else ""
    head = f" {'GPU':<5}{name}{'util %':>7}{bar}{'mem GiB':>14}{'W':>6}{'of':>5}{'°C':>5}{clock}"
    return (Span(f"{head}{'J/tok':>7}  replicas, state", "head"),)


def _line(one: Placed, now: float, *, wide: bool, narrow: bool) -> Line:
    gpu = one.gpu
    mark = f"{gpu.index}{'m' if gpu.mig else ''}"
    name = fit(cut_middle(gpu_name(gpu), 23), 24) if wide else ""
    spans = [Span(f" {pad(mark, 5)}{name}"), Span(f"{numbers.percent(gpu.utilization_ratio):>7}")]
    if wide:
        spans.append(Span(" " + charts.bar(gpu.utilization_ratio, _BAR_WIDTH), "bar"))
    heat = Span(f"{numbers.count(gpu.temperature_celsius):>5}", "warn" if is_hot(gpu) else "text")
    who = Span(
        f"  {names_text([replica.target.name for replica in one.replicas], 3 if wide else 1)}", "title"
    )
    if narrow:
        return (*spans, Span(f"{numbers.count(gpu.power_watts):>6}"), heat, who, *_troubles(gpu, now))
    spans += (
        Span(f"{memory_text(gpu):>14}"),
        Span(f"{numbers.count(gpu.power_watts):>6}{numbers.count(gpu.power_limit_watts):>5}"),
        heat,
    )
    if wide:
        spans.append(Span(f"{numbers.count(gpu.sm_clock_mhz):>6}"))
    spans.append(Span(f"{_energy(one.replicas):>7}"))
    return (*spans, who, *_troubles(gpu, now))


def _energy(replicas: tuple[ReplicaSnapshot, ...]) -> str:
    """Energy per token of the replica on the device; of several it cannot be told apart."""
    if len(replicas) != 1:
        return UNKNOWN
    return numbers.rate(number_of(replicas[0], "energy_joules_per_token"))


def _troubles(gpu: GpuDevice, now: float) -> Iterator[Span]:
    if gpu.last_xid is not None:
        yield Span(f"  Xid {gpu.last_xid}", "crit")
    if gpu.state != "ok":
        yield Span(f"  {gpu.state}", "crit")
    if gpu.throttle_reasons:
        ink: Ink = "warn" if is_held_back(gpu) else "dim"
        yield Span(f"  {', '.join(gpu.throttle_reasons).replace('_', ' ')}", ink)
    if gpu.unified_memory:
        yield Span("  unified memory", "dim")
    for said in filter(None, (gpu.note, provenance(gpu, now))):
        yield Span(f"  {said}", "dim")
