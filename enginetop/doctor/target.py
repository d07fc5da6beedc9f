"""Findings about one target: how it is reached, what it answers, what is read of it and what is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from enginetop.doctor.admin import admin_finding
from enginetop.doctor.facts import EngineFacts, FailureFacts, PageFacts, TargetFacts
from enginetop.doctor.finding import Finding, Level
from enginetop.fleet.model import EngineKind, ReplicaState
from enginetop.fleet.observation import FailureKind

MOST_SKEW_SECONDS = 5.0
"""Clocks further apart make the times of two machines hard to compare."""
SLOW_SHARE = 0.5
"""A scrape that takes more of the interval than this leaves no room for a bad moment."""
LARGE_PAGE_BYTES = 4 * 1024 * 1024
_SECONDS_A_DAY = 86_400
_CERTIFICATE_DAYS = 14


def target_findings(facts: TargetFacts, now: float) -> list[Finding]:
    """Everything about one target, from the way to it up to what is not read."""
    findings = [*_reach(facts, now), *_page(facts)]
    if facts.engine is not None:
        findings += [*_engine(facts.engine), *_signals(facts.engine)]
    if facts.surface is not None:
        findings.append(admin_finding(facts.surface))
    return [Finding(one.area, one.level, one.what, one.fix, facts.name) for one in findings]


def _reach(facts: TargetFacts, now: float) -> Iterator[Finding]:
    if facts.proxy:
        yield Finding("reach", Level.INFO, "asked through the proxy of the environment", "")
    broken = next((stage for stage in facts.stages if stage.problem), None)
    if broken is not None:
        what, _, helps = broken.problem.partition("; ")
        fix = helps or _way_out(facts, broken.kind, broken.problem)
        yield Finding("reach", Level.ERROR, what, fix)
        return
    if facts.stages:
        way = ", ".join(
            f"{stage.name} {seconds_text(stage.seconds)}{f' ({stage.detail})' if stage.detail else ''}"
            for stage in facts.stages
        )
        yield Finding("reach", Level.OK, way)
    if facts.unverified:
        yield Finding("reach", Level.WARNING, "the certificate is not verified", "name its CA with ca_file")
    if facts.certificate_until is not None:
        days = (facts.certificate_until - now) / _SECONDS_A_DAY
        if days < _CERTIFICATE_DAYS:
            yield Finding("reach", Level.WARNING, f"the certificate ends in {days:.0f} days", "renew it")


def _way_out(facts: TargetFacts, kind: FailureKind | None, problem: str) -> str:
    if kind is FailureKind.DNS:
        return "correct the name, or ask why this machine's resolver does not know it"
    if kind is FailureKind.REFUSED and "without an answer" in problem and facts.url.startswith("http://"):
        return f"start the server, or, where it speaks TLS, write https{facts.url.removeprefix('http')}"
    if kind is FailureKind.REFUSED:
        return "start the server, correct the port, or see whether it listens on loopback only"
    if kind is FailureKind.TIMEOUT and problem.startswith("TLS"):
        plain = f"http{facts.url.removeprefix('https')}"
        return f"a server that speaks plain HTTP (write {plain}) or hangs: ask from its own machine"
    if kind is FailureKind.TIMEOUT:
        return "a firewall, a wrong address, or a server that hangs: ask from its own machine"
    if kind is FailureKind.TLS:
        if "wrong version number" in problem or "record layer" in problem:
            return f"the server speaks plain HTTP there: write http{facts.url.removeprefix('https')}"
        return "name the CA of its certificate with ca_file in the config file"
    return "ask from its own machine"


def _page(facts: TargetFacts) -> Iterator[Finding]:
    failure = facts.failure
    if failure is not None:
        level = Level.WARNING if failure.kind is FailureKind.LOADING else Level.ERROR
        yield Finding("page", level, _failed(failure), _remedy(facts, failure))
    elif (page := _metrics_page(facts.pages)) is not None:
        asked = len({one.path for one in facts.pages})
        others = f", {asked - 1} other page{'s' if asked > 2 else ''}" if asked > 1 else ""
        said = f"{page.path} {page.status} in {seconds_text(page.seconds)}, {size_text(page.size_bytes)}"
        yield Finding("page", Level.OK, said + others)
        if page.size_bytes > LARGE_PAGE_BYTES:
            yield Finding(
                "page",
                Level.WARNING,
                f"a page of {size_text(page.size_bytes)}: labels grow without bound on that server",
                "find the label with the most values; LoRA names and routing keys are usual",
            )
    took = facts.scrape_seconds
    if took is not None and failure is None and took > SLOW_SHARE * facts.interval_seconds:
        wanted = max(1.0, round(took / SLOW_SHARE + 0.5))
        yield Finding(
            "page",
            Level.WARNING,
            f"a scrape takes {seconds_text(took)} of the interval of {facts.interval_seconds:g} s",
            f"--interval {wanted:g}, or interval_seconds in the config file",
        )
    skew = facts.skew_seconds
    if skew is not None and abs(skew) > MOST_SKEW_SECONDS:
        side = "behind" if skew > 0 else "ahead of"
        yield Finding(
            "clock",
            Level.WARNING,
            f"the server's clock is {seconds_text(abs(skew))} {side} this machine's",
            "run a time service (chrony, systemd-timesyncd) on both",
        )


def _metrics_page(pages: Sequence[PageFacts]) -> PageFacts | None:
    good = [page for page in pages if page.status == 200 and page.path.rstrip("/").endswith("/metrics")]
    return good[-1] if good else None


def _failed(failure: FailureFacts) -> str:
    words = str(failure.kind).replace("_", " ")
    return f"{words}: {failure.detail}" if failure.detail else words


def _remedy(facts: TargetFacts, failure: FailureFacts) -> str:
    kind = failure.kind
    if kind is FailureKind.UNAUTHORIZED:
        if facts.key:
            return f"the key of {facts.key} is not accepted there: correct it"
        return "name a key with api_key_env or api_key_file in a [[targets]] entry of the config file"
    if kind is FailureKind.LOADING:
        return "wait until the model is loaded"
    if kind in (FailureKind.NO_ENGINE_METRICS, FailureKind.DISABLED):
        return failure.enable or (
            "name the port and path of the engine's metrics page (http://host:port/metrics); "
            "engines switch it on with --enable-metrics (SGLang), --metrics (llama.cpp), "
            "return_perf_metrics (TensorRT-LLM)"
        )
    if kind is FailureKind.COLLECTOR:
        return "a fault of enginetop: report it with the page"
    if kind in (FailureKind.REFUSED, FailureKind.DNS, FailureKind.TLS, FailureKind.TIMEOUT):
        return _way_out(facts, kind, failure.detail)
    return "the server's own log says more"


def _engine(engine: EngineFacts) -> Iterator[Finding]:
    words = [f"{engine.title} {engine.version}" if engine.version else f"{engine.title}, version not told"]
    words.append(engine.model or "model not told")
    words.append(str(engine.role))
    if engine.stack:
        words.append(f"within {engine.stack}")
    if engine.ranks > 1:
        words.append(f"{engine.ranks} {'backends' if engine.kind is EngineKind.ROUTER else 'ranks'}")
    if engine.simulated:
        words.append("simulated")
    yield Finding("engine", Level.OK, " · ".join(words))
    if engine.state in (ReplicaState.SLEEPING, ReplicaState.PAUSED, ReplicaState.DRAINING):
        yield Finding("engine", Level.INFO, f"it is {engine.state}; its numbers come back with it")
    if engine.kind is EngineKind.ROUTER:
        yield Finding(
            "engine",
            Level.INFO,
            "a router's view: it adds nothing to the fleet's sums while engines are watched",
            "name the engines behind it as targets too",
        )
    yield from _ranks(engine)
    if engine.bad_lines:
        yield Finding(
            "engine",
            Level.WARNING,
            f"{engine.bad_lines} lines of the page cannot be read",
            "a label with a bare quote or line end; the server's exporter is at fault",
        )
    for one in engine.suspect:
        yield Finding(
            "engine",
            Level.WARNING,
            f"{one.signal}: {one.reason}",
            "one address for each API server, or one registry for all (PROMETHEUS_MULTIPROC_DIR)",
        )


def _ranks(engine: EngineFacts) -> Iterator[Finding]:
    """Data-parallel ranks that the engine says it has and its page does not tell."""
    sizes = (engine.config.get(key) for key in ("data_parallel_size", "dp_size"))
    size = next((one.value for one in sizes if one is not None), None)
    shown = max(1, engine.ranks)
    if not isinstance(size, int) or size <= shown:
        return
    said = f"{shown} of {size} data-parallel ranks on this page"
    if engine.kind is EngineKind.SGLANG:
        fix = "start it with --enable-metrics-for-all-schedulers"
        yield Finding("engine", Level.WARNING, said, fix)
    else:
        yield Finding("engine", Level.INFO, said, "name the address of every rank as a target")


def _signals(engine: EngineFacts) -> Iterator[Finding]:
    total = len(engine.read) + len(engine.pending) + len(engine.missing) + len(engine.suspect)
    later = f", {len(engine.pending)} wait for traffic" if engine.pending else ""
    yield Finding("signals", Level.OK, f"{len(engine.read)} of {total} signals are read{later}")
    groups: dict[tuple[str, str], list[str]] = {}
    for one in engine.missing:
        groups.setdefault((one.reason, one.enable), []).append(one.signal)
    for (reason, enable), signals in groups.items():
        yield Finding("signals", Level.INFO, f"no {', '.join(signals)}: {reason}", enable)
    if engine.exact is not None and engine.kind is not EngineKind.ROUTER:
        yield Finding("signals", Level.INFO, f"no exact goodput: {engine.exact.reason}", engine.exact.enable)


def seconds_text(seconds: float) -> str:
    """A duration in few characters: `12 ms`, `3.4 s`."""
    if seconds < 0.001:
        return "<1 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"


def size_text(size_bytes: int) -> str:
    """A size in few characters."""
    if size_bytes < 1024:
        return f"{size_bytes} bytes"
    if size_bytes < 1024 * 1024:
        return f"{size_bytes / 1024:.0f} KiB"
    return f"{size_bytes / 1024 / 1024:.1f} MiB"
