"""CREPE's model and configuration, and the weight files of `models.state_dicts`."""

import json
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_crepe import plain_counts, random_pairs, save_tiny_crepe, tiny_bert_tokenizer
from transformers import BertConfig, BertModel, DistilBertConfig, RobertaConfig, RobertaModel

from rrg_rewards.functional import crepe_loss
from rrg_rewards.models import CrepeConfig, CrepeModel
from rrg_rewards.schemas import ERROR_CATEGORIES

SMALL = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


@pytest.fixture
def published(tmp_path):
    return save_tiny_crepe(tmp_path / "published")


def encoded(number=4, seed=0, longest=60):
    candidates, references = random_pairs(number, seed, longest)
    return tokenized(references, candidates)


def tokenized(references, candidates):
    settings = {"truncation": True, "max_length": 512, "padding": True, "return_tensors": "pt"}
    return tiny_bert_tokenizer()(references, candidates, **settings)


def change_weights(folder, change):
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_crepe_model_published_layout_loads_as_it_is(published):
    model = CrepeModel.from_pretrained(published)

    assert model.config.error_categories == ERROR_CATEGORIES
    assert model.state_dict().keys() == load_file(published / "model.safetensors").keys()
    assert not model.training
    candidates, references = random_pairs(3)
    with torch.no_grad():
        counts = model(**tokenized(references, candidates)).counts
    for row, (candidate, reference) in enumerate(zip(candidates, references, strict=True)):
        torch.testing.assert_close(counts[row], plain_counts(published, candidate, reference), atol=1e-5, rtol=0)


def test_crepe_model_what_is_saved_is_the_published_layout(published, tmp_path):
    model = CrepeModel.from_pretrained(published)

    model.save_pretrained(tmp_path / "saved")

    saved, given = (load_file(folder / "model.safetensors") for folder in (tmp_path / "saved", published))
    assert saved.keys() == given.keys()
    assert all(torch.equal(saved[key], given[key]) for key in given)
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    published_config = json.loads((published / "config.json").read_text())
    ignored = {"transformers_version", "error_categories", "architectures", "dtype"}
    assert {key: config[key] for key in published_config.keys() - ignored} == {
        key: published_config[key] for key in published_config.keys() - ignored
    }
    # Code for BERT reads the encoder's fields.
    assert BertConfig.from_pretrained(tmp_path / "saved").hidden_size == 32


def test_crepe_model_save_and_load_give_equal_bits(published, tmp_path):
    model = CrepeModel.from_pretrained(published)
    model.save_pretrained(tmp_path / "saved")

    again = CrepeModel.from_pretrained(tmp_path / "saved")

    batch = encoded()
    with torch.no_grad():
        before, after = model(**batch), again(**batch)
    assert torch.equal(before.counts, after.counts)
    assert torch.equal(before.presence_logits, after.presence_logits)
    assert again.config.to_dict().keys() == model.config.to_dict().keys()


def test_crepe_model_named_categories_survive_saving(tmp_path):
    names = ("missed", "invented", "misplaced")
    CrepeModel(CrepeConfig(SMALL, names, presence_loss_weight=0.2)).save_pretrained(tmp_path)

    config = CrepeModel.from_pretrained(tmp_path).config

    assert config.error_categories == names
    assert config.num_error_categories == 3
    assert config.presence_loss_weight == 0.2


def test_crepe_model_forward_gives_the_functional_loss(published):
    model = CrepeModel.from_pretrained(published)
    labels = torch.tensor([[0.0, 1, 2, 0, float("nan"), 0]] * 4)

    out = model(**encoded(), labels=labels)

    expected = crepe_loss(out.counts, out.presence_logits, labels)
    assert out.loss == expected.loss
    assert out.loss_terms == expected
    assert out.loss.requires_grad
    assert not out.loss_terms.loss.requires_grad


def test_crepe_model_every_parameter_learns(published):
    model = CrepeModel.from_pretrained(published).train()

    model(**encoded(), labels=torch.ones(4, 6)).loss.backward()

    # Otherwise DistributedDataParallel waits for a missing gradient.
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.slow
def test_crepe_model_overfits_a_few_pairs(published):
    model = CrepeModel.from_pretrained(published)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (32, 6), generator=generator).float()
    batch = encoded(32, seed=5, longest=12)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    for _ in range(150):
        optimizer.zero_grad()
        model(**batch, labels=labels).loss.backward()
        optimizer.step()

    with torch.no_grad():
        error = (model(**batch).counts - labels).abs().mean()
    # A constant prediction of the mean has an error of 1.
    assert error < 0.2


def test_crepe_model_a_poisson_models_counts_are_the_softplus_of_its_heads(tmp_path):
    """As published: ``softplus`` of the regressors, and ``PoissonNLLLoss(log_input=False)``."""
    poisson = CrepeModel.from_pretrained(save_tiny_crepe(tmp_path / "poisson", use_poisson_loss=True))
    plain = CrepeModel.from_pretrained(save_tiny_crepe(tmp_path / "plain"))
    labels = torch.tensor([[0.0, 1, 2, 3, 4, 5]] * 4)

    out = poisson(**encoded(), labels=labels)

    expected = torch.log1p(plain(**encoded()).counts.exp())
    torch.testing.assert_close(out.counts, expected)
    regression = torch.nn.PoissonNLLLoss(log_input=False)(expected, labels)
    torch.testing.assert_close(out.loss_terms.regression, regression)


def test_crepe_model_without_presence_loss_there_are_no_presence_heads(tmp_path):
    model = CrepeModel.from_pretrained(save_tiny_crepe(tmp_path, presence=False))

    out = model(**encoded(), labels=torch.zeros(4, 6))

    assert out.presence_logits is None
    assert out.loss == out.loss_terms.regression
    assert not any("presence" in key for key in model.state_dict())


def test_crepe_model_presence_heads_that_the_configuration_does_not_use_are_left_out(published):
    config = json.loads((published / "config.json").read_text())
    (published / "config.json").write_text(json.dumps({**config, "use_presence_loss": False}))

    assert CrepeModel.from_pretrained(published).error_presence is None


def test_crepe_model_heads_compute_in_full_precision_under_autocast(published):
    model = CrepeModel.from_pretrained(published)
    with torch.no_grad():
        exact = model(**encoded()).counts
        with torch.autocast("cpu", dtype=torch.bfloat16):
            near = model(**encoded()).counts

    assert near.dtype == torch.float32
    assert not torch.equal(near, exact)
    # bfloat16 has steps of at least 1/64 at this size.
    assert not torch.equal(near, near.bfloat16().float())


@pytest.mark.parametrize(
    ("config", "prefix"),
    [
        (RobertaConfig(**SMALL, max_position_embeddings=70), "roberta"),
        (DistilBertConfig(vocab_size=40, dim=16, n_layers=1, n_heads=2, hidden_dim=16), "distilbert"),
    ],
)
def test_crepe_model_takes_other_encoders_under_their_own_prefix(config, prefix, tmp_path):
    model = CrepeModel(CrepeConfig(config)).eval()
    model.save_pretrained(tmp_path)
    ids = torch.tensor([[0, 5, 6, 2]])

    again = CrepeModel.from_pretrained(tmp_path)

    assert any(key.startswith(f"{prefix}.") for key in load_file(tmp_path / "model.safetensors"))
    with torch.no_grad():
        assert torch.equal(model(ids).counts, again(ids).counts)


def test_crepe_model_an_encoder_without_pooling_gives_its_first_token():
    config = DistilBertConfig(vocab_size=40, dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    model = CrepeModel(CrepeConfig(config)).eval()
    ids = torch.tensor([[0, 5, 6, 2]])

    with torch.no_grad():
        first = model.encoder(ids).last_hidden_state[:, 0]
        expected = torch.cat([head(first) for head in model.error_regressors], dim=1)
        assert torch.equal(model(ids).counts, expected)


def test_crepe_model_training_starts_from_a_plain_encoder(tmp_path):
    torch.manual_seed(0)
    encoder = BertModel(BertConfig(**SMALL))
    encoder.save_pretrained(tmp_path)

    model = CrepeModel.from_encoder(tmp_path, ["missed", "invented"], use_presence_loss=False)

    assert model.config.error_categories == ("missed", "invented")
    assert model.error_presence is None
    for key, value in encoder.state_dict().items():
        assert torch.equal(model.encoder.state_dict()[key], value)


def test_crepe_model_a_plain_encoder_without_pooling_gets_one_and_nothing_else(tmp_path):
    BertModel(BertConfig(**SMALL), add_pooling_layer=False).save_pretrained(tmp_path)
    assert CrepeModel.from_encoder(tmp_path).encoder.pooler is not None

    change_weights(tmp_path, lambda weights: weights.pop("embeddings.word_embeddings.weight"))
    with pytest.raises(ValueError, match=r"lacks weights of its encoder: embeddings\.word_embeddings\.weight"):
        CrepeModel.from_encoder(tmp_path)


def test_crepe_model_wrong_number_of_categories_names_both(published):
    config = json.loads((published / "config.json").read_text())
    (published / "config.json").write_text(json.dumps({**config, "num_error_categories": 8}))

    with pytest.raises(ValueError, match=r"model\.safetensors has heads for 6 error categories, .* has 8"):
        CrepeModel.from_pretrained(published)


def test_crepe_model_missing_and_unexpected_keys_are_named(published):
    change_weights(published, lambda weights: weights.pop("bert.pooler.dense.bias"))
    change_weights(published, lambda weights: weights.update(extra=torch.zeros(1)))

    with pytest.raises(ValueError, match=r"missing: bert\.pooler\.dense\.bias; unexpected: extra"):
        CrepeModel.from_pretrained(published)


def test_crepe_model_a_buffer_of_older_transformers_is_ignored(published):
    positions = torch.arange(512)[None]
    change_weights(published, lambda weights: weights.update({"bert.embeddings.position_ids": positions}))

    CrepeModel.from_pretrained(published)


def test_crepe_model_older_weight_files_load_without_being_executed(published):
    weights = load_file(published / "model.safetensors")
    (published / "model.safetensors").unlink()
    torch.save(weights, published / "pytorch_model.bin")

    loaded = CrepeModel.from_pretrained(published).state_dict()

    assert all(torch.equal(loaded[key], weights[key]) for key in weights)


class _Trap:
    """A malicious pickle: unpickling it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_crepe_model_a_pickle_in_place_of_weights_is_refused(published, tmp_path, name):
    (published / "model.safetensors").unlink()
    (published / name).write_bytes(pickle.dumps({"bert.weight": _Trap(tmp_path / "executed")}, protocol=2))

    with pytest.raises(ValueError, match=f"{name}: not a readable weight file"):
        CrepeModel.from_pretrained(published)
    assert not (tmp_path / "executed").exists()


def test_crepe_model_folders_that_hold_no_model_say_what_is_missing(published, tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        CrepeModel.from_pretrained(tmp_path / "nowhere")
    (published / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"contains no weights; expected one of model\.safetensors"):
        CrepeModel.from_pretrained(published)
    (published / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"contains no config\.json"):
        CrepeModel.from_pretrained(published)


def test_a_plain_encoder_is_no_crepe_model(tmp_path):
    BertModel(BertConfig(**SMALL)).save_pretrained(tmp_path)

    with pytest.raises(ValueError, match=r"no num_error_categories.*from_encoder"):
        CrepeModel.from_pretrained(tmp_path)


def test_crepe_model_a_roberta_prefix_is_not_berts():
    model = CrepeModel(CrepeConfig(RobertaConfig(**SMALL)))

    assert isinstance(model.encoder, RobertaModel)
    assert model.base_model is model.encoder


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"error_categories": ["a", "a"]}, "distinct names"),
        ({"error_categories": []}, "at least one"),
        ({"error_categories": "missed"}, "pass \\['missed'\\]"),
        ({"error_categories": ["a", "b"], "num_error_categories": 3}, "is 3, but error_categories has 2 names"),
        ({"presence_loss_weight": 2.0}, r"must lie in \[0, 1\], got 2.0"),
    ],
)
def test_crepe_model_configurations_without_a_meaning_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        CrepeConfig(SMALL, **fields)


def test_crepe_model_unnamed_categories_are_numbered():
    assert CrepeConfig(SMALL, num_error_categories=2).error_categories == ("error_0", "error_1")
