"""The feed: which paths are asked, which never, and what answers mean; live and in replay."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors import side_pages
from collectors.answer import Answer
from collectors.engines import llamacpp, vllm
from collectors.exposition import PageParser, ParseLimits
from collectors.feed import TargetFeed
from collectors.judge import PageJudge
from collectors.layout import LayoutCache
from collectors.side_pages import SIDE_TRIES
from enginetop.fleet.model import EngineKind, Target
from enginetop.fleet.observation import FailureKind, Observation
from tests.support.engine_pages import answer, fault, fixture, total

VLLM_PAGE = fixture("vllm/0.32.0/vllm-0.32.0-loaded.prom")
LLAMA_PAGE = fixture("llamacpp/b10434/llama_cpp-b10434-busy1.prom")
LLAMA_SLOTS = json.loads(fixture("llamacpp/b10434/llama_cpp-b10434-busy1.slots.json"))
LLAMA_PROPS = json.loads(fixture("llamacpp/b10434/llama_cpp-b10434-idle.props.json"))
TRTLLM_PAGE = fixture("trtllm/1.3/trtllm-1.3-reconstructed-kvpressure.prom")
TRTLLM_QUEUE = fixture("trtllm/1.3/trtllm-reconstructed-iteration_stats.json")
SGLANG_PAGE = fixture("sglang/0.5.23/sglang-0.5.23-load-queued.prom")
PROCESS_PAGE = b"python_gc_objects_collected_total 3\nprocess_cpu_seconds_total 4\n"
HTML = b"<!doctype html><html><head><title>Sign &amp; in</title></head></html>"
LLAMA = {"server": "llama.cpp"}

Pages = dict[str, Answer | Callable[[], Answer]]


def missing(path: str, headers: Mapping[str, str] | None = None) -> Answer:
    return answer(path, {"detail": "Not Found"}, status=404, headers=headers)


class Server:
    """Answers from a table of pages, 404 elsewhere, and remembers what it was asked."""

    def __init__(
        self, pages: Pages, *, path: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.pages = pages
        self.headers = headers
        self.feed = TargetFeed(Target("http://r1:8000", "r1", path), LayoutCache())
        self.at = 100.0
        self.asked: list[str] = []
        """Every request so far, with its query."""

    def scrape(self) -> tuple[list[str], Observation]:
        """One scrape as the live loop does it: the paths asked, and what came of it."""
        answers: list[Answer] = []
        while (path := self.feed.next_path(answers)) is not None:
            assert len(answers) < 10, "the feed does not end"
            self.asked.append(path)
            path = path.partition("?")[0]
            page = self.pages.get(path)
            answers.append(
                page if isinstance(page, Answer) else page() if page else missing(path, self.headers)
            )
        self.at += 2.0
        return [a.path for a in answers], self.feed.take(answers, self.at, 0.05)


def replay(*groups: list[Answer], path: str | None = None) -> list[Observation]:
    feed = TargetFeed(Target("http://r1:8000", "r1", path), LayoutCache())
    return [feed.take(group, group[0].at, 0.01) for group in groups]


def vllm_pages() -> Pages:
    return {
        "/metrics": answer("/metrics", VLLM_PAGE),
        "/version": answer("/version", {"version": "0.32.0"}),
        "/v1/models": answer("/v1/models", {"data": [{"id": "tiny", "max_model_len": 512}]}),
    }


def llama_pages(**props: object) -> Pages:
    return {
        "/props": answer("/props", {**LLAMA_PROPS, **props}, headers=LLAMA),
        "/metrics": answer("/metrics", LLAMA_PAGE, headers=LLAMA),
        "/slots": answer("/slots", LLAMA_SLOTS, headers=LLAMA),
    }


# Which paths are asked


def test_an_unknown_server_is_asked_the_safe_page_first_and_then_only_its_own() -> None:
    server = Server(vllm_pages())
    paths, first = server.scrape()
    assert paths == ["/prometheus/metrics", "/metrics", "/version", "/v1/models", "/server_info"]
    assert first.reading is not None
    assert first.reading.identity.engine_version == "0.32.0"
    assert first.reading.config["max_model_len"].value == 512
    assert server.scrape()[0] == ["/metrics"]
    assert server.feed.engine is EngineKind.VLLM


def test_a_named_page_is_the_only_one() -> None:
    server = Server({"/custom/metrics": answer("/custom/metrics", VLLM_PAGE)}, path="/custom/metrics")
    assert server.scrape()[0][0] == "/custom/metrics"
    lost = Server({"/metrics": answer("/metrics", VLLM_PAGE)}, path="/custom/metrics")
    paths, observation = lost.scrape()
    assert paths == ["/custom/metrics"]
    assert observation.failure is not None
    assert observation.failure.kind is FailureKind.NO_ENGINE_METRICS
    assert "404" in observation.failure.detail


def test_llama_cpp_is_known_by_its_header_and_asked_its_properties_first() -> None:
    server = Server(llama_pages(), headers=LLAMA)
    paths, observation = server.scrape()
    assert paths == ["/prometheus/metrics", "/props", "/metrics", "/slots"]
    assert observation.reading is not None
    assert total(observation.reading, "generation_tokens") == 240 + 119 + 119
    assert server.scrape()[0] == ["/props", "/metrics", "/slots"]


def test_a_sleeping_llama_cpp_is_never_woken() -> None:
    server = Server(llama_pages(is_sleeping=True), headers=LLAMA)
    for expected in (["/prometheus/metrics", "/props"], ["/props"]):
        paths, observation = server.scrape()
        assert paths == expected
        assert observation.reading is not None
        assert observation.reading.flags.sleeping is True
        assert observation.metrics_page  # the look is good: such a target does not go stale
    server.pages |= llama_pages()
    assert "/metrics" in server.scrape()[0]
    server.pages |= llama_pages(is_sleeping=True)
    assert server.scrape()[0] == ["/props"]


def test_a_llama_cpp_router_loads_no_model() -> None:
    server = Server(llama_pages(role="router"), headers=LLAMA)
    paths, observation = server.scrape()
    assert paths == ["/prometheus/metrics", "/props", "/models"]
    assert observation.failure is not None  # its list of models is not there
    assert observation.failure.kind is FailureKind.NO_ENGINE_METRICS
    assert "router" in observation.failure.detail
    server.pages["/models"] = answer("/models", {"data": [{"id": "a", "status": {"value": "loaded"}}]})
    paths, observation = server.scrape()
    assert paths == ["/props", "/models"]
    assert observation.reading is not None
    assert total(observation.reading, "models_loaded") == 1


def test_no_queue_is_drained_once_a_page_of_an_engine_is_found() -> None:
    server = Server(
        {
            "/prometheus/metrics": answer("/prometheus/metrics", TRTLLM_PAGE),
            "/metrics": answer("/metrics", TRTLLM_QUEUE),
        }
    )
    paths, observation = server.scrape()
    assert paths == ["/prometheus/metrics", "/version", "/v1/models"]
    assert server.scrape()[0] == ["/prometheus/metrics"]
    assert observation.reading is not None
    assert observation.reading.identity.engine is EngineKind.TRTLLM


def test_a_queue_is_emptied_once_and_then_left_alone() -> None:
    server = Server({"/metrics": answer("/metrics", TRTLLM_QUEUE)})
    paths, first = server.scrape()
    assert paths == ["/prometheus/metrics", "/metrics"]  # what it is shows only when it is asked
    for _ in range(3):
        paths, observation = server.scrape()
        assert paths == ["/prometheus/metrics"]
        assert observation.failure is not None
        assert first.failure is not None
        assert observation.failure.detail == first.failure.detail
        assert "return_perf_metrics" in observation.failure.detail


def test_a_queue_that_the_user_names_is_asked() -> None:
    server = Server({"/metrics": answer("/metrics", TRTLLM_QUEUE)}, path="/metrics")
    paths, observation = server.scrape()
    assert paths == ["/metrics", "/version", "/v1/models"]
    assert observation.reading is not None
    assert total(observation.reading, "requests_running") == 48
    assert server.scrape()[0] == ["/metrics"]


def test_no_queue_is_drained_when_the_page_of_the_engine_goes() -> None:
    server = Server(
        {
            "/prometheus/metrics": answer("/prometheus/metrics", TRTLLM_PAGE),
            "/metrics": answer("/metrics", TRTLLM_QUEUE),
        }
    )
    server.scrape()
    good = server.pages.pop("/prometheus/metrics")
    for _ in range(3):
        assert server.scrape()[0] == ["/prometheus/metrics"]
    server.pages["/prometheus/metrics"] = good
    assert server.scrape()[1].reading is not None


def test_no_queue_is_drained_when_the_engine_came_back_and_its_page_goes_then() -> None:
    pages = {"/prometheus/metrics": answer("/prometheus/metrics", TRTLLM_PAGE)}
    server = Server(dict(pages))
    server.scrape()
    server.pages = {"/prometheus/metrics": fault("/prometheus/metrics", FailureKind.REFUSED)}
    server.scrape()
    server.pages = dict(pages)
    server.scrape()
    server.pages = {"/metrics": answer("/metrics", TRTLLM_QUEUE)}
    assert server.scrape()[0] == ["/prometheus/metrics"]


def test_another_server_behind_the_address_of_a_queue_is_found_after_a_restart() -> None:
    server = Server({"/prometheus/metrics": answer("/prometheus/metrics", TRTLLM_PAGE)})
    server.scrape()
    server.pages = {path: fault(path, FailureKind.REFUSED) for path in ("/prometheus/metrics", "/metrics")}
    server.scrape()
    server.pages = vllm_pages()
    observations = [server.scrape()[1] for _ in range(2)]
    assert observations[-1].reading is not None
    assert observations[-1].reading.identity.engine is EngineKind.VLLM


@pytest.mark.parametrize("body", [b"", b"\n", b"# EOF\n"])
@pytest.mark.parametrize(
    "kind",
    [
        "text/plain; version=0.0.4; charset=utf-8",
        "text/plain; version=1.0.0; charset=utf-8",
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
    ],
)
def test_no_queue_is_drained_before_the_first_request(kind: str, body: bytes) -> None:
    """TensorRT-LLM's page has no series then, and its type says that it is a metrics page."""
    empty = answer("/prometheus/metrics", body, headers={"content-type": kind})
    server = Server({"/prometheus/metrics": empty, "/metrics": answer("/metrics", TRTLLM_QUEUE)})
    for _ in range(2):
        paths, observation = server.scrape()
        assert paths == ["/prometheus/metrics"]
        assert observation.failure is not None
        assert observation.failure.kind is FailureKind.NO_ENGINE_METRICS
        assert "nothing was counted" in observation.failure.detail


@pytest.mark.parametrize(
    "trouble",
    [
        fault("/prometheus/metrics", FailureKind.TIMEOUT),
        fault("/prometheus/metrics", FailureKind.TRUNCATED),
        fault("/prometheus/metrics", FailureKind.TOO_LARGE),
        fault("/prometheus/metrics", FailureKind.REFUSED),
        answer("/prometheus/metrics", status=500),
        answer("/prometheus/metrics", "Loading model", status=503),
    ],
)
def test_no_queue_is_drained_while_the_safe_page_is_in_trouble(trouble: Answer) -> None:
    server = Server({"/prometheus/metrics": trouble, "/metrics": answer("/metrics", TRTLLM_QUEUE)})
    assert server.scrape()[0] == ["/prometheus/metrics"]


@pytest.mark.parametrize(
    "nothing",
    [
        missing("/prometheus/metrics"),
        answer("/prometheus/metrics", HTML, headers={"content-type": "text/html"}),
        answer("/prometheus/metrics", b""),
        answer("/prometheus/metrics", PROCESS_PAGE),
        answer("/prometheus/metrics", status=401),
        answer("/prometheus/metrics", status=307, headers={"location": "/login"}),
        answer("/prometheus/metrics", status=405),
        answer("/prometheus/metrics", status=501),
        answer("/prometheus/metrics", {"detail": "no"}),
    ],
)
def test_one_good_page_on_another_known_path_is_enough(nothing: Answer) -> None:
    server = Server({**vllm_pages(), "/prometheus/metrics": nothing})
    assert server.scrape()[1].reading is not None
    assert server.scrape()[0] == ["/metrics"]


def test_after_a_404_on_the_remembered_page_the_others_are_tried() -> None:
    server = Server(vllm_pages())
    server.scrape()
    server.pages = {"/prometheus/metrics": answer("/prometheus/metrics", VLLM_PAGE)}
    paths, observation = server.scrape()
    assert paths == ["/metrics", "/prometheus/metrics"]
    assert observation.reading is not None
    assert server.scrape()[0] == ["/prometheus/metrics"]


def test_a_server_that_lost_its_page_is_probed_anew_each_time() -> None:
    server = Server(vllm_pages())
    server.scrape()
    server.pages = {}
    assert server.scrape()[0] == ["/metrics", "/prometheus/metrics"]
    assert server.scrape()[0] == ["/prometheus/metrics", "/metrics"]
    server.pages = vllm_pages()
    assert server.scrape()[1].reading is not None


def test_pages_of_a_start_are_asked_again_after_a_restart() -> None:
    server = Server(vllm_pages())
    server.scrape()
    server.pages["/metrics"] = answer(
        "/metrics", VLLM_PAGE.replace(b"1.79598333344e+09", b"1.79598444444e+09")
    )
    assert server.scrape()[0] == ["/metrics"]
    server.pages["/version"] = answer("/version", {"version": "0.33.0"})
    paths, observation = server.scrape()
    assert paths == ["/metrics", "/version", "/v1/models", "/server_info"]
    assert observation.reading is not None
    assert observation.reading.identity.engine_version == "0.33.0"


def test_pages_of_a_start_are_asked_again_after_the_server_was_away() -> None:
    server = Server(vllm_pages())
    server.scrape()
    server.pages["/metrics"] = fault("/metrics", FailureKind.REFUSED)
    server.scrape()
    server.pages = vllm_pages()
    assert server.scrape()[0] == ["/metrics", "/version", "/v1/models", "/server_info"]


def test_a_side_page_that_wants_a_key_is_not_asked_again_and_harms_nothing() -> None:
    server = Server({**vllm_pages(), "/v1/models": answer("/v1/models", status=401)})
    observation = server.scrape()[1]
    assert observation.reading is not None
    assert observation.failure is None
    assert server.scrape()[0] == ["/metrics"]


def test_a_side_page_is_asked_with_its_query_once() -> None:
    server = Server(vllm_pages())
    server.scrape()
    server.scrape()
    assert [path for path in server.asked if "server_info" in path] == ["/server_info?config_format=json"]


def test_a_side_page_that_fails_is_given_up_in_time() -> None:
    server = Server({**vllm_pages(), "/version": fault("/version", FailureKind.TIMEOUT)})
    asked = [path for _ in range(SIDE_TRIES + 3) for path in server.scrape()[0]]
    assert asked.count("/version") == SIDE_TRIES
    assert asked.count("/v1/models") == 1


def test_a_side_page_is_decoded_once_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[bytes] = []

    def counted(body: bytes) -> object:
        bodies.append(body)
        return json.loads(body)

    server = Server(llama_pages())
    server.scrape()
    monkeypatch.setattr(side_pages, "decoded", counted)
    paths, observation = server.scrape()
    assert observation.reading is not None
    assert paths == ["/props", "/metrics", "/slots"]
    assert len(bodies) == 2


@pytest.mark.parametrize("broken", [(PageJudge, "judge"), (llamacpp.LlamaReader, "read")])
def test_no_answer_outlives_its_scrape(monkeypatch: pytest.MonkeyPatch, broken: tuple[type, str]) -> None:
    """Also where our own code fails at every scrape: an answer can hold megabytes."""

    def passing(page: Answer | Callable[[], Answer]) -> Callable[[], Answer]:
        assert isinstance(page, Answer)
        return lambda: replace(page, detail="passing")

    server = Server({path: passing(page) for path, page in llama_pages().items()})
    server.scrape()
    monkeypatch.setattr(*broken, lambda *_: 1 / 0)
    assert [server.scrape()[1].failure is None for _ in range(3)] == [False] * 3
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, Answer) and one.detail == "passing"]
    # The newest good page is remembered, without its body.
    assert [one.path for one in kept if one.body] == []
    assert len(kept) <= 1


def test_a_page_that_hangs_is_told_from_a_server_that_is_gone() -> None:
    server = Server({**vllm_pages(), "/health": answer("/health")})
    server.scrape()
    server.pages["/metrics"] = fault("/metrics", FailureKind.TIMEOUT)
    paths, observation = server.scrape()
    assert paths == ["/metrics"]  # a hanging page has used up the time of this scrape
    assert observation.failure is not None
    assert not observation.failure.answered
    paths, observation = server.scrape()
    assert paths == ["/health", "/metrics"]
    assert observation.failure is not None
    assert (observation.failure.kind, observation.failure.answered) == (FailureKind.TIMEOUT, True)
    server.pages["/health"] = fault("/health", FailureKind.TIMEOUT)
    paths, observation = server.scrape()
    assert paths == ["/health"]
    assert observation.failure is not None
    assert not observation.failure.answered
    server.pages = vllm_pages()
    server.scrape()
    assert server.scrape()[0] == ["/metrics"]


def test_a_loading_llama_cpp_is_asked_one_page() -> None:
    loading = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
    server = Server(
        {"/prometheus/metrics": answer("/prometheus/metrics", loading, status=503, headers=LLAMA)}
    )
    paths, observation = server.scrape()
    assert observation.failure is not None
    assert observation.failure.kind is FailureKind.LOADING
    server.pages["/props"] = answer("/props", loading, status=503, headers=LLAMA)
    paths, observation = server.scrape()
    assert paths == ["/props"]
    assert observation.failure is not None
    assert observation.failure.kind is FailureKind.LOADING


def test_another_engine_on_the_same_address_is_noticed() -> None:
    server = Server(vllm_pages())
    server.scrape()
    server.pages, server.headers = llama_pages(), LLAMA
    server.scrape()
    paths, observation = server.scrape()
    assert paths == ["/props", "/metrics", "/slots"]
    assert observation.reading is not None
    assert observation.reading.identity.engine is EngineKind.LLAMACPP
    server.pages, server.headers = vllm_pages(), None
    server.scrape()
    assert server.feed.engine is EngineKind.VLLM


# What answers mean

MEANINGS = [
    (answer("/metrics", status=401), FailureKind.UNAUTHORIZED, "401"),
    (answer("/metrics", status=403), FailureKind.UNAUTHORIZED, "403"),
    (
        answer("/metrics", {"error": {"message": "Loading model"}}, status=503),
        FailureKind.LOADING,
        "Loading model",
    ),
    (answer("/metrics", "Server is starting up", status=503), FailureKind.LOADING, "503"),
    (answer("/metrics", "upstream connect error", status=503), FailureKind.SERVER_ERROR, "503"),
    (answer("/metrics", "loading", status=500), FailureKind.SERVER_ERROR, "500"),
    (answer("/metrics", {"detail": "disk"}, status=500), FailureKind.SERVER_ERROR, "disk"),
    (answer("/metrics", status=502), FailureKind.SERVER_ERROR, "502"),
    (answer("/metrics", status=404), FailureKind.NO_ENGINE_METRICS, "404"),
    (answer("/metrics", status=400), FailureKind.NO_ENGINE_METRICS, "400"),
    (answer("/metrics", status=501), FailureKind.DISABLED, "501"),
    (answer("/metrics", status=204), FailureKind.NO_ENGINE_METRICS, "empty"),
    (answer("/metrics", b" \n"), FailureKind.NO_ENGINE_METRICS, "empty"),
    (answer("/metrics", HTML), FailureKind.NO_ENGINE_METRICS, '"Sign & in"'),
    (
        answer("/metrics", b"OK", headers={"content-type": "text/html"}),
        FailureKind.NO_ENGINE_METRICS,
        "web page",
    ),
    (answer("/metrics", b"[]"), FailureKind.NO_ENGINE_METRICS, "/prometheus/metrics"),
    (answer("/metrics", TRTLLM_QUEUE), FailureKind.NO_ENGINE_METRICS, "TensorRT-LLM"),
    (answer("/metrics", {"a": 1}), FailureKind.NO_ENGINE_METRICS, "JSON"),
    (answer("/metrics", PROCESS_PAGE), FailureKind.NO_ENGINE_METRICS, "only process metrics"),
    (answer("/metrics", b"node_load1 3\n"), FailureKind.NO_ENGINE_METRICS, "node_load1"),
    (
        answer("/metrics", status=307, headers={"location": "https://h/p?key=secret"}),
        FailureKind.NO_ENGINE_METRICS,
        "h/p",
    ),
    (fault("/metrics", FailureKind.TRUNCATED), FailureKind.TRUNCATED, ""),
    (
        replace(fault("/metrics", FailureKind.TOO_LARGE), detail="more than 16 MiB"),
        FailureKind.TOO_LARGE,
        "more than 16 MiB",
    ),
    (fault("/metrics", FailureKind.DNS), FailureKind.DNS, ""),
    (replace(fault("/metrics", FailureKind.TLS), detail="bad\x1b date"), FailureKind.TLS, "bad\ufffd date"),
    (
        answer(
            "/metrics",
            b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n",
            headers={"content-type": "application/openmetrics-text; version=1.0.0"},
        ),
        FailureKind.TRUNCATED,
        "# EOF",
    ),
]


@pytest.mark.parametrize(("given_answer", "kind", "words"), MEANINGS)
def test_meaning_of_answers(given_answer: Answer, kind: FailureKind, words: str) -> None:
    (observation,) = replay([given_answer])
    assert observation.reading is None
    assert observation.failure is not None
    assert observation.failure.kind is kind
    assert words in observation.failure.detail
    assert "secret" not in observation.failure.detail
    reached = given_answer.error in (None, FailureKind.TRUNCATED, FailureKind.TOO_LARGE)
    assert observation.failure.answered is reached


def test_a_wrong_content_type_is_no_reason_to_refuse_a_page() -> None:
    for content_type in ("text/html", "application/json", "application/octet-stream", ""):
        (observation,) = replay([answer("/metrics", VLLM_PAGE, headers={"content-type": content_type})])
        assert observation.reading is not None


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ([missing("/prometheus/metrics"), answer("/metrics", status=401)], FailureKind.UNAUTHORIZED),
        ([answer("/prometheus/metrics", status=401), missing("/metrics")], FailureKind.UNAUTHORIZED),
        ([missing("/prometheus/metrics"), answer("/metrics", status=500)], FailureKind.SERVER_ERROR),
        ([missing("/prometheus/metrics"), fault("/metrics", FailureKind.TIMEOUT)], FailureKind.TIMEOUT),
        ([missing("/prometheus/metrics"), missing("/metrics")], FailureKind.NO_ENGINE_METRICS),
    ],
)
def test_the_most_telling_of_several_failures_is_reported(answers: list[Answer], kind: FailureKind) -> None:
    (observation,) = replay(answers)
    assert observation.failure is not None
    assert observation.failure.kind is kind
    assert observation.failure.answered


def test_a_reason_says_more_than_a_404() -> None:
    (observation,) = replay([missing("/prometheus/metrics"), answer("/metrics", PROCESS_PAGE)])
    assert observation.failure is not None
    assert "only process metrics" in observation.failure.detail
    (observation,) = replay([missing("/prometheus/metrics"), missing("/metrics")])
    assert observation.failure is not None
    assert "/prometheus/metrics and /metrics" in observation.failure.detail


def test_the_hint_of_a_known_engine() -> None:
    off = answer("/metrics", {"error": {"message": "not supported"}}, status=501, headers=LLAMA)
    server = Server({**llama_pages(), "/metrics": off}, headers=LLAMA)
    observation = server.scrape()[1]
    assert observation.failure is not None
    assert observation.failure.kind is FailureKind.DISABLED
    assert "--metrics" in observation.failure.detail
    (observation,) = replay([missing("/metrics", LLAMA)])
    assert observation.failure is not None
    assert "--metrics" in observation.failure.detail


@pytest.mark.parametrize("poison", ["\x1b[31m", "\u202e", "\n\n", "\x00", "\u200b"])
def test_foreign_words_reach_people_clean_and_short(poison: str) -> None:
    bodies = [
        answer("/metrics", f"<title>{poison}x{'y' * 9999}</title>"),
        answer("/metrics", {"error": {"message": f"{poison}x" + "y" * 9999}}, status=500),
        answer("/metrics", status=302, headers={"location": f"/{poison}" + "y" * 9999}),
        answer("/metrics", f"{poison}\n" + "y" * 999 + " 1\n"),
    ]
    for body in bodies:
        (observation,) = replay([body])
        assert observation.failure is not None
        assert observation.failure.detail.isprintable()
        assert len(observation.failure.detail) < 400


# Replay: any group of answers, in any order, with paths that we never ask


def test_another_path_changes_nothing_while_the_known_one_is_good() -> None:
    feed = TargetFeed(Target("http://r1:8000", "r1"), LayoutCache())
    assert feed.take([answer("/metrics", VLLM_PAGE)], 100.0, 0.0).reading is not None
    groups: list[list[Answer]] = [
        [missing("/prometheus/metrics")],
        [answer("/prometheus/metrics", status=500)],
        [fault("/prometheus/metrics", FailureKind.TIMEOUT), answer("/health")],
        [answer("/health", status=500)],
        [answer("/load", {"server_load": 3})],
        [],
    ]
    for group in groups:
        observation = feed.take(group, 101.0, 0.0)
        assert (observation.reading, observation.failure) == (None, None)


def test_a_server_that_is_not_there_is_gone_on_every_path() -> None:
    _, gone = replay([answer("/metrics", VLLM_PAGE)], [fault("/prometheus/metrics", FailureKind.REFUSED)])
    assert gone.failure is not None
    assert gone.failure.kind is FailureKind.REFUSED


def test_the_known_pages_failure_counts_beside_anothers() -> None:
    _, failed = replay(
        [answer("/metrics", VLLM_PAGE)],
        [missing("/prometheus/metrics"), answer("/metrics", status=500), answer("/health")],
    )
    assert failed.failure is not None
    assert (failed.failure.kind, failed.failure.answered) == (FailureKind.SERVER_ERROR, True)


def test_side_pages_recorded_at_other_times_are_remembered() -> None:
    sides, page = replay([answer("/version", {"version": "0.9.2"})], [answer("/metrics", VLLM_PAGE, at=102)])
    assert sides.reading is None
    assert page.reading is not None
    assert page.reading.identity.engine_version is None  # of which engine it was, was not known then
    _, _, later = replay(
        [answer("/metrics", VLLM_PAGE)],
        [answer("/version", {"version": "0.9.2"}, at=101)],
        [answer("/metrics", VLLM_PAGE, at=102)],
    )
    assert later.reading is not None
    assert later.reading.identity.engine_version == "0.9.2"


def test_slots_alone_refresh_what_is_live_and_are_no_metrics_page() -> None:
    slots = [{**slot, "next_token": [{"n_decoded": 200}]} for slot in LLAMA_SLOTS]
    first, second, plain = replay(
        [answer("/metrics", LLAMA_PAGE), answer("/slots", LLAMA_SLOTS)],
        [answer("/slots", slots, at=101)],
        [answer("/health", at=102)],
    )
    assert first.reading is not None
    assert first.metrics_page
    assert second.reading is not None
    assert not second.metrics_page
    assert total(second.reading, "generation_tokens") == 240 + 4 * 200
    assert plain.reading is None


def test_slots_of_an_earlier_time_are_not_added_to_a_later_counter() -> None:
    ended = LLAMA_PAGE.replace(b"tokens_predicted_total 240", b"tokens_predicted_total 480")
    first, second = replay(
        [answer("/metrics", LLAMA_PAGE), answer("/slots", LLAMA_SLOTS)],
        [answer("/metrics", ended, at=102)],
    )
    assert first.reading is not None
    assert total(first.reading, "generation_tokens") == 240 + 119 + 119
    assert second.reading is not None
    assert total(second.reading, "generation_tokens") == 480


def test_metrics_pages_alone_are_enough() -> None:
    (observation,) = replay([answer("/metrics", LLAMA_PAGE)])
    assert observation.reading is not None
    assert total(observation.reading, "generation_tokens") == 240


def test_a_sleeping_server_in_a_recording() -> None:
    awake, asleep = replay(
        [answer("/props", LLAMA_PROPS), answer("/metrics", LLAMA_PAGE)],
        [answer("/props", {**LLAMA_PROPS, "is_sleeping": True}, at=101)],
    )
    assert awake.reading is not None
    assert awake.reading.flags.sleeping is False
    assert asleep.reading is not None
    assert asleep.reading.flags.sleeping is True


def test_a_group_of_nothing_but_faults_is_a_failure() -> None:
    (observation,) = replay([fault("/slots", FailureKind.REFUSED)])
    assert observation.failure is not None
    assert observation.failure.kind is FailureKind.REFUSED


# Whatever comes


def test_a_fault_of_our_own_is_a_failure_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(vllm_pages())
    with monkeypatch.context() as patch:
        patch.setattr(vllm.VllmReader, "read", lambda self, look: 1 / 0)
        observation = server.scrape()[1]
    assert observation.failure is not None
    assert observation.failure.kind is FailureKind.COLLECTOR
    assert "ZeroDivisionError" in observation.failure.detail
    assert server.scrape()[1].reading is not None


_PATHS = st.sampled_from(
    ["/metrics", "/prometheus/metrics", "/props", "/slots", "/version", "/v1/models", "/x"]
)
_BODIES = st.sampled_from(
    [
        VLLM_PAGE,
        LLAMA_PAGE,
        SGLANG_PAGE,
        TRTLLM_QUEUE,
        HTML,
        PROCESS_PAGE,
        b"",
        b"{}",
        b"[1]",
        b'{"role":"router"}',
        b'{"is_sleeping":true}',
        b"[" * 100_000,
        b"\xff\xfe\x00",
        b'{"data":7}',
        json.dumps(LLAMA_SLOTS).encode(),
    ]
)
_HEADERS = st.sampled_from(
    [{}, LLAMA, {"content-type": "application/json"}, {"location": "http://[", "server": ""}]
)
_ANSWERS = st.one_of(
    st.builds(
        lambda path, body, status, headers: answer(path, body, status=status, headers=headers),
        _PATHS,
        st.one_of(_BODIES, st.binary(max_size=60)),
        st.sampled_from([200, 204, 307, 401, 404, 500, 501, 503]),
        _HEADERS,
    ),
    st.builds(fault, _PATHS, st.sampled_from(list(FailureKind))),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(_ANSWERS, max_size=4), max_size=6))
def test_no_answers_whatever_raise_or_are_a_fault_of_ours(groups: list[list[Answer]]) -> None:
    feed = TargetFeed(Target("http://r1:8000", "r1"), LayoutCache())
    for at, group in enumerate(groups):
        for upto in range(len(group) + 1):
            feed.next_path(group[:upto])
        observation = feed.take(group, float(at), 0.0)
        assert observation.reading is None or observation.failure is None
        ours = any(a.error is FailureKind.COLLECTOR for a in group)
        assert ours or observation.failure is None or observation.failure.kind is not FailureKind.COLLECTOR


def test_a_page_of_which_a_part_was_read_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten workers on a joined page, of which eight were read, are not eight."""
    limits = ParseLimits(samples=8)
    monkeypatch.setattr("collectors.judge.PageParser", partial(PageParser, limits=limits))

    def workers(count: int) -> Answer:
        return answer(
            "/metrics", b"".join(b'vllm:num_requests_running{engine="%d"} 1\n' % n for n in range(count))
        )

    server = Server({"/metrics": workers(8)})
    reading = server.scrape()[1].reading
    assert reading is not None
    assert total(reading, "requests_running") == 8
    for _ in range(2):  # the second time its lines are known
        server.pages["/metrics"] = workers(10)
        failure = server.scrape()[1].failure
        assert failure is not None
        said = "the page at /metrics is too long: more than 8 samples: the rest was not read"
        assert (failure.kind, failure.detail) == (FailureKind.TOO_LARGE, said)
