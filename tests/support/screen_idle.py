"""When a screen under test has nothing more to do, on a machine of any speed."""

from __future__ import annotations

from asyncio import sleep
from time import monotonic, process_time, thread_time

_ROUND_SECONDS = 0.02
"""Longer than the time between two frames of Textual: what is due has been drawn."""
_IDLE_SECONDS = 0.001
"""CPU that a round takes in which nothing happens."""
_IDLE_OF_OWN_SECONDS = 0.003
"""The same of the event loop's thread, on a machine so busy that all is dear."""


async def wait_for_idle(_min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
    """In the place of Textual's own, which gives up after a second: a busy machine has drawn nothing by then.

    Others may be at work for ever: after `max_sleep` seconds only the event loop's own thread counts, and
    after as many seconds of its CPU nothing does.
    """
    began, began_own = monotonic(), thread_time()
    while True:
        whole, own = process_time(), thread_time()
        await sleep(_ROUND_SECONDS)
        if process_time() - whole < _IDLE_SECONDS or thread_time() - began_own > max_sleep:
            return
        if monotonic() - began > max_sleep and thread_time() - own < _IDLE_OF_OWN_SECONDS:
            return
