"""The type of each processor, and values of models and metrics of words in the precisions of trainings."""

import pytest
import torch
from tiny_crepe import random_pairs, save_tiny_crepe
from tiny_er2score import save_tiny_er2score
from tiny_labeler import save_tiny_labeler
from tiny_records import save_tiny_encoder
from torch import nn

from rrg_rewards.labelers import RadBertLabeler
from rrg_rewards.models import CrepeModel
from rrg_rewards.models.loading import load_frozen
from rrg_rewards.rewards import make_reward
from rrg_rewards.utilities.precision import cpu_computes_in_bfloat16, fastest_dtype, own_precision

DTYPES = [torch.bfloat16, torch.float16, torch.float64]
PREDS, TARGET = random_pairs(6, longest=20)


@pytest.fixture
def default_dtype():
    before = torch.get_default_dtype()
    yield torch.set_default_dtype
    torch.set_default_dtype(before)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx2": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_bf16": True}, True),
        ({"amx_bf16": True}, True),
        ({"neon": True, "bf16": True}, True),
        ({}, None),
    ],
)
@pytest.mark.parametrize("onednn", [True, False])
def test_cpu_computes_in_bfloat16_by_instructions_that_onednn_uses(monkeypatch, capabilities, expected, onednn):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: onednn)
    assert cpu_computes_in_bfloat16() is (expected and onednn)


def test_cpu_computes_in_bfloat16_is_unknown_to_a_torch_that_cannot_tell(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert cpu_computes_in_bfloat16() is None


@pytest.mark.parametrize(("known", "expected"), [(True, "bfloat16"), (False, "float32"), (None, "float32")])
def test_fastest_dtype_of_a_cpu(monkeypatch, known, expected):
    monkeypatch.setattr("rrg_rewards.utilities.precision.cpu_computes_in_bfloat16", lambda: known)
    assert fastest_dtype(torch.device("cpu")) == expected


@pytest.mark.parametrize(
    ("capability", "expected"), [((7, 5), "float32"), ((8, 0), "bfloat16"), ((9, 0), "bfloat16"), ((12, 0), "bfloat16")]
)
def test_fastest_dtype_of_the_gpu_of_that_index(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", {torch.device("cuda:1"): capability}.__getitem__)
    assert fastest_dtype(torch.device("cuda:1")) == expected


def test_fastest_dtype_of_mps():
    assert fastest_dtype(torch.device("mps")) == "float32"


@pytest.mark.parametrize("dtype", DTYPES)
def test_own_precision_both_are_restored(default_dtype, dtype):
    default_dtype(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with own_precision():
            assert torch.get_default_dtype() == torch.float32
            assert not torch.is_autocast_enabled("cpu")
        assert torch.get_default_dtype() == dtype
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("dtype", DTYPES)
def test_own_precision_model_that_is_first_loaded_in_a_step_is_the_same_for_the_process(default_dtype, dtype):
    default_dtype(dtype)
    model = load_frozen(nn.Linear, 3, 5 + DTYPES.index(dtype))
    assert model.weight.dtype == torch.float32


SAVED = {
    "crepe": save_tiny_crepe,
    "er2score": save_tiny_er2score,
    "bertscore": save_tiny_encoder,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*SAVED, "bleu", "rouge"])
def test_own_precision_rewards_are_the_same_in_a_step(default_dtype, tmp_path, name, dtype):
    options = {"model": str(SAVED[name](tmp_path / "model"))} if name in SAVED else {}
    options |= {"n_gram": 1} if name == "bleu" else {}
    default_dtype(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        # A new reward: its model is loaded here.
        found = make_reward(name, **options)(PREDS, reference=TARGET)
    default_dtype(torch.float32)
    assert found == make_reward(name, **options)(PREDS, reference=TARGET)
    assert len(set(found)) > 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_own_precision_labels_are_the_same_in_a_step(default_dtype, tmp_path, dtype):
    folder = save_tiny_labeler(tmp_path)
    default_dtype(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = RadBertLabeler(folder)(PREDS)
    default_dtype(torch.float32)
    assert torch.equal(found, RadBertLabeler(folder)(PREDS))


def test_own_precision_crepe_model_is_float32_whatever_the_default_type(default_dtype, tmp_path):
    folder = save_tiny_crepe(tmp_path)
    default_dtype(torch.bfloat16)
    assert {value.dtype for value in CrepeModel.from_pretrained(folder).parameters()} == {torch.float32}
