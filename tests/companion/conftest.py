from __future__ import annotations

from tests.companion.fakes import fake_vllm

__all__ = ["fake_vllm"]
