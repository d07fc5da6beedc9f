"""What enginetop rests on in a Kubernetes API server: held against the fake always, a real one on request.

Each check gets an `ApiServer`; `CHECKS` holds them all by name.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from collectors.kubernetes.client import KubernetesClient, VersionGoneError
from collectors.kubernetes.context import KubernetesError
from enginetop.cli.kubernetes_owners import Cluster
from enginetop.fleet.knobs import KnobRow
from enginetop.fleet.model import EngineKind
from tests.support.kubernetes_pods import VLLM_STACK, pod
from tests.support.kubernetes_stacks import STACKS, Served
from tuners.control.knob_api import ReplyKind
from tuners.control.kubernetes.arguments import written
from tuners.control.kubernetes.change_points import change_point
from tuners.control.kubernetes.inspect import OwnedFlags, inspect
from tuners.control.kubernetes.owner import owner_of
from tuners.control.kubernetes.owner_board import OwnerBoard
from tuners.control.kubernetes.patches import APPLY_PATCH, JSON_PATCH, apply_body, json_patch
from tuners.control.kubernetes.sibling_board import SiblingBoard

PODS = "/api/v1/namespaces/llm/pods"


class ApiServer(Protocol):
    """A server with a namespace `llm` and the kinds of the stacks. Its user may do all but read secrets and
    patch `llminferenceservices`.
    """

    client: KubernetesClient

    def put(self, api: str, plural: str, item: dict[str, Any]) -> None:
        """Create or replace an object, with rights that the user need not have."""

    def remove(self, api: str, plural: str, name: str) -> None:
        """Delete an object of the namespace."""

    def forget(self) -> None:
        """Compact the history up to now."""


def lists_come_in_pages(server: ApiServer) -> None:
    for number in range(7):
        server.put("v1", "pods", pod(f"page{number}", VLLM_STACK))
    client = server.client
    client._page_items = 3
    names = [item["metadata"]["name"] for item in client.list(PODS).items]
    assert [name for name in names if name.startswith("page")] == [f"page{number}" for number in range(7)]


def a_watch_tells_what_came_and_went(server: ApiServer) -> None:
    version = server.client.list(PODS).version
    server.put("v1", "pods", pod("watched", VLLM_STACK))
    server.remove("v1", "pods", "watched")
    seen = [
        (event.kind, event.item["metadata"].get("name"))
        for event in server.client.watch(PODS, version, seconds=2)
    ]
    told = [one for one in seen if one[0] in ("ADDED", "DELETED")]
    assert told == [("ADDED", "watched"), ("DELETED", "watched")]


def a_watch_without_events_ends_well(server: ApiServer) -> None:
    version = server.client.list(PODS).version
    events = list(server.client.watch(PODS, version, seconds=1))
    assert all(event.kind == "BOOKMARK" for event in events)


def an_old_version_is_gone(server: ApiServer) -> None:
    version = server.client.list(PODS).version
    for name in ("younger", "youngest"):
        server.put("v1", "pods", pod(name, VLLM_STACK))
    server.forget()
    with pytest.raises(VersionGoneError):
        list(server.client.watch(PODS, version, seconds=1))


def a_missing_right_names_its_verb(server: ApiServer) -> None:
    with pytest.raises(
        KubernetesError, match=r'cannot list resource "secrets".*in the namespace "llm"'
    ) as raised:
        server.client.list("/api/v1/namespaces/llm/secrets")
    assert raised.value.status == 403


def what_is_not_there_is_404(server: ApiServer) -> None:
    with pytest.raises(KubernetesError, match='pods "none" not found') as raised:
        server.client.get(f"{PODS}/none")
    assert raised.value.status == 404


def a_custom_resource_takes_no_strategic_patch(server: ApiServer) -> None:
    flags = owned(server, STACKS["production stack, operator"])
    with pytest.raises(KubernetesError) as raised:
        server.client.send("PATCH", flags.path, {}, {"spec": {}}, "application/strategic-merge-patch+json")
    assert raised.value.status == 415


def each_stack_takes_our_patch(server: ApiServer) -> None:
    for stack, served in STACKS.items():
        if stack == "KServe":
            continue
        flags = owned(server, served)
        value = after(flags, stack)
        patch = json_patch(flags.owner, flags.point, value, "c1")
        dry = server.client.send("PATCH", flags.path, {"dryRun": "All"}, patch, JSON_PATCH)
        assert at(dry, served.pointer) == served.after, stack
        assert server.client.get(flags.path)["spec"] == flags.owner["spec"], "a dry run changes nothing"
        server.client.send("PATCH", flags.path, {}, patch, JSON_PATCH)
        assert at(server.client.get(flags.path), served.pointer) == served.after, stack
        with pytest.raises(KubernetesError) as raised:
            server.client.send("PATCH", flags.path, {}, patch, JSON_PATCH)
        assert raised.value.status in (409, 422), raised.value


def an_inspection_finds_nothing_to_say(server: ApiServer) -> None:
    flags = owned(server, STACKS["plain"])
    found = inspect(server.client, flags, after(flags, "plain"), "c1")
    assert [one.text for one in found if one.refuses] == []


def another_manager_is_named(server: ApiServer) -> None:
    flags = owned(server, STACKS["OME"])
    by_argo = {"fieldManager": "argocd-controller", "force": "true"}
    body = apply_body(flags.owner, flags.point, ["--max-running-requests", "16"])
    server.client.send("PATCH", flags.path, by_argo, body, APPLY_PATCH)
    owner = {**server.client.get(flags.path), **{key: flags.owner[key] for key in ("kind", "apiVersion")}}
    point = change_point(owner, flags.pod, "ome-container", STACKS["OME"].role)
    now = OwnedFlags(flags.path, owner, flags.pod, point)
    texts = [one.text for one in inspect(server.client, now, after(now, "OME"), "c1") if one.refuses]
    assert any(re.search('conflicts? with "argocd-controller"', text) for text in texts), texts


def a_right_that_we_lack_is_found_before(server: ApiServer) -> None:
    flags = owned(server, STACKS["KServe"])
    texts = [one.text for one in inspect(server.client, flags, after(flags, "KServe"), "c1") if one.refuses]
    assert texts[0].startswith("we may not patch llminferenceservices in llm")


def a_field_that_the_crd_lacks_is_dropped_in_silence(server: ApiServer) -> None:
    flags = owned(server, STACKS["production stack, operator"])
    patch = [{"op": "add", "path": "/spec/unheardOf", "value": 1}]
    answer = server.client.send("PATCH", flags.path, {"dryRun": "All"}, patch, JSON_PATCH)
    assert "unheardOf" not in answer["spec"]


def a_sibling_is_created_renewed_and_deleted(server: ApiServer) -> None:
    for stack in ("plain", "production stack, operator"):
        flags = owned(server, STACKS[stack])
        board = owners_board(server, flags, stack)
        canary = SiblingBoard(board)
        examined = canary.examine()
        assert (examined.kind, examined.problems) == (ReplyKind.OK, ()), examined.detail
        assert canary.write("max_num_seqs", 32, **trial(60.0)).kind is ReplyKind.OK
        path = f"{flags.path}-canary-c1"
        made = server.client.get(path)
        assert at(made, STACKS[stack].pointer) == STACKS[stack].after, stack
        assert made["metadata"]["labels"]["enginetop/plan"] == "c1"
        row = read_row(canary)
        assert (row.value, row.phase) == (32, "restarting"), "it has no pod yet"
        assert server.client.get(flags.path)["spec"] == flags.owner["spec"], "the owner is as it was"
        again = SiblingBoard(owners_board(server, flags, stack))  # after a crash: found by its label
        assert read_row(again).value == 32
        until = made["metadata"]["annotations"]["enginetop/expires"]
        assert again.write("max_num_seqs", 32, **trial(120.0)).kind is ReplyKind.OK
        renewed = server.client.get(path)
        assert int(renewed["metadata"]["annotations"]["enginetop/expires"]) == int(until) + 60
        assert renewed["spec"] == made["spec"], "no pod moves for that, though a Deployment's generation does"
        moves = renewed["metadata"]["generation"] > made["metadata"]["generation"]
        assert moves is (stack == "plain")
        other = {"uid": "00000000-0000-0000-0000-000000000000"}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": other}
        with pytest.raises(KubernetesError) as raised:
            server.client.send("DELETE", path, body=body)
        assert raised.value.status == 409
        assert again.write("max_num_seqs", 64, **trial(None)).kind is ReplyKind.OK
        with pytest.raises(KubernetesError, match="not found"):
            server.client.get(path)
        assert read_row(again).value == 64


def an_owner_is_patched_and_is_as_before_afterwards(server: ApiServer) -> None:
    for stack, served in STACKS.items():
        if stack == "KServe":
            continue
        flags = owned(server, served)
        board = owners_board(server, flags, stack)
        assert board.write("max_num_seqs", 32, **trial(60.0)).kind is ReplyKind.OK
        assert at(server.client.get(flags.path), served.pointer) == served.after, stack
        managers = server.client.get(flags.path)["metadata"].get("managedFields", [{"manager": "enginetop"}])
        assert "enginetop" in [one["manager"] for one in managers]
        again = owners_board(server, flags, stack)  # after a crash
        assert read_row(again).value == 32
        assert again.write("max_num_seqs", 64, **trial(None)).kind is ReplyKind.OK
        spec = server.client.get(flags.path)["spec"]
        bump = spec.get("deploymentConfig", {}).pop("podAnnotations", None)
        assert (bump is not None) == (flags.point.bump is not None)
        if bump is not None:
            del spec["deploymentConfig"]
        assert spec == flags.owner["spec"], stack


def what_somebody_else_wrote_is_not_written_over(server: ApiServer) -> None:
    flags = owned(server, STACKS["plain"])
    board = owners_board(server, flags, "plain")
    read_row(board)
    patch = [{"op": "replace", "path": f"{STACKS['plain'].pointer}/4", "value": "48"}]
    server.client.send("PATCH", flags.path, {"fieldManager": "kubectl-edit"}, patch, JSON_PATCH)
    board._kept = None
    reply = board.write("max_num_seqs", 32, **trial(60.0))
    assert reply.kind is ReplyKind.CONFLICT
    assert at(server.client.get(flags.path), f"{STACKS['plain'].pointer}/4") == "48"


def what_we_may_not_write_is_refused_before_and_then(server: ApiServer) -> None:
    flags = owned(server, STACKS["KServe"])
    board = owners_board(server, flags, "KServe")
    examined = board.examine()
    assert any("we may not patch llminferenceservices" in problem for problem in examined.problems)
    assert board.write("max_num_seqs", 32, **trial(60.0)).kind is ReplyKind.UNAUTHORIZED


CHECKS: dict[str, Callable[[ApiServer], None]] = {
    check.__name__: check
    for check in (
        lists_come_in_pages,
        a_watch_tells_what_came_and_went,
        a_watch_without_events_ends_well,
        an_old_version_is_gone,
        a_missing_right_names_its_verb,
        what_is_not_there_is_404,
        a_custom_resource_takes_no_strategic_patch,
        each_stack_takes_our_patch,
        an_inspection_finds_nothing_to_say,
        another_manager_is_named,
        a_right_that_we_lack_is_found_before,
        a_field_that_the_crd_lacks_is_dropped_in_silence,
        a_sibling_is_created_renewed_and_deleted,
        an_owner_is_patched_and_is_as_before_afterwards,
        what_somebody_else_wrote_is_not_written_over,
        what_we_may_not_write_is_refused_before_and_then,
    )
}


def owned(server: ApiServer, served: Served) -> OwnedFlags:
    """The stack's objects on the server, and the flags of its engine there."""
    mine = copy.deepcopy(served)
    api, plural, item = mine.owners[-1]
    server.put(api, plural, item)
    path = f"/apis/{api}/namespaces/llm/{plural}/{item['metadata']['name']}"
    owner = {"kind": item["kind"], "apiVersion": api, **server.client.get(path)}
    point = change_point(owner, mine.pod, mine.container, mine.role)
    return OwnedFlags(path, owner, mine.pod, point, mine.container, mine.role)


def owners_board(server: ApiServer, flags: OwnedFlags, stack: str) -> OwnerBoard:
    """A board for `max_num_seqs` from 64 to 32, as a controller that starts has it."""
    kind = EngineKind.SGLANG if stack == "OME" else EngineKind.VLLM
    owner = owner_of(flags, kind, "max_num_seqs", 64, 32, 1)
    cluster = Cluster(client=server.client)
    return OwnerBoard(cluster, owner, "c1", now=lambda: 1_000_000.0, remember=lambda: None)


def read_row(board: OwnerBoard | SiblingBoard) -> KnobRow:
    """What a board says of the knob."""
    reply = board.read()
    assert reply.sheet is not None, reply.detail
    (row,) = reply.sheet.knobs
    return row


def trial(ttl_seconds: float | None) -> dict[str, Any]:
    """A write of a change."""
    return {"if_version": None, "ttl_seconds": ttl_seconds, "change": "c1", "reason": "a test"}


def after(flags: OwnedFlags, stack: str) -> list[str] | str:
    """The flags with `max_num_seqs` 32."""
    kind = EngineKind.SGLANG if stack == "OME" else EngineKind.VLLM
    return written(flags.point.present, flags.point.style, kind, {"max_num_seqs": 32})


def at(item: Any, path: str) -> Any:
    """What a JSON pointer points to."""
    for step in path.split("/")[1:]:
        item = item[int(step)] if isinstance(item, list) else item[step.replace("~1", "/")]
    return item
