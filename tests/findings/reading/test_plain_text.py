import csv
import random
import re
from pathlib import Path
from string import ascii_lowercase

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.findings import extract_findings, inject_errors, read_findings
from rrg_rewards.findings.reading.plain_text import plain_text
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.metrics import CRIMSON

CASES = yaml.safe_load(Path(__file__).with_name("plain_text.yaml").read_text(encoding="utf-8"))
ROWS = [(report, text) for rows in CASES.values() for report, text in rows.items()]


@pytest.mark.parametrize(("report", "text"), ROWS)
def test_plain_text(report, text):
    assert plain_text(report).text == text


@given(st.text(alphabet="No effusn.|-*/[]x ()12<br>&;\\\"':\n\ufb00\u00ad\u2611", max_size=60))
def test_plain_text_offsets_ascend_within_the_report(report):
    plain = plain_text(report)
    if plain.offsets is not None:
        assert len(plain.offsets) == len(plain.text) + 1
        assert list(plain.offsets) == sorted(plain.offsets)
        assert 0 <= plain.offsets[0] <= plain.offsets[-1] == len(report)


def test_findings_lie_in_the_report_as_it_is():
    report = "<b>No</b> pneumo\u00adthorax.<br>1) Di\ufb00use emphysema 2) Left eff\u200busion"
    findings = extract_findings(report)
    assert [report[found.start : found.end] for found in findings] == [
        "pneumo\u00adthorax",
        "emphysema",
        "eff\u200busion",
    ]
    assert [found.text for found in findings] == ["pneumothorax", "emphysema", "effusion"]
    assert [found.presence for found in findings] == ["absent", "present", "present"]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda sentences: "<br>".join(sentences),
        lambda sentences: r"\n".join(sentences),
        lambda sentences: "".join(f"<li>{sentence}</li>" for sentence in sentences),
        lambda sentences: " ".join(f"**{sentence}**" for sentence in sentences),
        lambda sentences: "\n".join(f"{i}. {sentence}" for i, sentence in enumerate(sentences, start=1)),
        lambda sentences: " | ".join(sentence.rstrip(".") for sentence in sentences),
        lambda sentences: " ".join(sentences).replace(" ", "\u00a0"),
    ],
)
def test_layout_changes_no_score(wrap):
    sentences = ["No pneumothorax.", "Small left effusion.", "No nodule.", "The heart is enlarged.", "No fracture."]
    plain, wrapped, reference = " ".join(sentences), wrap(sentences), "Small left effusion. Cardiomegaly. Emphysema."
    metric, labeler = CRIMSON(judge="rules"), RuleLabeler("chexbert")
    assert metric.score([wrapped], [reference]).value == metric.score([plain], [reference]).value
    assert labeler([wrapped]).tolist() == labeler([plain]).tolist()


def test_edits_of_a_report_with_markup_are_of_its_plain_text():
    injected = inject_errors("Large left effusion.<br>No pneumothorax.", {"D": 1}, seed=0, harmless=0)
    assert injected.reference == "Large left effusion.\nNo pneumothorax."
    assert injected.candidate.endswith(" effusion.\nNo pneumothorax.")


@pytest.mark.parametrize(
    ("report", "governed"),
    [
        ("Wihtout effusion or pneumothorax.", 2),
        ("Kein Pneumothorax. Cardiomegaly.", 1),
        ("There is on effusion.", 1),
        ("On acute effusion.", 1),
        ("Effusion is nov seen.", 1),
        ("Possbile effusion.", 1),
        ("On the lateral view, an effusion.", 0),
        ("Now moderate effusion.", 0),
        ("Dextroconvexly scoliosis.", 0),
    ],
)
def test_what_a_mistyped_cue_governs_is_uncertain_and_unread(report, governed):
    reading = read_findings(report)
    uncertain = [found for found in reading.findings if found.presence == "uncertain"]
    assert len(uncertain) == governed
    unread = " ".join(span.text for span in reading.unread)
    assert all(found.text.split()[-1] in unread for found in uncertain)


@pytest.mark.parametrize(
    "report", ["Nopneumothorax.", "Thereis noevidence of pneumothorax.", "Clear, withno pneumothorax"]
)
def test_words_that_are_glued_to_a_cue_are_read(report):
    assert [found.presence for found in extract_findings(report)][-1:] == ["absent"]


def test_a_denial_with_a_wrong_letter_is_no_silent_finding(shared_data):
    """One letter of a denial is left out, replaced, added or exchanged, in twenty ways each."""
    with (shared_data / "iu_xray/systems.csv").open(newline="", encoding="utf-8") as file:
        reports = [row["reference"] for row in csv.DictReader(file)]
    sentences = sorted({sentence for report in reports for sentence in report.split(". ")})[::5]
    draws = random.Random(0)
    tried, silent = 0, []
    for sentence in sentences:
        stated = {found.concept: found.presence for found in extract_findings(sentence)}
        denied = {concept for concept, presence in stated.items() if presence == "absent"}
        for cue in re.finditer(r"\b(?:no|not|without|negative|absent)\b", sentence, re.IGNORECASE) if denied else ():
            for _ in range(20):
                wrong = sentence[: cue.start()] + misspelt(cue[0], draws) + sentence[cue.end() :]
                reading = read_findings(wrong)
                tried += 1
                if not reading.unread and any(
                    found.concept in denied and found.presence == "present" for found in reading.findings
                ):
                    silent.append(wrong)
    assert tried > 500
    assert len(silent) <= 0.02 * tried, silent


def misspelt(word: str, draws: random.Random) -> str:
    while True:
        i, letter = draws.randrange(len(word)), draws.choice(ascii_lowercase)
        start, end = word[:i], word[i + 1 :]
        exchanged = start + end[:1] + word[i] + end[1:]
        wrong = draws.choice([start + end, start + letter + end, start + letter + word[i:], exchanged])
        if wrong.lower() != word.lower():
            return wrong
