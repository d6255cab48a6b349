"""Question schemas as YAML text, and the conversion of released attributes."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.questions import AttributeSpec, FindingSpec, QuestionSchema, get_question_schema
from rrg_rewards.questions.engine import build_items
from rrg_rewards.questions.schema_files import (
    ReleasedAttribute,
    convert_released_attributes,
    question_schema_yaml,
    split_examples,
)

# In the released layout, with content of our own.
ROWS = [
    ReleasedAttribute("submucosal_edema", "Location", "Part of the gut\n with edema.", "colon, small bowel, rectum"),
    ReleasedAttribute("submucosal_edema", "Severity", "Degree.", "mild, moderate, severe"),
    ReleasedAttribute("renal_cyst", "Size", "Largest diameter, or {n/a}.", "4 mm, 1.5 cm, up to 12 mm, large"),
    ReleasedAttribute("renal_cyst", "Wall_Features", "Look of the wall.", "zigzag, plicate"),
    ReleasedAttribute("gut_feeling", "Kind", "Kind of feeling.", "good; bad"),
]


@pytest.mark.parametrize("name", ["ct_rate", "merlin"])
def test_question_schema_yaml_is_read_as_the_same_schema(name: str, tmp_path: Path) -> None:
    path = tmp_path / "copy.yaml"
    path.write_text(question_schema_yaml(get_question_schema(name)), encoding="utf-8")
    assert get_question_schema(path) == get_question_schema(name)
    assert get_question_schema(path).digest == get_question_schema(name).digest


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1).filter(
    lambda text: text.strip() == text != ""
)


@given(TEXTS, TEXTS, st.lists(TEXTS, min_size=1))
def test_question_schema_yaml_of_any_text(
    tmp_path_factory: pytest.TempPathFactory, name: str, text: str, examples: list[str]
) -> None:
    spec = AttributeSpec(name, "categorical", text, text, tuple(examples), unit="ratio")
    existence = AttributeSpec("existence", "existence", text, text, ("yes",))
    attributes = (spec,) if name.casefold() == "existence" else (existence, spec)
    schema = QuestionSchema(text, (FindingSpec(name, attributes),))
    path = tmp_path_factory.mktemp("schema") / "any.yaml"
    path.write_text(question_schema_yaml(schema), encoding="utf-8")
    assert get_question_schema(path) == schema


def test_convert_released_attributes_maps_each_column() -> None:
    made = convert_released_attributes(ROWS, "merlin_released")
    assert (made.schema.name, made.schema.lexicon) == ("merlin_released", "abdomen")
    assert [finding.name for finding in made.schema.findings] == ["Submucosal edema", "Renal cyst", "gut feeling"]
    edema, cyst, feeling = made.schema.findings
    assert [(spec.name, spec.answer_type, spec.question) for spec in (*edema.attributes, *cyst.attributes)] == [
        ("existence", "existence", "Does the report describe submucosal edema?"),
        ("location", "location", "Where is the submucosal edema?"),
        ("severity", "categorical", "What is the severity of the submucosal edema?"),
        ("existence", "existence", "Does the report describe renal cyst?"),
        ("size", "numeric", "What is the size of the renal cyst?"),
        ("wall features", "categorical", "What are the wall features of the renal cyst?"),
    ]
    assert edema.attribute("location").explanation == "Part of the gut with edema."
    assert cyst.attribute("size").examples == ("4 mm", "1.5 cm", "up to 12 mm", "large")
    assert feeling.attribute("kind").examples == ("good", "bad")


def test_convert_released_attributes_lists_what_the_engine_cannot_read(tmp_path: Path) -> None:
    made = convert_released_attributes(ROWS)
    assert made.unread_findings == ("gut feeling",)
    assert list(made.unread_attributes) == [("Renal cyst", "wall features")]
    assert "none of its examples" in made.unread_attributes["Renal cyst", "wall features"]
    assert "{n/a}" in made.schema.finding("renal_cyst").attribute("size").explanation
    readable = made.readable()
    assert [len(finding.attributes) for finding in readable.findings] == [3, 2]
    path = tmp_path / "readable.yaml"
    path.write_text(question_schema_yaml(readable))
    items = build_items("Renal cyst of 12 mm. Mild submucosal edema of the colon.", path)
    assert {(item.finding, item.attribute, item.answer) for item in items} >= {
        ("Renal cyst", "size", "12 mm"),
        ("Submucosal edema", "severity", "mild"),
    }
    path.write_text(question_schema_yaml(made.schema))
    with pytest.raises(ValueError, match="'wall features': the answer vocabulary contains none of its examples"):
        build_items("Renal cyst.", path)
    unread = convert_released_attributes(ROWS[4:], lexicon="abdomen")
    path.write_text(question_schema_yaml(unread.schema))
    with pytest.raises(ValueError, match="unknown label of lexicon abdomen 'gut feeling'"):
        build_items("Renal cyst.", path)
    with pytest.raises(ValueError, match="has none of the findings gut feeling"):
        unread.readable()


def test_convert_released_attributes_of_ct_rate() -> None:
    rows = [
        ReleasedAttribute("lung_nodule", "Density", "Composition.", "solid, ground-glass"),
        ReleasedAttribute("Lung nodule", "Presence", "Whether there is one.", "yes, no"),
        ReleasedAttribute("lung_nodule", "Attenuation value", "In Hounsfield units.", "20 HU, -100 HU"),
    ]
    made = convert_released_attributes(rows, answer_types={"Density": "location"})
    assert (made.schema.lexicon, made.unread_findings) == ("chest_ct", ())
    (nodule,) = made.schema.findings
    assert [(spec.name, spec.answer_type, spec.unit) for spec in nodule.attributes] == [
        ("existence", "existence", "length"),
        ("density", "location", "length"),
        ("attenuation value", "numeric", "attenuation"),
    ]
    assert nodule.attributes[0].explanation == "Whether there is one."


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "the table has no rows"),
        ([ROWS[0], ReleasedAttribute("a", " ", "x", "")], {}, "data row 2: feature and examples must not be blank"),
        ([ROWS[0], ROWS[1], ROWS[0]], {}, "data row 3: 'submucosal_edema' already has the feature 'Location'"),
        (ROWS, {"answer_types": {"size": "number"}}, "unknown answer_type 'number'"),
        (ROWS, {"answer_types": {"sise": "numeric"}}, "no row has the attribute 'sise'; known: kind, location, "),
        ([ROWS[0]._replace(examples=",;")], {}, "data row 1: examples must contain a value"),
        ([ROWS[0]._replace(examples="[1, 2]")], {}, "data row 1: examples that begin with '[' must be a list of texts"),
        (ROWS, {"lexicon": "abdomn"}, "abdomn"),
    ],
)
def test_convert_released_attributes_names_what_is_wrong(
    rows: list[ReleasedAttribute], options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        convert_released_attributes(rows, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "examples"),
    [
        ("mild,moderate , severe", ("mild", "moderate", "severe")),
        ("4 mm,12 mm, 1,5 cm", ("4 mm", "12 mm", "1,5 cm")),
        ("a\nb; c", ("a", "b", "c")),
        ("mild, mild", ("mild",)),
        ("grade I (mild, early), grade II", ("grade I (mild, early)", "grade II")),
        ('"upper, middle", lower', ("upper, middle", "lower")),
        ('["upper, middle", "lower"]', ("upper, middle", "lower")),
        ("yes", ("yes",)),
        ("open (bracket, here", ("open (bracket, here",)),
    ],
)
def test_split_examples(text: str, examples: tuple[str, ...]) -> None:
    assert split_examples(text) == examples
