"""Sentences and line ends: where a sentence ends, and which line ends wrap one."""

import textwrap

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rrg_rewards.findings import extract_findings
from rrg_rewards.findings.reading.sentences import report_units, split_unit, tokenise_units, unwrap
from rrg_rewards.findings.reading.tokens import tokenise
from rrg_rewards.labelers import RuleLabeler
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r", " \n  "])
@pytest.mark.parametrize("case", TABLES["cases"])
def test_unwrap_keeps_the_line_ends_that_separate(case, newline):
    report = case.replace("/", "\0").replace("|", newline).replace("\0", newline)
    kept = unwrap(report)
    assert len(kept) == len(report)
    assert kept.split() == report.split()
    expected = [" ".join(line.split()) for line in case.replace("|", " ").split("/") if line.strip()]
    assert [" ".join(line.split()) for line in kept.splitlines() if line.strip()] == expected


def test_unwrap_leaves_a_line_end_after_a_full_stop_to_the_full_stop():
    assert unwrap("No effusion.\nCardiomegaly.\r\nNo nodule.") == "No effusion. Cardiomegaly.  No nodule."


PROSE = (
    "The cardiac silhouette is mildly enlarged. There is no evidence of pneumothorax, pleural effusion or focal "
    "consolidation on either side. Right-sided central venous catheter terminates in the cavoatrial junction. No acute "
    "fracture, and no pulmonary edema or congestion is identified. Linear atelectasis at the left base is unchanged."
)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\n "])
@pytest.mark.parametrize("width", [30, 47, 60, 72, 80, 100])
@pytest.mark.parametrize("change", [str, str.lower, str.upper])
def test_unwrap_changes_no_label(change, width, newline):
    labeler, text = RuleLabeler("chexbert"), change(PROSE)
    wrapped = newline.join(textwrap.wrap(text, width))
    assert labeler([wrapped]).tolist() == labeler([text]).tolist()
    assert labeler([text])[0].sum() == 3


def test_unwrap_keeps_places_across_wrapped_lines():
    report = "Findings:\r\nThere is no pleural\r\neffusion, but lung\nnodules.\n"
    found = extract_findings(report, "chest_ct")
    assert [(f.concept, f.presence, f.text) for f in found] == [
        ("pleural_effusion", "absent", "pleural\r\neffusion"),
        ("lung_nodule", "present", "nodules"),
    ]
    assert all(report[f.start : f.end] == f.text for f in found)


def test_report_units_keep_sizes_after_semicolons_in_one_list():
    (found,) = extract_findings("Two nodules: 4 mm, left upper lobe; 3 mm, right upper lobe.")
    assert [(place.laterality, place.size_mm) for place in found.places] == [("left", 4), ("right", 3)]
    # a size with a name begins another statement
    assert extract_findings("Suspicious for infection; 8 mm nodule.")[-1].presence == "present"


@given(st.text(alphabet="aB1.:,- \n\r•", max_size=60) | st.text(max_size=60))
def test_unwrap_keeps_the_place_of_every_character(text):
    kept = unwrap(text)
    assert len(kept) == len(text)
    assert all(new == old or (old in "\r\n" and new in " \n") for old, new in zip(text, kept, strict=True))


@pytest.mark.parametrize(
    ("report", "concepts"),
    [
        ("TECHNIQUE: PA and lateral views. Large left pneumothorax.", ["pneumothorax"]),
        ("Protocol: low dose CT.\nEmphysema.", ["emphysema"]),
        # A heading follows, or a request, of which the words are no findings.
        ("Technique: Axial images. A hernia filter was used.\nFindings: Emphysema.", ["emphysema"]),
        ("Indication: cough. Pneumothorax?", []),
        ("Indication: cough. Pneumothorax?\nThe lungs show a consolidation.", ["consolidation"]),
        ("Indication: cough and\npneumothorax.", []),
        # The report has no other line.
        ("Indication: 67-year-old man, known colon cancer. Emphysema. No nodule.", ["emphysema", "lung_nodule"]),
        ("Indication: cough. Pneumonia? Effusion? Emphysema.", ["emphysema"]),
        ("Indication: pain. Lesion in the liver (cyst?). Emphysema.", ["hepatic_lesion", "hepatic_cyst", "emphysema"]),
    ],
)
def test_a_section_on_the_technique_ends_with_its_sentence_before_no_heading(report, concepts):
    assert [found.concept for found in extract_findings(report)] == concepts


def test_report_units_do_not_end_at_an_abbreviation() -> None:
    (nodule,) = extract_findings("Calcified nodule, approx. 0.4 cm, lateral segment RLL.")
    assert (nodule.size_mm, nodule.laterality, nodule.location) == (4.0, "right", ("lower",))
    text = "Nodule on the rt. no effusion. A nodule of approx. 5 mm"
    assert report_units(text) == ["Nodule on the rt", "no effusion", "A nodule of approx  5 mm"]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("Clear lungs", ["Clear lungs"]),
        ('Clear lungs." Hernia', ["Clear lungs", " Hernia"]),
        ("Window; clear", ["Window", " clear"]),
        ("Size 2.5 mm", ["Size 2.5 mm"]),
        ("Clear.Hernia", ["Clear", "Hernia"]),
        ("• Hernia • Effusion", [" Hernia ", " Effusion"]),
        ("one\ntwo\r\nthree", ["one", "two", "three"]),
        ("", []),
        ("...", []),
    ],
)
def test_split_unit_at_boundaries(unit, expected):
    assert [piece for _, piece in split_unit(unit)] == expected


def test_split_unit_of_an_endless_sentence():
    unit = "nodule " * 5_000
    found = split_unit(unit)
    assert max(len(piece) for _, piece in found) <= 2_000
    assert "".join(piece for _, piece in found) == unit


@given(st.text())
def test_split_unit_offsets(unit):
    assert all(unit[start : start + len(piece)] == piece for start, piece in split_unit(unit))


texts = st.text(
    alphabet=st.sampled_from(["a", "B", "2", " ", ".", ",", ";", "\n", '"', "•", "(", "\x1e", "é", "-", "m", "*"]),
    max_size=20,
)


@given(st.lists(texts, max_size=5))
# the asterisk in the second unit is no sign of dimensions, whatever the first one contains
@example(["6*4 mm", "length in mm * 2"])
def test_tokenise_units_reads_units_as_alone(parts):
    alone = [[tokens for _, piece in split_unit(part) if (tokens := tokenise(piece))] for part in parts]
    assert [[tokens for tokens in unit if tokens] for unit in tokenise_units(parts)] == alone
