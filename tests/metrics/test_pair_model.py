"""What CREPE and ER²Score share: corpus values, copies, options, and the type that ``dtype="auto"`` selects."""

import copy
import logging
import pickle
from pathlib import Path

import pytest
import torch
from lightning.pytorch.plugins.precision import HalfPrecision, MixedPrecision
from safetensors.torch import load_file, save_file
from tiny_crepe import plain_counts, random_pairs, save_tiny_crepe, tiny_bert_tokenizer
from tiny_er2score import LORA, plain_rewards, save_tiny_er2score, tiny_llama_tokenizer
from transformers import AutoTokenizer

from rrg_rewards.metrics import CREPE, ER2Score, make_metric
from rrg_rewards.models import CrepeModel, ER2ScoreModel
from rrg_rewards.rewards import make_reward

PAIRS = random_pairs(6, longest=20)
METRICS = {"crepe": CREPE, "er2score": ER2Score}
MODELS = {"crepe": CrepeModel, "er2score": ER2ScoreModel}
TOKENIZERS = {"crepe": tiny_bert_tokenizer, "er2score": tiny_llama_tokenizer}
OPTIONS = {
    "max_length": 64,
    "token_budget": 100,
    "dtype": "bfloat16",
    "device": "cpu",
    "revision": "main",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {"crepe": str(save_tiny_crepe(root / "crepe")), "er2score": str(save_tiny_er2score(root, lora=LORA))}


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


@pytest.fixture
def given(name, folders):
    """A model as an object, and its tokenizer."""
    return MODELS[name].from_pretrained(folders[name]), TOKENIZERS[name]()


def sub_scores(scores):
    return torch.stack([*scores.details.values()], dim=1)


def test_pair_model_equal_pairs_run_once(make, name, monkeypatch):
    seen = []
    forward = MODELS[name].forward

    def noted(self, *args, **inputs):
        seen.append(len(args[0] if args else inputs["input_ids"]))
        return forward(self, *args, **inputs)

    monkeypatch.setattr(MODELS[name], "forward", noted)
    scores = make().score(["no mass", "a mass"] * 4, ["a mass"] * 8)
    assert sum(seen) == 2
    assert scores.value.view(4, 2).unique(dim=0).shape == (1, 2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_pair_model_half_precision_is_near(make, name, dtype):
    pairs = random_pairs(24, longest=40)
    exact, near = (sub_scores(make(dtype=kind).score(*pairs)) for kind in ("float32", dtype))
    assert not torch.equal(exact, near)
    allowed = 0.1 if name == "er2score" else {"bfloat16": 0.15, "float16": 0.02}[dtype]
    assert (exact - near).abs().max() < allowed * exact.abs().max()
    if name == "er2score":
        assert make(dtype=dtype).predictor._model.head.weight.dtype == torch.float32


def test_pair_model_corpus_value_is_the_mean_over_scored_pairs(make, name):
    metric = make()
    candidates, references = [*PAIRS[0], None], [*PAIRS[1], "a mass"]
    for rows in (slice(0, 3), slice(3, 7), slice(0, 0)):
        metric.update(candidates[rows], references[rows])
    scores = metric.score(candidates, references)
    assert scores.value.isnan().tolist() == [False] * 6 + [True]
    value = metric.compute().item()
    assert value == pytest.approx(scores.value[:6].mean().item(), rel=1e-5)
    assert (metric.compute().dtype, int(metric.num_unscorable)) == (torch.float64, 1)
    means = metric.statistics()
    assert list(means) == list(scores.details)
    for part, mean in means.items():
        assert mean.item() == pytest.approx(scores.details[part][:6].mean().item(), rel=1e-4, abs=1e-5)
    # The criteria of this ER²Score are numbers of errors, which it deducts.
    assert sum(means.values()).item() * (-1 if name == "er2score" else 1) == pytest.approx(value)
    assert scores.aggregate(*scores.sufficient_statistics).item() == pytest.approx(value, rel=1e-5)


def test_pair_model_an_empty_candidate_is_scored_and_an_empty_reference_is_not(make, name, folders):
    scores = make().score(["", "no mass", None, "no mass"], ["a mass", " ", "a mass", None])
    assert scores.value.isnan().tolist() == [False, True, True, True]
    assert scores.details["false_finding"].isnan().tolist() == [False, True, True, True]
    plain = plain_counts if name == "crepe" else plain_rewards
    expected = plain(Path(folders[name]), "", "a mass")
    expected = expected.clamp(min=0) if name == "crepe" else expected
    assert scores.value[0].item() == pytest.approx(expected.sum().item(), abs=1e-4)
    (texts,) = scores.explanations.values()
    assert texts[1:] == [""] * 3


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_pair_model_nothing_scored_has_no_mean(make):
    metric = make()
    metric.update([None], ["a mass"])
    assert metric.compute().isnan()
    assert all(mean.isnan() for mean in metric.statistics().values())


def test_pair_model_pickles_to_kilobytes_and_copies_share_the_model(make):
    metric = make(weights={"omitted_finding": 2.0})
    metric.update(*PAIRS)
    written = pickle.dumps(metric)
    again = pickle.loads(written)
    assert len(written) < 20_000
    assert "_model" not in vars(again.predictor)
    assert torch.equal(again.compute(), metric.compute())
    assert torch.equal(again.score(*PAIRS).value, metric.score(*PAIRS).value)
    assert metric.clone().predictor is metric.predictor
    assert again.predictor._model is metric.predictor._model, "a process loads the model once"
    assert metric.state_dict() == {}
    assert not list(metric.parameters())


def test_pair_model_given_as_an_object_is_shared_by_copies_trains_on_and_does_not_pickle(make, name, given):
    model, tokenizer = given
    metric = METRICS[name](model.train(), tokenizer)
    assert copy.deepcopy(metric).predictor._model is model
    torch.testing.assert_close(metric.score(*PAIRS).value, make().score(*PAIRS).value, atol=1e-4, rtol=0)
    assert model.training
    assert any(parameter.requires_grad for parameter in model.parameters())
    with pytest.raises(TypeError, match=r"given as an object cannot be pickled.*give the folder"):
        pickle.dumps(metric)


def test_pair_model_options_reach_the_predictor(make, name, folders, tmp_path):
    further = {"backbone": tmp_path, "share_prefix": False} if name == "er2score" else {}
    options = {**OPTIONS, **further}
    assert vars(make(**options).predictor.options) == options
    assert isinstance(make_metric(name, model=folders[name], dtype="bfloat16"), METRICS[name])
    assert vars(make_reward(name, model=folders[name], **options).metric.predictor.options) == options
    assert vars(make_reward(name, model=folders[name]).metric.predictor.options) == vars(make().predictor.options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float8"}, "dtype must be one of auto, float32, bfloat16, float16, got 'float8'"),
        ({"token_budget": 0}, "token_budget must be positive, got 0"),
        ({"max_lenght": 64}, "unknown argument of \\w+ 'max_lenght'; did you mean 'max_length'"),
        ({"max_length": 4096}, r"max_length is 4096, but the \w+ takes (512|1024) tokens at most"),
        ({"weights": {"omited_finding": 2.0}}, "'omited_finding'; did you mean 'omitted_finding'"),
        ({"weights": {"omitted_finding": -1}}, "weight of 'omitted_finding' must be finite and at least 0, got -1"),
        ({"weights": {"omitted_finding": "2"}}, "weight of 'omitted_finding' must be finite and at least 0, got '2'"),
        ({"weights": [1, 2]}, "weights must be numbers by .*, got list"),
    ],
)
def test_pair_model_settings_without_a_meaning_are_refused(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_er2score_without_a_weight_is_refused(folders):
    with pytest.raises(ValueError, match="weights must name at least one criterion"):
        METRICS["er2score"](folders["er2score"], weights={})


def test_pair_model_bad_reports_and_models_are_refused(make, name, folders, given, tmp_path):
    metric, kind = make(), METRICS[name]
    with pytest.raises(TypeError, match=f"{name} takes no column age"):
        metric.score(["a mass"], ["a mass"], age=[60])
    with pytest.raises(FileNotFoundError, match="no such folder"):
        kind(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=f"must be an? {MODELS[name].__name__}, a folder or a Hub id, got Linear"):
        kind(torch.nn.Linear(1, 1), TOKENIZERS[name]())
    model, tokenizer = given
    model.tokenizer = None
    with pytest.raises(ValueError, match="needs its tokenizer"):
        kind(model)
    assert not kind(model, tokenizer).score(["a"], ["a"]).value.isnan().any()
    with pytest.raises(ValueError, match=f"unknown {name} option 'modell'; did you mean 'model'"):
        make_metric(name, modell=folders[name])


def test_pair_model_er2score_refuses_a_model_of_crepe(folders):
    with pytest.raises(FileNotFoundError, match=r"contains no head\.safetensors, so it is not an ER2Score model"):
        ER2Score(folders["crepe"])


@pytest.mark.parametrize(("fast", "dtype"), [(True, "bfloat16"), (False, "float32"), (None, "float32")])
def test_pair_model_auto_is_the_type_of_the_processor_and_the_signature_names_it(make, processor, fast, dtype):
    processor(fast)
    metric, explicit = make(dtype="auto"), make(dtype=dtype)
    assert metric.predictor.options.dtype == "auto"
    assert metric.signature == explicit.signature
    assert f"|dtype:{dtype}|" in metric.signature
    assert f"dtype='{dtype}'" in repr(metric)
    assert torch.equal(metric.score(*PAIRS).value, explicit.score(*PAIRS).value)


@pytest.mark.parametrize("fast", [True, False, None])
def test_pair_model_scores_do_not_depend_on_the_processor(make, processor, fast):
    processor(fast)
    assert "|dtype:float32|" in make().signature
    assert torch.equal(make().score(*PAIRS).value, make(dtype="float32").score(*PAIRS).value)


def test_pair_model_types_differ(make):
    values = [make(dtype=dtype).score(*PAIRS).value for dtype in ("float32", "bfloat16")]
    assert not torch.equal(*values)


def test_pair_model_auto_reaches_rewards(name, folders, processor):
    processor(True)
    reward = make_reward(name, model=folders[name], dtype="auto")
    assert "|dtype:bfloat16|" in reward.signature
    explicit = make_reward(name, model=folders[name], dtype="bfloat16")
    assert reward(PAIRS[0], reference=PAIRS[1]) == explicit(PAIRS[0], reference=PAIRS[1])


def test_pair_model_pickle_of_auto_is_resolved_by_the_machine_that_unpickles(make, processor):
    processor(True)
    pickled = pickle.dumps(make(dtype="auto"))
    processor(False)
    assert "|dtype:float32|" in pickle.loads(pickled).signature


def test_pair_model_logs_the_type_once(make, name, processor, caplog):
    processor(True)
    metric = make(dtype="auto")
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
    expected = make(dtype="auto").score(*PAIRS).value
    with plugin.forward_context():
        assert torch.equal(make(dtype="auto").score(*PAIRS).value, expected)


def test_pair_model_crepe_stored_in_bfloat16_is_widened(tmp_path):
    narrow, wide = (save_tiny_crepe(tmp_path / kind) / "model.safetensors" for kind in ("narrow", "wide"))
    weights = {key: value.bfloat16() for key, value in load_file(narrow).items()}
    save_file(weights, narrow, metadata={"format": "pt"})
    save_file({key: value.float() for key, value in weights.items()}, wide, metadata={"format": "pt"})
    assert "|dtype:float32|" in CREPE(narrow.parent).signature
    assert torch.equal(CREPE(narrow.parent).score(*PAIRS).value, CREPE(wide.parent).score(*PAIRS).value)


def test_pair_model_er2score_backbone_stored_in_bfloat16_is_widened(tmp_path):
    save_tiny_er2score(tmp_path)
    model = ER2ScoreModel.from_backbone(tmp_path / "llama", dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "narrow")
    metric = ER2Score(tmp_path / "narrow")
    metric.score(*PAIRS)
    assert {value.dtype for value in metric.predictor._model.parameters()} == {torch.float32}
    assert "|dtype:float32|" in metric.signature


def test_pair_model_given_as_an_object_in_half_precision_is_named_as_it_computes(folders):
    tokenizer = AutoTokenizer.from_pretrained(folders["crepe"])
    model = CrepeModel.from_pretrained(folders["crepe"])
    assert "|dtype:float32|" in CREPE(model, tokenizer).signature
    half = copy.deepcopy(model).to(torch.bfloat16)
    assert "|dtype:bfloat16|" in CREPE(half, tokenizer, dtype="auto").signature
    with pytest.raises(ValueError, match=r"dtype is 'float32', but .* has weights in bfloat16.*dtype='auto'"):
        CREPE(half, tokenizer)


def test_pair_model_corpus_value_of_two_types_is_refused(make, processor):
    """As after a sync of processes on two kinds of machines, which adds their states."""
    metrics = []
    for fast in (True, False):
        processor(fast)
        metric = make(dtype="auto")
        metric.update([*PAIRS[0][: 2 + fast], None], [*PAIRS[1][: 2 + fast], "a mass"])
        metrics.append(metric)
    metrics[1].merge_state(metrics[0])
    for read in (metrics[1].compute, metrics[1].statistics):
        with pytest.raises(ValueError, match=r"computed 2 pairs in float32 and 3 pairs in bfloat16.*the same dtype"):
            read()
    metrics[1].reset()
    metrics[1].update(*PAIRS)
    assert metrics[1].compute().isfinite()
