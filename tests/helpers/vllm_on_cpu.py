"""Engines of vLLM that start in seconds on a busy CPU."""

from functools import partial

import pytest


def start_engines_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip without vLLM; let TRL's engines compile nothing and leave the threads to the system."""
    vllm = pytest.importorskip("vllm", reason="vLLM has an environment of its own")
    import trl.generation.vllm_generation

    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    monkeypatch.setattr(trl.generation.vllm_generation, "LLM", partial(vllm.LLM, enforce_eager=True))
