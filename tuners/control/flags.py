"""Which flag of which engine sets a knob at its start, and command lines with other values.

From the engines' own documentation. A flag may stand as `--flag value` or `--flag=value`, more than once (the
last one counts), and with `_` for `-`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from enginetop.fleet.foreign_json import decoded
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind

_LARGEST = 1 << 20


class FlagError(ValueError):
    """A command line that cannot be edited; the text says why."""


@frozen
class Flag:
    """`names` are all spellings of one flag, the first of them is written where there is none yet.

    `key`: the value is a JSON object, and the knob one key of it; the flag is never added then, nor where it
    is not `added` (versions without it end at their start). `lifts`: another flag whose value
    (`lifts_default` unless given) must be at least as large. `without`: the value that the engine has where
    the flag is left out, which is how that value is set.
    """

    names: tuple[str, ...]
    unit: str
    min: int = 1
    max: int = _LARGEST
    key: str = ""
    lifts: tuple[str, ...] = ()
    lifts_default: int = 0
    added: bool = True
    without: int | None = None


_BUDGET, _DRAFTS, _THINKING, _SEATS = (
    "max_num_batched_tokens",
    "num_speculative_tokens",
    "thinking_token_budget",
    "max_num_seqs",
)

FLAGS: Mapping[EngineKind, Mapping[str, Flag]] = MappingProxyType(
    {
        EngineKind.VLLM: {
            _BUDGET: Flag(("--max-num-batched-tokens",), "tokens"),
            _DRAFTS: Flag(
                ("--speculative-config",), "tokens", min=0, max=64, key="num_speculative_tokens", without=0
            ),
            _SEATS: Flag(("--max-num-seqs",), "requests"),
            "max_num_active_seqs": Flag(("--max-num-active-seqs",), "requests", added=False),  # from 0.31 on
        },
        EngineKind.SGLANG: {
            _BUDGET: Flag(("--chunked-prefill-size",), "tokens"),
            _SEATS: Flag(("--max-running-requests",), "requests"),
        },
        EngineKind.LLAMACPP: {
            _BUDGET: Flag(
                ("--ubatch-size", "-ub"), "tokens", lifts=("--batch-size", "-b"), lifts_default=2048
            ),
            _DRAFTS: Flag(("--spec-draft-n-max",), "tokens", max=64),
            _THINKING: Flag(("--reasoning-budget",), "tokens", min=-1),
            _SEATS: Flag(("--parallel", "-np"), "requests"),
        },
        EngineKind.TRTLLM: {
            _BUDGET: Flag(("--max_num_tokens",), "tokens"),
            _SEATS: Flag(("--max_batch_size",), "requests"),
        },
        EngineKind.TGI: {
            _BUDGET: Flag(("--max-batch-prefill-tokens",), "tokens"),
            _DRAFTS: Flag(("--speculate",), "tokens", max=64),
            _SEATS: Flag(("--max-batch-size",), "requests"),
        },
        EngineKind.LMDEPLOY: {
            _BUDGET: Flag(("--max-prefill-token-num",), "tokens"),
            _DRAFTS: Flag(("--speculative-num-draft-tokens",), "tokens", max=64),
            _SEATS: Flag(("--max-batch-size",), "requests"),
        },
    }
)
"""By engine and knob."""

_PROGRAMS: Mapping[str, EngineKind] = MappingProxyType(
    {
        "vllm": EngineKind.VLLM,
        "vllm.entrypoints.openai.api_server": EngineKind.VLLM,
        "sglang": EngineKind.SGLANG,
        "sglang.launch_server": EngineKind.SGLANG,
        "llama-server": EngineKind.LLAMACPP,
        "trtllm-serve": EngineKind.TRTLLM,
        "text-generation-launcher": EngineKind.TGI,
        "lmdeploy": EngineKind.LMDEPLOY,
    }
)
_SECRET_WORDS = frozenset({"key", "keys", "token", "secret", "password", "passwd", "auth", "credentials"})
MASK = "***"


def engine_of(argv: Sequence[str]) -> EngineKind | None:
    """The engine that a command starts: by its program, or by the module after `-m`; None: not known."""
    words = [_program(argv[0])] if argv else []
    words += [later for earlier, later in pairwise(argv) if earlier == "-m"][:1]
    words += [_program(word) for word in argv[1:2]]  # an interpreter and a script
    return next((_PROGRAMS[word] for word in words if word in _PROGRAMS), None)


def _program(word: str) -> str:
    return word.rpartition("/")[2]


def value_of(argv: Sequence[str], flag: Flag) -> int | None:
    """The number that a command sets with a flag, or by leaving it out; None: none, or not a plain number."""
    found = _raw(argv, flag.names)
    if found is None:
        return flag.without
    try:
        return int(_document(found, flag)[flag.key] if flag.key else found)
    except (ValueError, KeyError, TypeError):
        return None


def text_of(argv: Sequence[str], flag: Flag) -> str | None:
    """What a command gives a flag; None: nothing."""
    return _raw(argv, flag.names)


def can_set(argv: Sequence[str], flag: Flag) -> bool:
    """Whether a command can be given another value: a key of a JSON object, and what is never added, only
    where there is one.
    """
    if flag.added and not flag.key:
        return True
    return _raw(argv, flag.names) is not None and value_of(argv, flag) is not None


def edited(argv: Sequence[str], kind: EngineKind, values: Mapping[str, int | None]) -> tuple[str, ...]:
    """The command with these values of knobs. What has the value already stays as it is; None takes the flag
    out. FlagError when a knob has no flag there.
    """
    made = tuple(argv)
    for knob, value in values.items():
        flag = FLAGS.get(kind, {}).get(knob)
        if flag is None or not can_set(made, flag):
            raise FlagError(f"no flag of {kind.value} sets {knob} here")
        if value_of(made, flag) == value:
            continue
        made = _with(made, flag.names, _text(made, flag, value))
        if flag.lifts and value is not None:
            other = Flag(flag.lifts, flag.unit)
            if (value_of(made, other) or flag.lifts_default) < value:
                made = _with(made, flag.lifts, str(value))
    return made


def masked(argv: Sequence[str]) -> tuple[str, ...]:
    """The command as it may be shown: the values of flags that name a secret are left out."""
    shown: list[str] = []
    hide = False
    for word in argv:
        name, equals, _ = word.partition("=")
        secret = bool(_SECRET_WORDS & set(name.lower().lstrip("-").replace("_", "-").split("-")))
        if hide and not word.startswith("--"):
            shown.append(MASK)
        elif secret and equals:
            shown.append(f"{name}={MASK}")
        else:
            shown.append(word)
            hide = secret and word.startswith("-")
            continue
        hide = hide and not word.startswith("--")  # several keys may follow one flag
    return tuple(shown)


def _text(argv: Sequence[str], flag: Flag, value: int | None) -> str | None:
    if value is not None and value == flag.without:
        return None
    if not flag.key:
        return None if value is None else str(value)
    if value is None:
        raise FlagError(f"{flag.names[0]} cannot go without {flag.key}")
    return json.dumps({**_document(_raw(argv, flag.names) or "", flag), flag.key: value})


def _document(text: str, flag: Flag) -> dict[str, Any]:
    document = decoded(text)
    if not isinstance(document, dict):
        raise FlagError(f"{flag.names[0]} is no JSON object")
    return document


def _spelled(name: str) -> str:
    return name.replace("_", "-") if name.startswith("--") else name


def _raw(argv: Sequence[str], names: Sequence[str]) -> str | None:
    """The value of the last occurrence."""
    wanted = {_spelled(name) for name in names}
    found = None
    for place, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if _spelled(name) not in wanted:
            continue
        if equals:
            found = value
        elif place + 1 < len(argv):
            found = argv[place + 1]
    return found


def _with(argv: Sequence[str], names: Sequence[str], value: str | None) -> tuple[str, ...]:
    """The command with one occurrence, where the first one was; None: with none."""
    wanted = {_spelled(name) for name in names}
    made: list[str] = []
    place = None
    spelled, combined = names[0], False
    skip = False
    for word in argv:
        if skip:
            skip = False
            continue
        name, equals, _ = word.partition("=")
        if _spelled(name) not in wanted:
            made.append(word)
            continue
        if place is None:
            place, spelled, combined = len(made), name, bool(equals)
        skip = not equals
    if value is None:
        return tuple(made)
    if place is None:
        place = len(made)
    made[place:place] = [f"{spelled}={value}"] if combined else [spelled, value]
    return tuple(made)
