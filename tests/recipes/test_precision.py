"""The warning of bfloat16 on a CPU that computes it slowly."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trl import GRPOConfig, ModelConfig

from rrg_rewards.recipes import _precision
from rrg_rewards.recipes._precision import computes_in_bfloat16, warn_of_slow_bfloat16

pytest.importorskip("lightning", reason="needs the extra train")

from rrg_rewards.recipes._policy_training import PolicyTraining


def _trl(tmp_path: Path, **options: Any) -> GRPOConfig:
    return GRPOConfig(output_dir=str(tmp_path), use_cpu=True, **options)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx2": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_bf16": True}, True),
        ({"neon": True, "bf16": True}, True),
        ({}, None),
    ],
)
def test_the_instructions_of_a_processor(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], expected: bool | None
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert computes_in_bfloat16() is expected


def test_a_torch_that_cannot_tell_gives_no_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    warn_of_slow_bfloat16(_trl(tmp_path, bf16=True), ModelConfig(dtype="bfloat16"))
    assert not caplog.records


@pytest.mark.parametrize(
    ("options", "dtype", "remedy"),
    [
        ({"precision": "bf16-mixed"}, "float32", "precision: 32-true"),
        ({"precision": "32-true"}, "bfloat16", "precision: 32-true"),
        ({"bf16": True}, "float32", "bf16: false"),
        ({"bf16": False}, "bfloat16", "bf16: false"),
        ({"bf16": False}, "float32", None),
        ({"precision": "32-true"}, "float32", None),
    ],
)
def test_the_warning_names_the_settings(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    dtype: str,
    remedy: str | None,
) -> None:
    monkeypatch.setattr(_precision, "computes_in_bfloat16", lambda: False)
    if "precision" in options:
        training = PolicyTraining(output_dir=str(tmp_path), use_cpu=True, **options)
    else:
        training = _trl(tmp_path, **options)
    warn_of_slow_bfloat16(training, ModelConfig(dtype=dtype))
    assert [remedy in record.message for record in caplog.records] == ([] if remedy is None else [True])


def test_a_fast_processor_and_a_gpu_give_no_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = PolicyTraining(output_dir=str(tmp_path), precision="bf16-mixed")
    monkeypatch.setattr(_precision, "computes_in_bfloat16", lambda: True)
    warn_of_slow_bfloat16(training, SimpleNamespace(dtype=torch.bfloat16))
    monkeypatch.setattr(_precision, "computes_in_bfloat16", lambda: False)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    warn_of_slow_bfloat16(training, SimpleNamespace(dtype=torch.bfloat16))
    assert not caplog.records
