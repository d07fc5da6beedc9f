"""From advice to a proven change by the owner, and every way back, on a cluster of simulated engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli.kubernetes_apply import OwnerWorlds
from enginetop.cli.kubernetes_owners import patch_lines
from enginetop.fleet.admin_surface import AdminFacts
from enginetop.fleet.change import FINAL_STATES, ChangeState, Verdict
from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.plan import Plan
from tests.support.memory_journal import MemoryJournal
from tests.support.pod_world import DEPLOYMENTS, KNOB, VERSION, PodWorld, unschedulable, waiting
from tuners.control.driver import drive, run_change
from tuners.control.knob_api import ReplyKind
from tuners.control.kubernetes.owner import Owner, record_document
from tuners.control.kubernetes.siblings import EXPIRES_KEY
from tuners.control.preflight import Preflight, check_plan
from tuners.control.progress import Progress
from tuners.control.recovery import progress_document, resume_to_undo
from tuners.control.settings import ControlSettings
from tuners.control.store import ChangeStore, Journal

SHORT = ControlSettings(
    warmup_seconds=60.0, restart_warmup_seconds=120.0, blocks=10, block_seconds=60.0, soak_seconds=30.0
)
BRIEF = ControlSettings(
    warmup_seconds=20.0, restart_warmup_seconds=20.0, blocks=8, block_seconds=30.0, soak_seconds=20.0
)
OLD, NEW = 512, 2048
_CHAT = ("apps/v1", DEPLOYMENTS, "llm", "chat")
CANARY = "kubernetes://llm/Deployment/chat/canary"


@pytest.fixture
def world(tmp_path: Path) -> PodWorld:
    return PodWorld(tmp_path)


def chat(world: PodWorld, value: int = OLD, replicas: int = 2, **meta: object) -> PodWorld:
    world.deploy("chat", value, replicas, **meta)
    world.settle()
    return world


def run(
    world: PodWorld,
    to: int = NEW,
    journal: Journal | None = None,
    settings: ControlSettings = BRIEF,
    plan: Plan | None = None,
) -> Progress:
    plan = plan or world.plan(to)
    return run_change(
        plan,
        world.worlds(plan, world, False),
        settings=settings,
        tool_version=VERSION,
        approved_by="a test",
        journal=journal or MemoryJournal(),
    )


def preflight(world: PodWorld, plan: Plan | None = None) -> Preflight:
    plan = plan or world.plan(NEW)
    seats = world.worlds(plan, world, False)
    sheets = {}
    for target in plan.targets:
        client = seats.client(target)
        assert client is not None
        sheets[target] = client.examine()
    return check_plan(plan, seats.snapshot(), sheets, now=world.now(), tool_version=VERSION, settings=SHORT)


def test_from_discovery_to_advice_patch_change_verdict_and_the_way_back(
    world: PodWorld, tmp_path: Path
) -> None:
    chat(world)
    plan = world.suggested(300.0)
    assert (plan.canary.before, plan.canary.after) == (OLD, 1024)
    targets = [replica.target for replica in world.snapshot().replicas]
    patch = "\n".join(patch_lines(plan, targets, world.cluster))
    assert patch.count("kubectl --context prod -n llm patch deployment.v1.apps chat") == 1
    assert '"value": "1024"' in patch
    assert world.api.writes == [], "a patch is only printed"
    store = ChangeStore(tmp_path / "state")
    end = run(world, plan=plan, journal=store)
    assert (end.state, end.verdict) == (ChangeState.DONE, Verdict.IMPROVED), end.detail
    world.advance(20.0)
    assert list(world.running().values()) == [1024, 1024]
    assert undone(world, store, plan).state is ChangeState.ROLLED_BACK
    assert list(world.running().values()) == [OLD, OLD]
    assert [row.state for row in store.audit.rows() if row.change == plan.id][-1] is ChangeState.ROLLED_BACK


def test_a_good_change_goes_by_a_sibling_to_all_pods_of_the_owner(world: PodWorld) -> None:
    chat(world)
    before = set(world.running())
    journal = MemoryJournal()
    end = run(world, journal=journal)
    assert (end.state, end.verdict) == (ChangeState.DONE, Verdict.IMPROVED), end.detail
    assert end.plan.canary.target == CANARY
    assert len(end.baselines) == 2, "the owner's own pods"
    world.advance(60.0)
    assert list(world.running().values()) == [NEW, NEW]
    assert before.isdisjoint(world.running()), "every pod is another one"
    assert world.siblings() == []
    steps = [method for method, path in world.api.writes if "-canary-" not in path]
    assert steps == ["POST", "PATCH"], "the sibling, then one patch of the owner"
    said = " ".join(row.detail for row in journal.rows)
    assert "one new replica beside llm/Deployment/chat" in said
    assert "effect seen on 3 of 3" in said


def test_a_harmful_change_ends_with_the_sibling_and_the_owner_was_never_touched(world: PodWorld) -> None:
    chat(world, NEW)
    before = world.running()
    generation = world.fake.get(_CHAT)["metadata"]["generation"]
    end = run(world, OLD, settings=SHORT)
    assert (end.state, end.verdict) == (ChangeState.ROLLED_BACK, Verdict.WORSE), end.detail
    world.advance(20.0)
    assert world.running() == before
    assert world.siblings() == []
    assert world.fake.get(_CHAT)["metadata"]["generation"] == generation


STUCK: dict[str, tuple[dict[str, Any], str]] = {
    "no image": (waiting("ImagePullBackOff"), "ImagePullBackOff"),
    "a crash loop": (
        waiting("CrashLoopBackOff", exitCode=2, reason="Error"),
        "CrashLoopBackOff, exit code 2",
    ),
    "out of memory": (waiting("CrashLoopBackOff", exitCode=137, reason="OOMKilled"), "OOMKilled"),
    "no node": (unschedulable("0/4 nodes: insufficient nvidia.com/gpu"), "insufficient nvidia.com/gpu"),
}


@pytest.mark.parametrize("kind", STUCK)
def test_a_canary_that_does_not_come_up_goes_away_with_its_reason(world: PodWorld, kind: str) -> None:
    chat(world)
    status, words = STUCK[kind]
    world.trouble = lambda value: status if value == NEW else None
    before = world.running()
    end = run(world)
    assert end.state is ChangeState.ROLLED_BACK
    assert words in end.detail
    world.advance(20.0)
    assert (world.running(), world.siblings()) == (before, [])


@pytest.mark.parametrize("kind", ["a crash loop", "deadline"])
def test_a_rollout_that_gets_stuck_is_taken_back_and_the_old_pods_serve_on(
    world: PodWorld, kind: str
) -> None:
    chat(world)

    class StuckFromNowOn(MemoryJournal):
        def save(self, progress: Progress) -> None:
            super().save(progress)
            if progress.state is ChangeState.PROMOTE:
                world.trouble = lambda value: (
                    STUCK.get(kind, ({"phase": "Pending"},))[0] if value == NEW else None
                )
                if kind == "deadline" and any(not one.confirmed for one in progress.written.values()):
                    world.report("chat", "ProgressDeadlineExceeded", "it has timed out progressing")

    end = run(world, journal=StuckFromNowOn())
    assert end.state is ChangeState.ROLLED_BACK, end.detail
    words = "ProgressDeadlineExceeded: it has timed out" if kind == "deadline" else "CrashLoopBackOff"
    assert words in end.detail
    world.advance(60.0)
    assert list(world.running().values()) == [OLD, OLD]
    assert world.siblings() == []


def test_one_change_rolls_all_and_another_owner_is_the_baseline(world: PodWorld) -> None:
    for name in ("east", "west"):
        world.deploy_service(name, OLD, 2)
    world.settle()
    journal = MemoryJournal()
    end = run(world, journal=journal)
    assert (end.state, end.verdict) == (ChangeState.DONE, Verdict.IMPROVED), end.detail
    assert len(end.plan.canaries) == 2, "both pods of the first service change at once"
    assert len(end.baselines) == 2, "those of the other one"
    said = " ".join(row.detail for row in journal.rows)
    assert "no canary: one change rolls all" in said
    world.advance(60.0)
    assert list(world.running().values()) == [NEW] * 4
    assert {path.rpartition("/")[2] for _, path in world.api.writes} == {"east", "west"}


def test_one_change_that_rolls_all_there_is_has_no_verdict_and_goes_back(world: PodWorld) -> None:
    world.deploy_service("east", OLD, 2)
    world.settle()
    journal = MemoryJournal()
    end = run(world, journal=journal)
    assert end.state is ChangeState.HELD, end.detail
    assert end.verdict is None
    said = " ".join(row.detail for row in journal.rows)
    assert "no canary, nothing to compare with, no verdict" in said
    assert "all 2 restart twice" in said
    assert "no verdict: " in end.detail
    assert " before, " in end.detail
    command = "kubectl -n llm edit inferenceservice east  # --max-num-batched-tokens 2048"
    assert f"to keep {NEW}: {command}" in end.detail
    assert list(world.running().values()) == [OLD, OLD]
    assert [method for method, _ in world.api.writes] == ["PATCH", "PATCH"]


def test_a_child_is_put_back_by_its_operator(world: PodWorld) -> None:
    world.deploy_service("east", OLD, 1)
    key = ("apps/v1", DEPLOYMENTS, "llm", "east-engine")
    place = "/spec/template/spec/containers/0/args/4"
    operations = [{"op": "replace", "path": place, "value": str(NEW)}]
    world.fake.patch(key, "application/json-patch+json", operations, {})
    container = world.fake.get(key)["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][-1] == str(OLD)


# What stands against it is found before the first write


def _argo(world: PodWorld) -> None:
    chat(world, annotations={"argocd.argoproj.io/tracking-id": "prod:apps/Deployment:llm/chat"})


def _scaled(world: PodWorld) -> None:
    chat(world)
    aim = {"kind": "Deployment", "name": "chat"}
    meta = {"name": "keda-hpa-chat", "namespace": "llm"}
    world.fake.put(
        "autoscaling/v2", "horizontalpodautoscalers", {"metadata": meta, "spec": {"scaleTargetRef": aim}}
    )


def _two_budgets(world: PodWorld) -> None:
    chat(world)
    for name in ("one", "two"):
        spec = {"selector": {"matchLabels": {"app": "chat"}}}
        meta = {"name": name, "namespace": "llm"}
        world.fake.put("policy/v1", "poddisruptionbudgets", {"metadata": meta, "spec": spec})


def _may_not_create(world: PodWorld) -> None:
    chat(world)
    world.fake.forbidden.add(("create", DEPLOYMENTS, "llm"))


def _may_not_delete(world: PodWorld) -> None:
    chat(world)
    world.fake.forbidden.add(("delete", DEPLOYMENTS, "llm"))


def _other_manager(world: PodWorld) -> None:
    chat(world)
    world.fake.owned[_CHAT, "spec.template.spec.containers"] = "fleet-operator"


def _pruned(world: PodWorld) -> None:
    chat(world)

    def without_args(item: dict[str, Any]) -> dict[str, Any]:
        for one in item["spec"]["template"]["spec"]["containers"]:
            one.pop("args", None)
        return item

    world.fake.known[DEPLOYMENTS] = without_args


def _canary_of_another_plan(world: PodWorld) -> None:
    chat(world)
    meta = {
        "name": "chat-canary-old",
        "namespace": "llm",
        "labels": {"enginetop/plan": "0ld"},
        "annotations": {"enginetop/of": "Deployment/chat"},
    }
    world.fake.put("apps/v1", DEPLOYMENTS, {"metadata": meta, "spec": world.fake.get(_CHAT)["spec"]})


AGAINST: dict[str, tuple[Callable[[PodWorld], None], str]] = {
    "GitOps": (_argo, "Argo CD owns it"),
    "an autoscaler": (_scaled, "the autoscaler keda-hpa-chat may add or take replicas"),
    "two budgets": (_two_budgets, "disruption budgets one, two are over the same pods"),
    "no right to create": (_may_not_create, "we may not create deployments in llm"),
    "no right to delete": (_may_not_delete, "we may not delete deployments in llm"),
    "another manager": (_other_manager, 'conflict with "fleet-operator"'),
    "a pruned field": (_pruned, "was dropped: the CRD that is installed does not know it"),
    "a canary of another plan": (_canary_of_another_plan, "is the canary of the plan 0ld"),
}


@pytest.mark.parametrize("kind", AGAINST)
def test_what_stands_against_a_change_stops_it_before_the_first_write(world: PodWorld, kind: str) -> None:
    prepare, words = AGAINST[kind]
    prepare(world)
    found = preflight(world)
    assert any(words in problem for problem in found.problems), found.problems
    assert world.api.writes == []


def test_nothing_stands_against_a_plain_deployment_and_what_will_happen_is_said(world: PodWorld) -> None:
    chat(world)
    found = preflight(world)
    assert found.problems == ()
    said = " | ".join(found.notes)
    assert "one new replica beside llm/Deployment/chat" in said
    assert (
        "llm/Deployment/chat: a change restarts all replicas of this object, by its own strategy (2)" in said
    )
    assert "if enginetop vanishes, the next start of enginetop takes it back" in said
    assert "a pod that goes has 30 s to end its requests" in said
    assert "a restarted engine has cold caches" in said
    assert "one at a time" not in said, "that is for engines that we restart ourselves"


def test_replicas_that_nobody_watches_stop_it(world: PodWorld) -> None:
    """All of an owner's pods change, those that no page is read of as well."""
    chat(world, replicas=3)
    plan = world.plan(NEW)
    seen = replace(plan, changes=plan.changes[:-1])
    found = preflight(world, seen)
    assert "llm/Deployment/chat: 2 of its 3 replicas are in the plan, all change" in found.problems


def test_control_routes_that_are_open_to_anybody_stop_it_here_as_well(world: PodWorld) -> None:
    chat(world)
    world.admin = AdminFacts(routes=frozenset({"/sleep"}))
    found = preflight(world)
    assert any("what is on trial could be changed by anybody" in problem for problem in found.problems)


# Somebody else, while it is under way


def test_a_canary_that_somebody_deletes_ends_the_change(world: PodWorld) -> None:
    chat(world)

    class Deleted(MemoryJournal):
        def save(self, progress: Progress) -> None:
            super().save(progress)
            for name in world.siblings() if progress.state is ChangeState.OBSERVE else ():
                world.fake.remove(("apps/v1", DEPLOYMENTS, "llm", name))

    end = run(world, journal=Deleted())
    assert end.state is ChangeState.ROLLED_BACK, end.detail
    world.advance(20.0)
    assert list(world.running().values()) == [OLD, OLD]


def test_flags_that_somebody_else_wrote_meanwhile_are_left_alone(world: PodWorld) -> None:
    chat(world)

    class Meddled(MemoryJournal):
        def save(self, progress: Progress) -> None:
            super().save(progress)
            if progress.state is ChangeState.PROMOTE and len(progress.written) == 1:
                world.set_by_hand("chat", 4096)

    end = run(world, journal=Meddled())
    assert end.state is ChangeState.ROLLED_BACK, end.detail
    assert "4096" in end.detail
    assert world.siblings() == []
    assert world.fake.get(_CHAT)["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "4096"


def test_only_the_sibling_that_was_looked_at_is_deleted(world: PodWorld) -> None:
    """Somebody makes another object of that name just then."""
    chat(world)
    plan = world.plan(NEW)
    client = world.worlds(plan, world, False).client(CANARY)
    assert client is not None
    how: dict[str, Any] = {"if_version": None, "change": plan.id, "reason": "a test"}
    assert client.write(KNOB, NEW, ttl_seconds=60.0, **how).kind is ReplyKind.OK
    key = ("apps/v1", DEPLOYMENTS, "llm", f"chat-canary-{plan.id}")

    def replaced() -> None:
        item = world.fake.get(key)
        item["metadata"]["uid"] = "another"
        world.fake.put("apps/v1", DEPLOYMENTS, item)

    world.api.before_write = replaced
    reply = client.write(KNOB, OLD, ttl_seconds=None, **how)
    assert reply.kind is ReplyKind.CONFLICT
    assert "does not match" in reply.detail
    assert key in world.fake._items


def test_an_owner_that_somebody_deletes_ends_the_change(world: PodWorld) -> None:
    chat(world)

    class Deleted(MemoryJournal):
        def save(self, progress: Progress) -> None:
            super().save(progress)
            if progress.state is ChangeState.OBSERVE and _CHAT in world.fake._items:
                world.fake.remove(_CHAT)

    end = run(world, journal=Deleted())
    assert end.state is ChangeState.ROLLED_BACK, end.detail
    assert world.siblings() == []


@pytest.mark.parametrize("verb", [pytest.param("patch", marks=pytest.mark.verify), "delete"])
def test_a_right_that_is_taken_away_meanwhile_fails_the_way_back_with_the_command(
    world: PodWorld, tmp_path: Path, verb: str
) -> None:
    chat(world)
    world.worlds = OwnerWorlds(world.cluster, tmp_path, ready_seconds=60.0)

    class Refused(MemoryJournal):
        def stop_wanted(self, change: str) -> str:
            promoted = [one for one in self.saved if len(one.written) > 1]
            ready = promoted if verb == "patch" else world.siblings()
            if not ready:
                return ""
            world.fake.forbidden.add((verb, DEPLOYMENTS, "llm"))
            return "a test wants it back"

        def save(self, progress: Progress) -> None:
            self.saved.append(progress)

    end = run(world, journal=Refused())
    assert end.state is ChangeState.ROLLBACK_FAILED, end.detail
    command = {
        "patch": f"; by hand: kubectl -n llm edit deployment chat  # --max-num-batched-tokens {OLD}",
        "delete": f"; by hand: kubectl -n llm delete deployment -l enginetop/plan={end.plan.id}",
    }[verb]
    assert command in end.detail
    assert f'cannot {verb} resource "deployments"' in end.detail
    assert "/enginetop/v1/knobs" not in end.detail
    world.fake.forbidden.clear()
    back = resume_to_undo(
        progress_document(end), now=world.now(), why="again", settings=BRIEF, tool_version=VERSION
    )
    again = drive(back, world.worlds(end.plan, world, True), journal=MemoryJournal())
    assert again.state is ChangeState.ROLLED_BACK, again.detail
    world.advance(60.0)
    assert (list(world.running().values()), world.siblings()) == ([OLD, OLD], [])


def test_the_loan_of_a_sibling_is_renewed(world: PodWorld) -> None:
    chat(world)
    seen: list[float] = []

    class Watching(MemoryJournal):
        def append(self, rows: Any) -> None:
            super().append(rows)
            for name in world.siblings():
                kept = world.fake.get(("apps/v1", DEPLOYMENTS, "llm", name))["metadata"]["annotations"]
                seen.append(float(kept[EXPIRES_KEY]) - world.now())

    run(world, journal=Watching())
    assert all(0 < left <= BRIEF.ttl_seconds for left in seen)
    assert len(seen) > 4


# A controller that dies


class _Died(Exception):  # noqa: N818 - what ends the controller
    pass


def undone(world: PodWorld, store: ChangeStore, plan: Plan) -> Progress:
    """What the next start of enginetop does with a change."""
    progress = resume_to_undo(
        store.load(plan.id), now=world.now(), why="it was killed", settings=BRIEF, tool_version=VERSION
    )
    end = drive(progress, world.worlds(plan, world, True), journal=store)
    world.advance(60.0)
    return end


KILLED = [
    pytest.param(write, late, id=f"{'after' if late else 'before'} {write}")
    if (write, late) in (("create", True), ("patch", False), ("delete", True))
    else pytest.param(write, late, id=f"{'after' if late else 'before'} {write}", marks=pytest.mark.verify)
    for write in ("create", "renew", "patch", "delete")
    for late in (False, True)
]
"""Three in every run, the others in `make verify`."""


@pytest.mark.parametrize(("write", "late"), KILLED)
def test_killed_at_any_write_the_next_start_leaves_what_was_there(
    world: PodWorld, tmp_path: Path, write: str, late: bool
) -> None:
    chat(world)
    kept = world.fake.get(_CHAT)["spec"]
    plan = world.plan(NEW)
    store = ChangeStore(tmp_path / "state")
    wanted = {"create": "POST", "renew": "PATCH", "patch": "PATCH", "delete": "DELETE"}[write]

    def die() -> None:
        method, path = world.api.writing
        if method == wanted and ("-canary-" in path) == (write in ("renew", "delete")):
            world.api.before_write = world.api.after_write = lambda: None
            raise _Died

    if late:
        world.api.after_write = die
    else:
        world.api.before_write = die
    with pytest.raises(_Died):
        run(world, journal=store, plan=plan)
    world.advance(30.0)  # what was begun goes on without us
    end = undone(world, store, plan)
    assert end.state in FINAL_STATES
    assert end.state is ChangeState.ROLLED_BACK, end.detail
    assert world.siblings() == []
    assert list(world.running().values()) == [OLD, OLD]
    assert world.fake.get(_CHAT)["spec"] == kept
    assert store.audit.verify().intact
    assert store.audit.rows()[-1].state is end.state
    assert {row.knob for row in store.audit.rows()} == {KNOB}


def test_components_of_one_object_are_changed_each_by_itself(world: PodWorld, tmp_path: Path) -> None:
    """As in a DynamoGraphDeployment: one object, one name of the container, pods with other labels."""
    chat(world, replicas=3)
    plan = world.plan(NEW)
    targets = [change.target for change in plan.changes if change.target != CANARY]
    path = f"/apis/apps/v1/namespaces/llm/{DEPLOYMENTS}/chat"
    owner = Owner(
        path, "llm/Deployment/chat", EngineKind.VLLM, "main", Role.DECODE, {}, 1, KNOB, OLD, NEW, True
    )
    labels = ("decode", "thinker", "decode")
    owners = {
        target: replace(owner, selector={"component": label})
        for target, label in zip(targets, labels, strict=True)
    }
    record = tmp_path / "kubernetes" / f"{plan.id}.json"
    record.parent.mkdir(exist_ok=True)
    record.write_text(json.dumps(record_document(owners)))
    seats = OwnerWorlds(world.cluster, tmp_path)(plan, world, True)
    first, second, third = (seats.client(target) for target in targets)
    assert first is third
    assert first is not second
