"""Question schemas: complete for their label sets, and bad ones are told."""

import pickle
from pathlib import Path

import pytest

from rrg_rewards.metrics import CTFineBench
from rrg_rewards.questions.engine import build_items
from rrg_rewards.questions.schema import AttributeSpec, FindingSpec, QuestionSchema, get_question_schema
from rrg_rewards.questions.vocabulary import answer_tokens, answer_vocabulary
from rrg_rewards.schemas import CT_RATE, MERLIN

FIVE = ("a", "b", "c", "d", "e")


@pytest.mark.parametrize("labels", [CT_RATE, MERLIN])
def test_shipped_schemas_ask_of_every_label(labels) -> None:
    schema = get_question_schema(labels.name)
    assert tuple(finding.name for finding in schema.findings) == labels.labels
    for finding in schema.findings:
        assert finding.attributes[0].answer_type == "existence"
        assert len(finding.attributes) >= 2


def test_every_value_can_be_read_back() -> None:
    vocabulary = answer_vocabulary()
    for value in vocabulary.values:
        hits = vocabulary.hits(answer_tokens(value))
        assert value in {name for hit in hits for kind, name in hit.meanings if kind == "value"}, value


def test_values_are_of_the_vocabulary() -> None:
    vocabulary = answer_vocabulary()
    known = {*vocabulary.groups, *vocabulary.values, *vocabulary.parts, *vocabulary.wider_details}
    for name in ("ct_rate", "merlin"):
        for finding in get_question_schema(name).findings:
            for spec in finding.attributes:
                assert set(spec.values) <= known, (finding.name, spec.name, set(spec.values) - known)


def test_too_few_examples_are_told() -> None:
    with pytest.raises(ValueError, match="at least 5, got 2"):
        AttributeSpec("size", "numeric", "How large?", "Size.", ("1 mm", "2 mm"))


def test_names_twice_are_told() -> None:
    spec = AttributeSpec("size", "numeric", "How large?", "Size.", FIVE)
    with pytest.raises(ValueError, match="different"):
        FindingSpec("Nodule", (spec, spec))
    with pytest.raises(ValueError, match="different"):
        QuestionSchema("own", (FindingSpec("Nodule", (spec,)), FindingSpec("nodule", (spec,))))


OWN = """
name: own
attributes:
  existence: {type: existence, question: 'Is there {finding}?', explanation: x, examples: ['yes']}
  side: {type: location, question: 'Where?', explanation: x, examples: [left, right, both, lung, apex]}
findings:
  Lung nodule: {called: a nodule, ask: [side]}
"""


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    schema = get_question_schema(path)
    assert schema.finding("lung NODULE").attributes[0].question == "Is there a nodule?"
    items = build_items("A nodule in the right lung.", path)
    assert [(item.attribute, item.answer) for item in items] == [("existence", "yes"), ("side", "right lung")]
    with pytest.raises(FileNotFoundError, match=r"owm\.yaml: no such file; did you mean"):
        get_question_schema(tmp_path / "owm.yaml")


WRONG = {
    "name: own\nname: own": "own.yaml: line 2: the key 'name' is repeated",
    "name: own": "own.yaml: lacks findings",
    "name: own\nfindings: [a]": "own.yaml, findings: must be a mapping of names",
    "name: own\nfinding: {}": "own.yaml: unknown key 'finding'; did you mean 'findings'?",
    OWN.replace("type: location", "kind: location"): "attribute 'side': unknown key 'kind'",
    OWN.replace("question: 'Where?', ", ""): "finding 'Lung nodule', attribute 'side': lacks question",
    OWN.replace("type: location", "type: place"): "attribute 'side': unknown answer_type 'place'",
    OWN.replace("Where?", "Where is {findings}?"): "attribute 'side': only {finding} may be in braces",
    OWN.replace("[side]", "[sides]"): "finding 'Lung nodule', ask: unknown attribute 'sides'; did you mean 'side'",
    OWN.replace("ask: [side]", "ask: side"): "finding 'Lung nodule', ask: must be a list of attributes",
    OWN.replace("apex]", "apex], unit: inches"): "attribute 'side': unknown unit 'inches'",
    OWN.replace("lung, apex]", "lung]"): "attribute 'side': examples of attribute 'side' must be at least 5, got 4",
}


@pytest.mark.parametrize("content", WRONG)
def test_a_wrong_entry_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(content)
    with pytest.raises(ValueError, match=WRONG[content]):
        get_question_schema(path)


def test_what_the_engine_cannot_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN.replace("Lung nodule", "Lung nodules"))
    with pytest.raises(
        ValueError, match="unknown label of lexicon chest_ct 'Lung nodules'; did you mean 'Lung nodule'"
    ):
        CTFineBench(path)
    with pytest.raises(ValueError, match="unknown label"):
        build_items("Nodule.", path)
    path.write_text(OWN.replace("apex]", "apex], values: [lungs]"))
    with pytest.raises(ValueError, match="finding 'Lung nodule', attribute 'side': unknown value 'lungs'"):
        CTFineBench(path)
    path.write_text(OWN.replace("type: location", "type: categorical"))
    with pytest.raises(ValueError, match="contains none of its examples"):
        CTFineBench(path)


def test_a_schema_and_a_lexicon_of_ones_own_fit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.yaml").write_text(OWN.replace("Lung nodule", "Azygos lobe") + "lexicon: words.yaml\n")
    (tmp_path / "words.yaml").write_text(
        "extends: chest_ct\nconcepts: {azygos: [azygos lobe]}\nlabels: {Azygos lobe: [azygos]}\n"
    )
    metric = CTFineBench(tmp_path / "own.yaml")
    assert metric.score(["An azygos lobe."], ["Azygos lobe on the right."]).value.tolist() == [0.5]
    assert str(tmp_path) not in metric.signature
    monkeypatch.chdir(tmp_path)
    assert CTFineBench("own.yaml").signature == metric.signature


def test_a_metric_keeps_the_lexicon_that_it_has_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.yaml").write_text(OWN.replace("Lung nodule", "Azygos lobe") + "lexicon: words.yaml\n")
    words = tmp_path / "words.yaml"
    words.write_text("extends: chest_ct\nconcepts: {azygos: [azygos lobe]}\nlabels: {Azygos lobe: [azygos]}\n")
    monkeypatch.chdir(tmp_path)
    metric = CTFineBench("own.yaml")
    before, copied = metric.signature, pickle.dumps(metric)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    # A worker process may have another working folder.
    monkeypatch.chdir(folder)
    assert pickle.loads(copied).signature == before
    pair = (["An azygos lobe."], ["Azygos lobe on the right."])
    assert metric.score(*pair).value.tolist() == [0.5]
    words.write_text("edited")
    assert metric.score(*pair).value.tolist() == [0.5]
    assert metric.signature == before


def test_the_digest_tells_schemas_apart() -> None:
    assert get_question_schema("ct_rate").digest != get_question_schema("merlin").digest
