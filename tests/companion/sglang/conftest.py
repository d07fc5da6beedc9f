from __future__ import annotations

from tests.companion.sglang.fakes import fake_sglang

__all__ = ["fake_sglang"]
