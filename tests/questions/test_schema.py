"""Question schemas: complete for their label sets, and bad ones are told."""

from pathlib import Path

import pytest

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


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        "name: own\nattributes:\n  existence: {type: existence, question: 'Is there {finding}?', explanation: x,"
        " examples: ['yes']}\nfindings:\n  Lung nodule: {called: a nodule, ask: []}\n"
    )
    schema = get_question_schema(path)
    assert schema.finding("lung NODULE").attributes[0].question == "Is there a nodule?"
    path.write_text("name: own\n")
    with pytest.raises(ValueError, match=r"own\.yaml must be a mapping with name, attributes and findings"):
        get_question_schema(path)
    with pytest.raises(FileNotFoundError):
        get_question_schema(tmp_path / "none.yaml")


def test_the_digest_tells_schemas_apart() -> None:
    assert get_question_schema("ct_rate").digest != get_question_schema("merlin").digest
