"""RadBertLabeler against the published procedure, written out independently, on a small model of the same form."""

import pickle

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoTokenizer, RobertaConfig, RobertaForSequenceClassification, RobertaModel

from rrg_rewards.labelers import RadBertLabeler, get_labeler
from rrg_rewards.rewards import make_reward
from rrg_rewards.schemas import CT_RATE

REPORTS = [
    "Nodule in the right lobe.",
    "No effusion. The heart is enlarged.",
    "NODULE",
    "",
    "the heart is enlarged . " * 200 + "nodule effusion " * 60,
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A small RoBERTa encoder's folder: configuration and tokenizer."""
    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(REPORTS, vocab_size=400, min_frequency=1, special_tokens=special)
    tokenizer.save_model(str(folder))
    RobertaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=514,
        pad_token_id=1,
        initializer_range=0.5,
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def state(encoder):
    """Random weights with the published names."""
    torch.manual_seed(0)
    model = RobertaModel(RobertaConfig.from_pretrained(encoder))
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    state["model.embeddings.position_ids"] = torch.arange(514)[None]
    state["classifier.weight"], state["classifier.bias"] = torch.randn(18, 16), torch.randn(18)
    return state


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, state):
    """The published form: a plain state_dict."""
    path = tmp_path_factory.mktemp("checkpoint") / "RadBertClassifier.pth"
    torch.save(state, path)
    return path


def published_tokenizer(encoder):
    """The tokenizer as `dataset.py` of CT-CLIP's text classifier loads it."""
    return AutoTokenizer.from_pretrained(encoder, do_lower_case=True)


def published_labels(encoder, state, reports):
    """One report at a time, padded and cut to 512 tokens by the tokenizer as the authors load it, sigmoid at 0.5."""
    tokenizer = published_tokenizer(encoder)
    model = RobertaModel(RobertaConfig.from_pretrained(encoder)).eval()
    model.load_state_dict({k[6:]: v for k, v in state.items() if k.startswith("model.") and "position_ids" not in k})
    labels = []
    for report in reports:
        encoded = tokenizer(report, padding="max_length", truncation=True, max_length=512, return_tensors="pt")
        with torch.no_grad():
            pooled = model(encoded["input_ids"], encoded["attention_mask"]).pooler_output
        labels.append(torch.sigmoid(pooled @ state["classifier.weight"].T + state["classifier.bias"])[0] >= 0.5)
    return torch.stack(labels)


def test_radbert_labeler_equals_the_published_procedure(encoder, state, checkpoint):
    labeler = RadBertLabeler(checkpoint, encoder=encoder, batch_size=2)
    labels = labeler(REPORTS)
    written = [row for row, report in enumerate(REPORTS) if report]
    expected = published_labels(encoder, state, [REPORTS[row] for row in written])
    assert labeler.labels == CT_RATE.labels
    assert labels.dtype == torch.bool
    assert torch.equal(labels[written], expected)
    assert expected.any()
    assert not expected.all()
    assert not labels[REPORTS.index("")].any()


def test_radbert_labeler_does_not_change_case(encoder, state, checkpoint):
    reports = [f"{word} in the RIGHT lobe." for word in ("Nodule", "NODULE", "Effusion", "No effusion")]
    labels = RadBertLabeler(checkpoint, encoder=encoder)(reports)
    assert torch.equal(labels, published_labels(encoder, state, reports))
    assert not torch.equal(labels, published_labels(encoder, state, [report.lower() for report in reports]))


@pytest.mark.parametrize("rename", [str.upper, lambda label: label.replace(" ", "_")], ids=["upper", "snake"])
def test_radbert_labeler_takes_labels_in_other_spellings(tmp_path, encoder, rename):
    names = dict(enumerate(map(rename, CT_RATE.labels)))
    RobertaForSequenceClassification(RobertaConfig.from_pretrained(encoder, id2label=names)).save_pretrained(tmp_path)
    published_tokenizer(encoder).save_pretrained(tmp_path)
    assert RadBertLabeler(tmp_path)(["nodule"]).shape == (1, 18)


def test_radbert_labeler_windows_read_what_truncation_does_not(encoder, state, checkpoint):
    report = REPORTS[-1]
    tokenizer = published_tokenizer(encoder)
    tokens = tokenizer.tokenize(report)
    body, step = 510, 510 - 128
    starts = range(0, max(len(tokens) - 128, 1), step)
    windows = [tokenizer.convert_tokens_to_string(tokens[start : start + body]) for start in starts]
    assert len(windows) > 2
    expected = published_labels(encoder, state, windows).any(0)
    labels = RadBertLabeler(checkpoint, encoder=encoder, long_reports="windows")([report, REPORTS[0]])
    assert torch.equal(labels[0], expected)
    assert torch.equal(labels[1], published_labels(encoder, state, REPORTS[:1])[0])


def test_radbert_labeler_loads_hugging_face_forms(tmp_path, encoder, state):
    own = tmp_path / "own"
    own.mkdir()
    for file in encoder.iterdir():
        (own / file.name).write_bytes(file.read_bytes())
    save_file({k: v for k, v in state.items() if "position_ids" not in k}, own / "model.safetensors")
    assert torch.equal(RadBertLabeler(own)(REPORTS[:3]), published_labels(encoder, state, REPORTS[:3]))

    other = tmp_path / "sequence_classifier"
    config = RobertaConfig.from_pretrained(encoder, num_labels=18, id2label=dict(enumerate(CT_RATE.labels)))
    model = RobertaForSequenceClassification(config).eval()
    model.save_pretrained(other)
    tokenizer = published_tokenizer(encoder)
    tokenizer.save_pretrained(other)
    encoded = tokenizer(REPORTS[:3], padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(encoded["input_ids"], encoded["attention_mask"]).logits
    assert torch.equal(RadBertLabeler(other)(REPORTS[:3]), torch.sigmoid(logits) >= 0.5)


def test_radbert_labeler_takes_label_names_by_number(tmp_path, encoder):
    by_text = {number: CT_RATE.labels[int(number)] for number in sorted(map(str, range(18)))}
    config = RobertaConfig.from_pretrained(encoder, num_labels=18)
    config.id2label = {int(number): label for number, label in by_text.items()}
    RobertaForSequenceClassification(config).save_pretrained(tmp_path)
    published_tokenizer(encoder).save_pretrained(tmp_path)
    assert RadBertLabeler(tmp_path)(["nodule"]).shape == (1, 18)


def test_radbert_labeler_loads_nothing_before_the_first_report(tmp_path):
    reward = make_reward("crg", labeler=f"radbert:{tmp_path / 'nowhere'}", prior=0.2)
    assert "crg" in repr(reward)


def test_radbert_labeler_rejects_labels_in_another_order(tmp_path, encoder):
    config = RobertaConfig.from_pretrained(encoder, num_labels=18, id2label=dict(enumerate(CT_RATE.labels[::-1])))
    RobertaForSequenceClassification(config).save_pretrained(tmp_path)
    published_tokenizer(encoder).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="the checkpoint's labels are Interlobular"):
        RadBertLabeler(tmp_path)(["nodule"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("classifier.bias"), "missing: classifier.bias"),
        (lambda state: state.update({"extra.weight": torch.ones(1)}), "unexpected: extra.weight"),
        (
            lambda state: state.update({"classifier.weight": torch.ones(14, 16)}),
            r"misshapen: classifier.weight \(14, 16",
        ),
    ],
)
def test_radbert_labeler_rejects_weights_that_do_not_fit(tmp_path, encoder, state, change, message):
    changed = dict(state)
    change(changed)
    torch.save(changed, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=message):
        RadBertLabeler(tmp_path / "weights.pth", encoder=encoder)(["nodule"])


def test_radbert_labeler_rejects_wrong_arguments(tmp_path, encoder, checkpoint):
    with pytest.raises(ValueError, match="did you mean 'ct_rate'"):
        RadBertLabeler(checkpoint, schema="ct_rat")
    with pytest.raises(ValueError, match="long_reports must be"):
        RadBertLabeler(checkpoint, long_reports="middle")
    with pytest.raises(ValueError, match="dtype must be"):
        RadBertLabeler(checkpoint, dtype="float16")
    with pytest.raises(ValueError, match="batch_size must be positive"):
        RadBertLabeler(checkpoint, batch_size=0)
    with pytest.raises(FileNotFoundError, match="contains no weights"):
        RadBertLabeler(encoder)(["nodule"])
    with pytest.raises(FileNotFoundError, match="'my_model': no such folder"):
        RadBertLabeler("my_model")(["nodule"])
    with pytest.raises(TypeError, match=r"reports\[1\] must be a report text, got NoneType"):
        RadBertLabeler(checkpoint, encoder=encoder)(["nodule", None])


def test_radbert_labeler_pickles_without_weights(encoder, checkpoint):
    labeler = RadBertLabeler(checkpoint, encoder=encoder)
    labels = labeler(REPORTS)
    content = pickle.dumps(labeler)
    again = pickle.loads(content)
    assert len(content) < 2000
    assert torch.equal(again(REPORTS), labels)
    assert again._model is labeler._model
    assert again.signature == labeler.signature
    assert "radbert|checkpoint:RadBertClassifier.pth@" in labeler.signature


def test_radbert_labeler_without_reports(checkpoint):
    labeler = get_labeler(f"radbert:{checkpoint}")
    assert isinstance(labeler, RadBertLabeler)
    assert labeler([]).shape == (0, 18)
    assert not labeler(["", " \n"]).any()


def test_radbert_labeler_signature_needs_no_model(encoder, checkpoint):
    labeler = RadBertLabeler(checkpoint, encoder=encoder)
    assert "RadBertClassifier.pth@" in labeler.signature
    assert "_model" not in vars(labeler)


def test_radbert_labeler_keeps_the_precision_of_weights(tmp_path, encoder, state, checkpoint):
    config = RobertaConfig.from_pretrained(encoder, dtype="float16")
    config.save_pretrained(tmp_path)
    published_tokenizer(encoder).save_pretrained(tmp_path)
    loaded = RadBertLabeler(checkpoint, encoder=tmp_path)._model.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in state.items() if name in loaded)


def test_radbert_labeler_in_bfloat16(encoder, checkpoint):
    labels = RadBertLabeler(checkpoint, encoder=encoder, dtype="bfloat16")(REPORTS)
    reference = RadBertLabeler(checkpoint, encoder=encoder)(REPORTS)
    assert (labels == reference).float().mean() > 0.9
