"""CREPE and ER²Score in the type that ``dtype="auto"`` selects."""

import copy
import logging
import pickle

import pytest
import torch
from lightning.pytorch.plugins.precision import HalfPrecision, MixedPrecision
from safetensors.torch import load_file, save_file
from tiny_crepe import random_pairs, save_tiny_crepe
from tiny_er2score import save_tiny_er2score
from transformers import AutoTokenizer

from rrg_rewards.metrics import CREPE, ER2Score
from rrg_rewards.models import CrepeModel, ER2ScoreModel
from rrg_rewards.rewards import make_reward

PAIRS = random_pairs(6, longest=20)
METRICS = {"crepe": CREPE, "er2score": ER2Score}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {"crepe": str(save_tiny_crepe(root / "crepe")), "er2score": str(save_tiny_er2score(root))}


@pytest.fixture(params=METRICS)
def name(request):
    return request.param


@pytest.fixture
def make(name, folders):
    return lambda **options: METRICS[name](folders[name], **options)


@pytest.fixture
def processor(monkeypatch):
    """A function that sets whether the processor computes in bfloat16."""
    return lambda fast: monkeypatch.setattr("rrg_rewards.utilities.precision.cpu_computes_in_bfloat16", lambda: fast)


@pytest.mark.parametrize(("fast", "dtype"), [(True, "bfloat16"), (False, "float32"), (None, "float32")])
def test_pair_model_auto_is_the_type_of_the_processor_and_the_signature_names_it(make, processor, fast, dtype):
    processor(fast)
    metric, explicit = make(), make(dtype=dtype)
    assert metric.predictor.options.dtype == "auto"
    assert metric.signature == explicit.signature
    assert f"|dtype:{dtype}|" in metric.signature
    assert f"dtype='{dtype}'" in repr(metric)
    assert torch.equal(metric.score(*PAIRS).value, explicit.score(*PAIRS).value)


def test_pair_model_types_differ(make):
    values = [make(dtype=dtype).score(*PAIRS).value for dtype in ("float32", "bfloat16")]
    assert not torch.equal(*values)


def test_pair_model_auto_reaches_rewards(name, folders, processor):
    processor(True)
    reward = make_reward(name, model=folders[name])
    assert "|dtype:bfloat16|" in reward.signature
    explicit = make_reward(name, model=folders[name], dtype="bfloat16")
    assert reward(PAIRS[0], reference=PAIRS[1]) == explicit(PAIRS[0], reference=PAIRS[1])


def test_pair_model_pickle_of_auto_is_resolved_by_the_machine_that_unpickles(make, processor):
    processor(True)
    pickled = pickle.dumps(make())
    processor(False)
    assert "|dtype:float32|" in pickle.loads(pickled).signature


def test_pair_model_logs_the_type_once(make, name, processor, caplog):
    processor(True)
    metric = make()
    with caplog.at_level(logging.INFO, "rrg_rewards"):
        metric.score(*PAIRS)
        metric.score(*PAIRS)
    lines = [record.message for record in caplog.records if "computes in" in record.message]
    assert lines == [f"{metric.predictor.model} computes in bfloat16 on cpu (dtype='auto')"]


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    "plugin", [MixedPrecision("bf16-mixed", "cpu"), HalfPrecision("bf16-true")], ids=["mixed", "true"]
)
def test_pair_model_scores_in_a_step_of_lightning_are_those_outside(make, processor, fast, plugin):
    processor(fast)
    expected = make().score(*PAIRS).value
    with plugin.forward_context():
        assert torch.equal(make().score(*PAIRS).value, expected)


def test_pair_model_crepe_stored_in_bfloat16_is_widened_on_a_processor_without_it(processor, tmp_path):
    narrow, wide = (save_tiny_crepe(tmp_path / kind) / "model.safetensors" for kind in ("narrow", "wide"))
    weights = {key: value.bfloat16() for key, value in load_file(narrow).items()}
    save_file(weights, narrow, metadata={"format": "pt"})
    save_file({key: value.float() for key, value in weights.items()}, wide, metadata={"format": "pt"})
    processor(False)
    assert "|dtype:float32|" in CREPE(narrow.parent).signature
    assert torch.equal(CREPE(narrow.parent).score(*PAIRS).value, CREPE(wide.parent).score(*PAIRS).value)


def test_pair_model_er2score_backbone_stored_in_bfloat16_is_widened_on_a_processor_without_it(processor, tmp_path):
    save_tiny_er2score(tmp_path)
    model = ER2ScoreModel.from_backbone(tmp_path / "llama", dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "narrow")
    processor(False)
    metric = ER2Score(tmp_path / "narrow")
    metric.score(*PAIRS)
    assert {value.dtype for value in metric.predictor._model.parameters()} == {torch.float32}
    assert "|dtype:float32|" in metric.signature


def test_pair_model_given_as_an_object_in_half_precision_is_named_as_it_computes(folders, processor):
    processor(False)
    tokenizer = AutoTokenizer.from_pretrained(folders["crepe"])
    model = CrepeModel.from_pretrained(folders["crepe"])
    assert "|dtype:float32|" in CREPE(model, tokenizer).signature
    half = copy.deepcopy(model).to(torch.bfloat16)
    assert "|dtype:bfloat16|" in CREPE(half, tokenizer).signature
    with pytest.raises(ValueError, match=r"dtype is 'float32', but the CrepeModel has weights in bfloat16.*omit dtype"):
        CREPE(half, tokenizer, dtype="float32")


def test_pair_model_corpus_value_of_two_types_is_refused(make, processor):
    """As after a sync of processes on two kinds of machines, which adds their states."""
    metrics = []
    for fast in (True, False):
        processor(fast)
        metric = make()
        metric.update([*PAIRS[0][: 2 + fast], None], [*PAIRS[1][: 2 + fast], "a mass"])
        metrics.append(metric)
    metrics[1].merge_state(metrics[0])
    for read in (metrics[1].compute, metrics[1].statistics):
        with pytest.raises(ValueError, match=r"computed 2 pairs in float32 and 3 pairs in bfloat16.*the same dtype"):
            read()
    metrics[1].reset()
    metrics[1].update(*PAIRS)
    assert metrics[1].compute().isfinite()
