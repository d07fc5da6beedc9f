"""Detail view: the GPUs of a replica."""

from __future__ import annotations

from enginetop.fleet.snapshot import GpuDevice, ReplicaSnapshot
from themes.loader import Ink
from tui.view import numbers
from tui.view.cells import EMPTY_LINE, Line, Span, cut_middle, merge, pad
from tui.view.figures import WIDE, Lines, figure, row, signal_of
from tui.view.gpu_words import gpu_name, is_held_back, memory_text, provenance


def gpu_lines(replica: ReplicaSnapshot, at: float, width: int) -> Lines:
    """A row for each device, then power and energy of all; nothing where none is known."""
    if not replica.gpus:
        return
    head = f"{'util %':>7}{'mem GiB':>14}{'W':>6}{'of':>6}{'°C':>5}{'MHz':>6}  throttle"
    name_width = 26 if width >= WIDE else 13
    yield (Span(f" {'GPU':<{name_width + 4}}", "head"), Span(head, "head"))
    for gpu in replica.gpus:
        yield _gpu_row(gpu, at, name_width)
    power = figure(replica, "power_watts", numbers.count, " W")
    energy = signal_of(replica, "energy_joules_per_token")
    if numbers.scalar_number(energy) is not None:
        power = (*power, Span(" · "), *figure(replica, "energy_joules_per_token", numbers.rate, " J/token"))
    yield row("power", *power)
    yield EMPTY_LINE


def _gpu_row(gpu: GpuDevice, at: float, name_width: int) -> Line:
    name = cut_middle(gpu_name(gpu), name_width)
    memory = memory_text(gpu) + (" unified" if gpu.unified_memory else "")
    figures = (
        f"{numbers.percent(gpu.utilization_ratio):>7}{memory:>14}{numbers.count(gpu.power_watts):>6}"
        f"{numbers.count(gpu.power_limit_watts):>6}{numbers.count(gpu.temperature_celsius):>5}"
        f"{numbers.count(gpu.sm_clock_mhz):>6}"
    )
    spans = [Span(f" {gpu.index:<3} {pad(name, name_width)}"), Span(figures)]
    if gpu.throttle_reasons:
        ink: Ink = "warn" if is_held_back(gpu) else "text"
        spans.append(Span(f"  {', '.join(gpu.throttle_reasons)}", ink))
    if gpu.last_xid is not None:
        spans.append(Span(f"  Xid {gpu.last_xid}", "crit"))
    if gpu.state != "ok":
        spans.append(Span(f"  {gpu.state}", "crit"))
    spans += [Span(f"  {said}", "dim") for said in (gpu.note, provenance(gpu, at)) if said]
    return merge(spans)
