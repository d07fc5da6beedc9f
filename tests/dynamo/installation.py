"""NVIDIA Dynamo without a GPU in a folder of its own, installed once and kept: about 0.6 GB and a minute."""

from __future__ import annotations

import pytest

from tests.support.installing import Environment, kept_folder

DYNAMO = "1.6.1"

# The package itself asks for a simulator that no public index holds; frontend, router and mocker need none.
_STEPS = (
    (f"ai-dynamo-runtime=={DYNAMO}",),
    ("--no-deps", f"ai-dynamo=={DYNAMO}"),
    (
        "aiohttp>=3.14,<4",
        "kubernetes>=32,<33",
        "msgspec",
        "prometheus-client<1",
        "pyzmq",
        "redis<9",
        "tqdm",
        "transformers",
        "zstandard",
        "httpx",
    ),
)


def install() -> Environment:
    """The environment, made where it is not there yet. `ENGINETOP_DYNAMO_VENV` names another place for it.

    Skips the test with the reason where it cannot be made.
    """
    here = Environment(kept_folder(f"dynamo-{DYNAMO}", "ENGINETOP_DYNAMO_VENV"))
    if not here.ready.exists():
        try:
            here.begin()
            for packages in _STEPS:
                here.pip("install", "--no-compile", *packages)
        except AssertionError as error:
            why = str(error).strip().splitlines()[-1]
            pytest.skip(f"Dynamo {DYNAMO} cannot be installed: {why[:300]}")
        here.ready.touch()
    return here
