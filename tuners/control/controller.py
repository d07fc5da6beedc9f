"""The controller of a live fleet: one change at a time, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from enginetop.fleet.change import FINAL_STATES, AuditRow, ChangeState, ChangeView, Proposal
from enginetop.fleet.plan import Plan
from enginetop.fleet.ports import FleetSource
from tuners.control import driver
from tuners.control.change_thread import ChangeThread
from tuners.control.driver import ControlError, World
from tuners.control.live_world import Clients, LiveWorld, examined
from tuners.control.planning import pool_of
from tuners.control.preflight import Preflight, check_plan
from tuners.control.progress import Progress
from tuners.control.proposing import work_out
from tuners.control.published import PublishedViews
from tuners.control.recovery import StoredChangeError, resume_to_undo, stored_plan, undo_refusal
from tuners.control.settings import ControlSettings
from tuners.control.store import ChangeStore, RememberingJournal
from tuners.control.view import view_of

WorldOf = Callable[[Plan, World, bool], World]
"""A plan, the world of the fleet, whether the plan is to be undone alone: the world of the plan."""


def the_fleet(_plan: Plan, world: World, _undoing: bool) -> World:
    """The world of plans whose targets are engines."""
    return world


class Controller:
    """Begins, watches and undoes changes; a `ChangeControl`. Its methods may be called from any thread.

    `clients` gives the knobs of a target, None where there is no live path; `source` must be started;
    `clock` is as in `LiveWorld`.
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
        world_of: WorldOf = the_fleet,
    ) -> None:
        """`world_of` gives the world that a plan is carried out in, or undone in, over that of the fleet."""
        self._store = store
        self._settings = settings
        self._tool_version = tool_version
        self._world = LiveWorld(source, clients, clock)
        self._world_of = world_of
        self._thread = ChangeThread()
        self._stop = ""
        self._views = PublishedViews()
        self._current = ""
        self._proposed: dict[str, Plan] = {}

    def preflight(self, plan: Plan) -> Preflight:
        """Hold a plan against the fleet without changing anything; blocks while engines are asked."""
        world = self._world_of(plan, self._world, False)
        sheets = {one.target: examined(world.client(one.target), one.via) for one in plan.changes}
        found = check_plan(
            plan,
            world.snapshot(),
            sheets,
            now=world.now(),
            tool_version=self._tool_version,
            settings=self._settings,
        )
        forbidden = self._store.forbidden()
        return replace(found, problems=(forbidden, *found.problems)) if forbidden else found

    def propose(self, target_url: str, knob: str) -> Proposal:
        """See `ChangeControl`."""
        snapshot = self._world.snapshot()
        pool = [replica.target.url for replica in pool_of(snapshot, target_url)]
        replies = self._world.read_sheets((target_url, *pool))
        plan, proposal = work_out(
            snapshot,
            target_url,
            knob,
            replies,
            now=self._world.now(),
            tool_version=self._tool_version,
            settings=self._settings,
            check=self.preflight,
        )
        if plan is not None:
            self._proposed[plan.id] = plan
        return proposal

    def start(self, proposal_id: str, approved_by: str) -> None:
        """See `ChangeControl`."""
        plan = self._proposed.get(proposal_id)
        if plan is None:
            raise ControlError(f"no proposal {proposal_id!r} is known; propose anew")
        self.begin(plan, approved_by)

    def begin(self, plan: Plan, approved_by: str) -> None:
        """Begin a plan; returns at once.

        ControlError (with a line in the audit) when a change is under way here or in another process, when
        one was left unfinished, when the kill switch is on, when this plan was carried out before, or when it
        has no world. A plan that was refused may be begun again: nothing of it was in force.
        """
        holder = self._take_lock(f"change {plan.id}")
        try:
            if holder:
                raise ControlError(f"another controller is at work: {holder}")
            self._refuse_obstacles(plan)
            world = self._world_of(plan, self._world, False)
        except ControlError as error:
            if not holder:
                self._store.lock.release()
            self.refuse(plan, str(error))
            raise
        journal = RememberingJournal(self._store)
        self._current = plan.id
        self._launch(
            lambda: driver.run_change(
                plan,
                world,
                settings=self._settings,
                tool_version=self._tool_version,
                approved_by=approved_by,
                journal=journal,
                publish=lambda progress: self._publish(progress, journal),
                stop=lambda: self._stop,
            )
        )

    def refuse(self, plan: Plan, why: str) -> None:
        """Note in the audit that a plan was refused.

        While the very same plan is carried out, its id is another change's: a final state under it would tell
        readers that this one has ended. The refused attempt is then `<id>-again`.
        """
        canary = plan.canary
        row = AuditRow(
            change=f"{plan.id}-again" if self._runs(plan.id) else plan.id,
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

    def _runs(self, change: str) -> bool:
        """Whether a change of this id has begun, here or elsewhere, and not ended."""
        try:
            _, state, _ = stored_plan(self._store.load(change))
        except StoredChangeError:
            return False
        return state not in FINAL_STATES

    def recover(
        self,
        why: str = "enginetop ended before the change did",
        begins: Callable[[str], None] = lambda _: None,
    ) -> tuple[ChangeView, ...]:
        """Undo every change that was left unfinished; blocks, and returns their final views.

        `begins` is told the id of each before it is undone: engines that do not answer are waited for.

        ControlError when another controller runs, or when a stored change cannot be read.
        """
        if not self._unfinished():
            return ()
        holder = self._take_lock("recovery")
        if holder:
            raise ControlError(f"another controller is at work: {holder}")
        views: list[ChangeView] = []
        try:
            for change in self._unfinished():
                begins(change)
                try:
                    self._undo(change, why)
                except StoredChangeError as error:
                    raise ControlError(f"the change {change} cannot be undone: {error}") from None
                if (view := self._views.of(change)) is not None:
                    views.append(view)
        finally:
            self._store.lock.release()
        return tuple(views)

    def roll_back(self, change_id: str, why: str = "a rollback was asked for") -> None:
        """Undo a change, under way here, elsewhere or finished; returns at once.

        Where another process carries it out, that one is asked to. ControlError when it is not known, when
        nothing of it is in force, or when it is finished and another change is under way.
        """
        if self.busy:
            if self._current != change_id:
                raise ControlError(f"the change {self._current} is under way; one at a time")
            self._stop = why
            self._world.wake()
            return
        try:
            document = self._store.load(change_id)
            refusal = undo_refusal(document)
        except StoredChangeError as error:
            raise ControlError(str(error)) from None
        if refusal:
            raise ControlError(refusal)
        _, state, _ = stored_plan(document)
        holder = self._take_lock(f"rollback of {change_id}")
        if holder and state in FINAL_STATES:
            raise ControlError(f"{holder} is under way; roll {change_id} back when it is over")
        if holder:
            try:
                self._store.request_stop(change_id)
            except OSError as error:
                raise ControlError(f"{holder} cannot be asked: {error.strerror or error}") from None
            return
        self._launch(lambda: self._undo(change_id, why))

    def stop(self, why: str = "enginetop is leaving") -> None:
        """Undo what is under way and end; returns when the final state is reached."""
        if self._thread.busy:
            self._stop = self._stop or why
            self._world.wake()
            self._thread.join()
        self._world.close()

    @property
    def busy(self) -> bool:
        """Whether a change is under way here."""
        return self._thread.busy

    def latest(self) -> tuple[ChangeView, ...]:
        """The changes of this controller, the newest first."""
        return self._views.latest()

    def subscribe(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call `on_change` from the controller's thread after each turn; returns the call that ends it."""
        return self._views.subscribe(on_change)

    def wait(self, timeout_seconds: float | None = None) -> ChangeView | None:
        """Wait for the end of the change under way; its final view, None when the time is over first, or when
        there never was one.

        ControlError when it ended without one.
        """
        if not self._thread.join(timeout_seconds):
            return None
        if self._thread.fault:
            raise ControlError(self._thread.fault)
        return self._views.of(self._current)

    def audit(self) -> tuple[AuditRow, ...]:
        """See `ChangeControl`."""
        try:
            check = self._store.audit.verify()
            rows = self._store.audit.rows()
        except OSError as error:
            raise ControlError(f"the audit cannot be read: {error.strerror or error}") from None
        if not check.intact:
            raise ControlError(f"the audit is not intact: {check.problem}")
        return rows

    def at_work(self) -> str:
        """See `ChangeControl`."""
        try:
            return self._store.lock.holder()
        except OSError as error:
            raise ControlError(f"the state folder cannot be read: {error.strerror or error}") from None

    def _take_lock(self, name: str) -> str:
        try:
            return self._store.lock.take(name)
        except OSError as error:
            what = error.strerror or error
            raise ControlError(f"the state folder {self._store.folder} cannot be written: {what}") from None

    def _unfinished(self) -> tuple[str, ...]:
        try:
            return self._store.unfinished()
        except StoredChangeError as error:
            raise ControlError(str(error)) from None

    def _refuse_obstacles(self, plan: Plan) -> None:
        """ControlError: a change was left unfinished, changes are forbidden, or this plan was carried out."""
        if unfinished := self._unfinished():
            raise ControlError(f"the change {unfinished[0]} is not finished: roll it back first")
        if forbidden := self._store.forbidden():
            raise ControlError(forbidden)
        if plan.id in self._store.ids():
            _, state, _ = stored_plan(self._store.load(plan.id))
            if state is not ChangeState.REFUSED:
                raise ControlError(f"the plan {plan.id} was carried out before; make a new one")

    def _undo(self, change: str, why: str) -> None:
        progress = resume_to_undo(
            self._store.load(change),
            now=self._world.now(),
            why=why,
            settings=self._settings,
            tool_version=self._tool_version,
        )
        journal = RememberingJournal(
            self._store, [row for row in self._store.audit.rows() if row.change == change]
        )
        driver.drive(
            progress,
            self._world_of(progress.plan, self._world, True),
            journal=journal,
            publish=lambda found: self._publish(found, journal),
        )

    def _launch(self, run: Callable[[], object]) -> None:
        """Run in the controller's thread; the lock is held, and is released at the end."""
        self._stop = ""

        def at_end() -> None:
            self._store.lock.release()
            self._views.notify()

        self._thread.launch(run, at_end)

    def _publish(self, progress: Progress, journal: RememberingJournal) -> None:
        self._current = progress.plan.id
        self._views.publish(self._current, view_of(progress, self._world.now(), journal.rows))
