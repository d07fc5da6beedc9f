"""The controller of a live fleet: one change at a time, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from enginetop.fleet.change import AuditRow, ChangeState, ChangeView
from enginetop.fleet.errors import EnginetopError
from enginetop.fleet.plan import Plan
from enginetop.fleet.ports import FleetSource
from enginetop.fleet.snapshot import FleetSnapshot
from tuners.control import driver
from tuners.control.driver import ControlError
from tuners.control.knob_api import KnobClient, KnobReply, ReplyKind
from tuners.control.preflight import Preflight, check_plan
from tuners.control.progress import Progress
from tuners.control.recovery import StoredChangeError, resume_to_undo, stored_plan
from tuners.control.settings import ControlSettings
from tuners.control.store import ChangeStore
from tuners.control.view import view_of

_LONGEST_WAIT_SECONDS = 5.0
"""Without new snapshots the machine is asked all the same: a ttl runs on."""
_FIRST_SNAPSHOT_SECONDS = 30.0

Clients = Callable[[str], KnobClient | None]


class LiveWorld:
    """A `World` over a running `FleetSource`."""

    def __init__(self, source: FleetSource, clients: Clients, clock: Callable[[], float]) -> None:
        self._source = source
        self._clients = clients
        self.now = clock
        self._fresh = threading.Event()
        self._unsubscribe = source.subscribe(self._fresh.set)

    def snapshot(self) -> FleetSnapshot:
        """The newest snapshot. ControlError when the source brings none."""
        found = self._source.latest()
        if found is None:
            self._fresh.wait(_FIRST_SNAPSHOT_SECONDS)
            found = self._source.latest()
        if found is None:
            raise ControlError("no picture of the fleet arrives; nothing can be judged")
        return found

    def advance(self) -> None:
        """Wait for the next snapshot, or for `wake`."""
        self._fresh.wait(_LONGEST_WAIT_SECONDS)
        self._fresh.clear()

    def wake(self) -> None:
        """End a wait."""
        self._fresh.set()

    def client(self, target: str) -> KnobClient | None:
        """See `World`."""
        return self._clients(target)

    def close(self) -> None:
        """Ask for no more snapshots."""
        self._unsubscribe()


class Controller:
    """Begins, watches and undoes changes. All methods may be called from any thread.

    `clients` gives the knobs of a target, None where there is no live path; `source` must be started.
    """

    def __init__(
        self,
        source: FleetSource,
        clients: Clients,
        store: ChangeStore,
        *,
        settings: ControlSettings,
        tool_version: str,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._settings = settings
        self._tool_version = tool_version
        self._world = LiveWorld(source, clients, clock)
        self._thread: threading.Thread | None = None
        self._stop = ""
        self._view: ChangeView | None = None
        self._fault = ""
        self._listeners: tuple[Callable[[], None], ...] = ()

    def read_sheets(self, targets: Iterable[str]) -> dict[str, KnobReply]:
        """The knobs of targets, asked now; blocks for as long as that takes."""
        return {target: self._read(target) for target in targets}

    def preflight(self, plan: Plan) -> Preflight:
        """Hold a plan against the fleet without changing anything; blocks while engines are asked."""
        return check_plan(
            plan,
            self._world.snapshot(),
            self.read_sheets(plan.targets),
            now=self._world.now(),
            tool_version=self._tool_version,
            settings=self._settings,
        )

    def start(self, plan: Plan, approved_by: str) -> None:
        """Begin a change; returns at once.

        ControlError (with a line in the audit) when a change is under way here or in another process, when
        one was left unfinished, or when this plan was carried out before.
        """
        holder = self._store.lock.take(f"change {plan.id}")
        trouble = f"another controller is at work: {holder}" if holder else self._obstacle(plan)
        if trouble:
            if not holder:
                self._store.lock.release()
            self._refuse(plan, trouble)
            raise ControlError(trouble)
        journal = _Journal(self._store)
        self._launch(
            lambda: driver.run_change(
                plan,
                self._world,
                settings=self._settings,
                tool_version=self._tool_version,
                approved_by=approved_by,
                journal=journal,
                publish=lambda progress: self._publish(progress, journal),
                stop=lambda: self._stop,
            )
        )

    def recover(self, why: str = "enginetop ended before the change did") -> tuple[ChangeView, ...]:
        """Undo every change that was left unfinished; blocks, and returns their final views.

        ControlError when another controller runs, or when a stored change cannot be read.
        """
        if not self._unfinished():
            return ()
        holder = self._store.lock.take("recovery")
        if holder:
            raise ControlError(f"another controller is at work: {holder}")
        views: list[ChangeView] = []
        try:
            for change in self._unfinished():
                self._undo(change, why)
                if self._view is not None:
                    views.append(self._view)
        finally:
            self._store.lock.release()
        return tuple(views)

    def rollback(self, change: str, why: str) -> None:
        """Undo a change, under way here, elsewhere or finished; returns at once.

        Where another process carries it out, that one is asked to. ControlError when it is not known, or
        when it never changed anything.
        """
        if self._thread is not None and self._thread.is_alive():
            if self._view is not None and self._view.id != change:
                raise ControlError(f"the change {self._view.id} is under way; one at a time")
            self._stop = why
            self._world.wake()
            return
        try:
            _, state, _ = stored_plan(self._store.load(change))
        except StoredChangeError as error:
            raise ControlError(str(error)) from None
        if state in (ChangeState.REFUSED, ChangeState.ROLLED_BACK, ChangeState.HELD):
            raise ControlError(f"the change {change} is {state}: nothing of it is in force")
        holder = self._store.lock.take(f"rollback of {change}")
        if holder:
            self._store.request_stop(change)
            return
        self._launch(lambda: self._undo(change, why))

    def stop(self, why: str = "enginetop is leaving") -> None:
        """Undo what is under way and end; returns when the final state is reached."""
        thread = self._thread
        if thread is not None:
            self._stop = self._stop or why
            self._world.wake()
            thread.join()
        self._world.close()

    def latest(self) -> ChangeView | None:
        """The newest view of the change begun last; None before the first."""
        return self._view

    def subscribe(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call `on_change` from the controller's thread after each turn; returns the call that ends it."""
        self._listeners = (*self._listeners, on_change)

        def unsubscribe() -> None:
            self._listeners = tuple(kept for kept in self._listeners if kept is not on_change)

        return unsubscribe

    def wait(self, timeout_seconds: float | None = None) -> ChangeView | None:
        """Wait for the end of the change under way; its final view, None when the time is over first.

        ControlError when it ended without one.
        """
        thread = self._thread
        if thread is not None:
            thread.join(timeout_seconds)
            if thread.is_alive():
                return None
        if self._fault:
            raise ControlError(self._fault)
        return self._view

    def _read(self, target: str) -> KnobReply:
        client = self._world.client(target)
        return client.read() if client else KnobReply(ReplyKind.MISSING, "no live path is configured")

    def _unfinished(self) -> tuple[str, ...]:
        try:
            return self._store.unfinished()
        except StoredChangeError as error:
            raise ControlError(str(error)) from None

    def _obstacle(self, plan: Plan) -> str:
        try:
            unfinished = self._store.unfinished()
        except StoredChangeError as error:
            return str(error)
        if unfinished:
            return f"the change {unfinished[0]} is not finished: roll it back first"
        if plan.id in self._store.ids():
            return f"the plan {plan.id} was carried out before; make a new one"
        return ""

    def _refuse(self, plan: Plan, why: str) -> None:
        canary = plan.canary
        row = AuditRow(
            change=plan.id,
            at=self._world.now(),
            state=ChangeState.REFUSED,
            target=canary.target,
            knob=canary.knob,
            before=canary.before,
            after=canary.after,
            detail=why,
        )
        with suppress(OSError):  # the refusal stands whether or not it can be noted
            self._store.append((row,))

    def _undo(self, change: str, why: str) -> None:
        progress = resume_to_undo(
            self._store.load(change),
            now=self._world.now(),
            why=why,
            settings=self._settings,
            tool_version=self._tool_version,
        )
        journal = _Journal(self._store, [row for row in self._store.audit.rows() if row.change == change])
        driver.drive(
            progress,
            self._world,
            journal=journal,
            publish=lambda found: self._publish(found, journal),
        )

    def _launch(self, run: Callable[[], object]) -> None:
        """Run in the controller's thread; the lock is held, and is released at the end."""
        self._stop = self._fault = ""

        def body() -> None:
            try:
                run()
            except (EnginetopError, StoredChangeError, OSError) as error:
                self._fault = " ".join(str(error).split())
            except Exception as error:  # noqa: BLE001 - a thread that dies must say so; the ttl undoes the rest
                self._fault = f"a fault of enginetop itself: {type(error).__name__}: {error}"
            finally:
                self._store.lock.release()
                self._notify()

        self._thread = threading.Thread(target=body, name="enginetop-control", daemon=True)
        self._thread.start()

    def _publish(self, progress: Progress, journal: _Journal) -> None:
        self._view = view_of(progress, self._world.now(), journal.rows)
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()


class _Journal:
    """The store, with the rows of one change kept for its view."""

    def __init__(self, store: ChangeStore, rows: Iterable[AuditRow] = ()) -> None:
        self._store = store
        self.rows = list(rows)

    def save(self, progress: Progress) -> None:
        self._store.save(progress)

    def append(self, rows: Sequence[AuditRow]) -> None:
        self.rows.extend(rows)
        self._store.append(rows)

    def stop_wanted(self, change: str) -> str:
        return self._store.stop_wanted(change)
