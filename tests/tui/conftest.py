"""Screens are waited for until they have nothing to do."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _patient(patient_pilot: None) -> None:
    """For all tests of this room."""
