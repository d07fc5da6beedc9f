"""One GPU at one instant: its row, and a row for each of its MIG instances.

Each amount stands in one row only, so that sums over rows are right: with MIG on, memory belongs to the
instances (to the GPU itself while it has none) and power to the GPU. What holds for the whole chip
(temperature, clock, throttle reasons) is the same in every row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from collectors.gpu import decoding
from collectors.gpu.library import Code, GpuLibrary, Handle, LibraryError
from collectors.sanitise import clean_text
from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import GpuDevice
from enginetop.fleet.throttle import throttle_words

T = TypeVar("T")

MAX_MIG_SLOTS = 64
_MAX_TEXT = 128

_UNSUPPORTED = frozenset(
    {
        Code.NOT_SUPPORTED,
        Code.NO_PERMISSION,
        Code.NOT_FOUND,
        Code.FUNCTION_NOT_FOUND,
        Code.NO_DATA,
        Code.ARGUMENT_VERSION_MISMATCH,
        Code.NOT_READY,
    }
)
"""The value is not to be had; nothing is wrong with the GPU."""

SESSION_OVER = frozenset({Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.VERSION_MISMATCH})
"""No call works any more until the library is initialised anew."""

_GPU_FAILED = SESSION_OVER | {Code.GPU_IS_LOST, Code.RESET_REQUIRED, Code.GPU_NOT_FOUND}

_NOTES: dict[int, str] = {
    Code.GPU_IS_LOST: "fell off the bus; see Xid 79 in the kernel log, reset the GPU or reboot",
    Code.GPU_NOT_FOUND: "the driver no longer sees it; see the kernel log, reset the GPU or reboot",
    Code.RESET_REQUIRED: "needs a reset: stop its processes, then nvidia-smi --gpu-reset",
    Code.NO_PERMISSION: "no permission to read it",
}
_LOST = frozenset({Code.GPU_IS_LOST, Code.GPU_NOT_FOUND})


@dataclass(slots=True)
class Card:
    """One physical GPU as known so far.

    `handle` None: it has not answered in this session of the library. `gone`: the driver no longer counts it,
    so that its index may be another GPU's by now.
    """

    index: int
    uuid: str = ""
    name: str = "unknown GPU"
    handle: Handle | None = None
    gone: bool = False


@frozen
class Row:
    """A device with what the joins need.

    `gpu_uuid` is that of its GPU, `gpu_instance` the GPU instance's id (None: the whole GPU).
    """

    device: GpuDevice
    gpu_uuid: str
    handle: Handle | None = None
    gpu_instance: int | None = None

    @property
    def key(self) -> str:
        """What tells this device from the others, from one read to the next."""
        return f"{self.device.index}/{self.device.uuid}"


def failed_row(card: Card, error: LibraryError) -> Row:
    """The row of a GPU that cannot be read now."""
    state = "lost" if error.code in _LOST else "error"
    note = _NOTES.get(error.code) or _clean(str(error))
    return Row(GpuDevice(card.index, card.uuid, card.name, state=state, note=note), card.uuid)


class _Questions:
    """Asks one handle. A value that is not to be had is None; a failed GPU raises `LibraryError`."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.answers = 0
        self.failure: LibraryError | None = None

    def ask(self, call: Callable[[Handle], T]) -> T | None:
        try:
            answer = call(self._handle)
        except LibraryError as error:
            if error.code in _GPU_FAILED:
                raise
            if error.code not in _UNSUPPORTED:
                self.failure = error
            return None
        self.answers += 1
        return answer


def _clean(text: str | None) -> str:
    return clean_text(text or "", _MAX_TEXT)


def identify(library: GpuLibrary, card: Card) -> None:
    """Take handle, UUID and name of the GPU at the card's index; `LibraryError` if it does not answer."""
    handle = library.device(card.index)
    gpu = _Questions(handle)
    card.uuid = _clean(gpu.ask(library.uuid)) or card.uuid
    card.name = _clean(gpu.ask(library.name)) or card.name
    card.handle = handle


def read_card(library: GpuLibrary, card: Card, proc: Path) -> list[Row]:
    """The rows of a GPU whose handle is known, itself first.

    Raises `LibraryError` when the GPU as a whole has failed: lost, in need of a reset, or every call refused.
    """
    handle = card.handle
    gpu = _Questions(handle)
    utilization = decoding.ratio(gpu.ask(library.utilization_percent))
    used, total = decoding.memory(gpu.ask(library.memory_bytes))
    power = decoding.watts(gpu.ask(library.power_milliwatts))
    limit = decoding.watts(gpu.ask(library.power_limit_milliwatts))
    temperature = decoding.known(gpu.ask(library.temperature_celsius))
    clock = decoding.known(gpu.ask(library.sm_clock_mhz))
    reasons = throttle_words(int(decoding.known(gpu.ask(library.clock_event_reasons)) or 0))
    if gpu.failure is not None and not gpu.answers:
        raise gpu.failure
    unified = total is None and decoding.has_unified_memory(card.name)
    if unified:
        used, total = decoding.host_memory(proc)
    whole = GpuDevice(
        card.index,
        card.uuid,
        card.name,
        utilization_ratio=utilization,
        memory_used_bytes=used,
        memory_total_bytes=total,
        unified_memory=unified,
        power_watts=power,
        power_limit_watts=limit or None,
        temperature_celsius=temperature,
        sm_clock_mhz=clock,
        throttle_reasons=reasons,
        note="memory is the host's, shared with the CPU" if unified else "",
    )
    if not gpu.ask(library.mig_enabled):
        return [Row(whole, card.uuid, handle)]
    instances = _mig_rows(library, whole, gpu, handle)
    kept = replace(
        whole,
        utilization_ratio=None,
        memory_used_bytes=None if instances else used,
        memory_total_bytes=None if instances else total,
        note=f"MIG is on, instances: {len(instances)}; memory stands with them, utilisation is not known",
    )
    return [Row(kept, card.uuid, handle), *instances]


def _mig_rows(library: GpuLibrary, whole: GpuDevice, gpu: _Questions, handle: Handle) -> list[Row]:
    rows: list[Row] = []
    for slot in range(min(gpu.ask(library.mig_slots) or 0, MAX_MIG_SLOTS)):
        try:
            instance = library.mig_device(handle, slot)
        except LibraryError as error:
            if error.code in _GPU_FAILED:
                raise
            continue  # an empty slot
        rows.append(_mig_row(library, whole, instance, slot))
    return rows


def _mig_row(library: GpuLibrary, whole: GpuDevice, instance: Handle, slot: int) -> Row:
    questions = _Questions(instance)
    used, total = decoding.memory(questions.ask(library.memory_bytes))
    ids = questions.ask(library.mig_ids)
    gpu_instance = None if ids is None or decoding.known(ids[0]) is None else ids[0]
    profile = decoding.mig_profile(
        _clean(questions.ask(library.name)), questions.ask(library.mig_slices), whole.memory_total_bytes
    )
    where = f"MIG device {slot}"
    if ids is not None:
        where += f", GPU instance {ids[0]}, compute instance {ids[1]}"
    device = replace(
        whole,
        uuid=_clean(questions.ask(library.uuid)) or f"{whole.uuid}/mig{slot}",
        mig=profile,
        utilization_ratio=None,
        memory_used_bytes=used,
        memory_total_bytes=total,
        unified_memory=False,
        power_watts=None,
        power_limit_watts=None,
        note=f"{where}; temperature and clock are the whole GPU's, power stands with it",
    )
    return Row(device, whole.uuid, instance, gpu_instance)
