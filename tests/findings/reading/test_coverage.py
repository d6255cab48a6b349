"""The words of reports that the reader does not know, and statements that it does not understand."""

import csv
import itertools
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.findings import abnormal_findings, extract_findings, get_engine, read_findings
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.coverage import Coverage, CoverageReader, UnreadSpan, _forms
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.findings.reading.negation import PRESENT
from rrg_rewards.findings.reading.open_findings import open_statement_reader
from rrg_rewards.findings.reading.plain_text import plain_text
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)

# Whole answers that deny what a colon follows.
DENIALS = ("none", "no", "absent", "not seen", "none seen", "not present", "negative", "nil", "no evidence")

# Words of no language.
INVENTED = ("quorblid", "vextramal", "plondrastic", "trellubation")


def unread(report):
    return [span.text for span in read_findings(report).unread]


@pytest.mark.parametrize("word", INVENTED)
@pytest.mark.parametrize("report", TABLES["unknown_words"])
def test_read_findings_leaves_unknown_words_unread(report, word):
    assert unread(report.format(word)) == [word]


@pytest.mark.parametrize("word", ["sternophagia", "hepatoquexis", "bronchotrelliform", "cardioplexoid"])
def test_read_findings_does_not_take_a_long_word_for_a_form_of_its_beginning(word):
    assert unread(f"The heart and {word} are normal in size, no effusion.") == []
    assert unread(f"Clear lungs with {word} on the left.") == [word]


@pytest.mark.parametrize("word", ["effusi0n", "pneum0thorax", "nodu1es"])
def test_read_findings_does_not_take_words_with_digits_for_measures(word):
    assert unread(f"Small {word} on the left.") == [word]


@pytest.mark.parametrize("report", TABLES["read_words"])
def test_read_findings_reads_denied_words_and_names_of_equipment(report):
    assert unread(report) == []


@pytest.mark.parametrize("statement", TABLES["not_understood"])
def test_read_findings_leaves_statements_that_it_does_not_understand_unread(statement):
    # Articles at the ends are no content.
    assert re.sub(r"^(the|a) ", "", statement.lower()) in [text.lower() for text in unread(f"{statement}.")]


@pytest.mark.parametrize(
    "report",
    [
        "The heart is not normal in size.",
        "The costophrenic angles are not sharp.",
        "The mediastinal contour is not normal.",
        "The lungs are not clear.",
    ],
)
def test_read_findings_does_not_read_a_denied_normal_word_as_normal(report):
    assert unread(report) or abnormal_findings(report, read_findings(report).findings)


@pytest.mark.parametrize(("report", "expected"), TABLES["descriptions"])
def test_read_findings_reads_descriptions_beside_findings_only(report, expected):
    assert unread(report) == list(expected)


@pytest.mark.parametrize("report", TABLES["normal"])
def test_read_findings_reads_normal_and_technical_statements_and_places(report):
    assert unread(report) == []


@pytest.mark.parametrize(
    ("report", "least"),
    [
        ("Kleiner Erguss rechts, Herz vergrößert, Lunge sonst unauffällig.", 0.6),
        ("Petit épanchement à droite avec cœur augmenté de volume.", 0.6),
        ("\u53f3\u4fa7\u5c11\u91cf\u80f8\u8154\u79ef\u6db2\uff0c\u5fc3\u5f71\u589e\u5927\u3002", 1.0),
        ("Smlal rgiht pluearl efufsion wiht baesl ateletcasis.", 0.8),
        ("Severe \u0436mphysema, right \u0436pper lobe, plevra \u0436ormal.", 0.5),
    ],
)
def test_read_findings_leaves_other_languages_and_letters_unread(report, least):
    reading = read_findings(report)
    assert reading.unread_share >= least
    assert reading.num_words >= 4


def test_read_findings_returns_the_offsets_of_unread_words():
    report = "No effusion.\n\nThe aorta is plondric;  QUORBLID vextramal of the\n4th rib, drub\u00edn sign."
    reading = read_findings(report)
    assert [span.text for span in reading.unread] == ["plondric", "QUORBLID vextramal", "drubin"]
    assert [report[start:end] for start, end, _ in reading.unread] == ["plondric", "QUORBLID vextramal", "drub\u00edn"]
    # no, effusion; aorta, plondric; quorblid, vextramal, rib, drubin, sign
    assert (reading.num_words, reading.num_unread, reading.unread_share) == (9, 4, 4 / 9)
    assert reading.findings == tuple(extract_findings(report, open_findings=True))


def test_read_findings_counts_each_chinese_character_as_a_word():
    reading = read_findings("\u5fc3\u5f71\u589e\u5927\uff0cnodule")
    assert (reading.num_words, reading.num_unread) == (5, 4)


def test_read_findings_counts_an_open_finding_as_read_only_if_it_reads_them():
    report = "The portal vein is widened."
    assert read_findings(report).unread == ()
    assert [span.text for span in read_findings(report, open_findings=False).unread] == ["portal vein is widened"]


def test_read_findings_rejects_other_types():
    with pytest.raises(TypeError, match="report must"):
        read_findings(None)


def test_coverage_without_words_has_a_share_of_zero():
    assert Coverage().unread_share == 0
    assert Coverage((UnreadSpan(0, 3, "foo"),), 4, 1).unread_share == 0.25


def test_coverage_reader_reads_the_same_words_in_any_order_of_reports():
    reports = [
        "Coarctation.",
        "No coarctation.",
        "Coarctation and effusion.",
        "COARCTATION",
        "The bronchi are crowded.",
    ]
    expected = {report: read_findings(report) for report in reports}
    for order in itertools.permutations(reports):
        engine = get_engine("chest", open_findings=True)
        assert {report: engine.read(report) for report in order} == expected


@given(st.text(max_size=80))
def test_coverage_reader_counts_are_consistent_for_any_text(text):
    reading = read_findings(text)
    assert 0 <= reading.num_unread <= reading.num_words
    assert (reading.num_unread > 0) == bool(reading.unread)
    ends = [0, *(edge for span in reading.unread for edge in span[:2])]
    assert ends == sorted(ends)
    if plain_text(text).text == text:
        assert all(text[start:end].split() == words.split() for start, end, words in reading.unread)


def test_coverage_reader_knows_words_in_british_spelling():
    assert unread("The centre of the oesophagus and the haemorrhagic tumour are unchanged.") == []


def test_plain_words_name_no_finding():
    """A word that names a concept or an abnormality by itself cannot be plain, because then it would count as read."""
    knowledge = load_knowledge("plain_words")
    lexicon, reader = load_lexicon("chest"), open_statement_reader()
    wrong = [
        word
        for section, words in knowledge.items()
        for word in words.split()
        for *_, rule in lexicon.rules.matches([word], [lexicon.vocabulary[word]], lexicon.vocabulary[word])
        if not (rule.rest or rule.conditional_on or rule.above)
    ]
    # The accessory fissure and the wedge shape are no findings by themselves.
    assert set(wrong) <= {"accessory", "wedge"}, wrong
    silent = (
        "positions",
        "regions",
        "anatomy",
        "measures",
        "examinations",
        "people",
        "done",
        "remarks",
        "normal",
        "fitting",
    )
    heads = [
        word
        for section in silent
        for word in knowledge[section].split()
        if reader.roles([word], ()).get(0) in ("heads", "stated")
    ]
    # The spinal cord, the paratracheal stripe, a department, a spot view, and vessels that opacify.
    assert {"cord", "stripe", "surgery", "spot"} <= set(heads)
    assert set(heads) <= {
        *("cord", "stripe", "adipose", "cavity", "zygoma", "surgery", "spot"),
        *("opacify", "opacifies", "opacified", "nonvisualized"),
    }


@pytest.mark.parametrize(
    ("word", "section", "forms"),
    [
        ("show", "verbs", {"show", "shows", "showed", "showing"}),
        ("agree", "verbs", {"agree", "agrees", "agreed", "agreeing"}),
        ("pass", "verbs", {"pass", "passes", "passed", "passing"}),
        ("survey", "verbs", {"survey", "surveys", "surveyed", "surveying"}),
        ("stop", "doubling", {"stop", "stops", "stopped", "stopping"}),
        ("artery", "anatomy", {"artery", "arteries"}),
        ("ap", "examinations", {"ap"}),
        ("clearly", "adverbs", {"clearly"}),
    ],
)
def test_forms_are_those_of_regular_words(word, section, forms):
    assert {form for form, _ in _forms(word, section)} == forms


def test_coverage_reader_needs_no_findings_of_the_sentence_to_deny_a_word():
    reader = CoverageReader(load_lexicon("chest"))
    assert reader.read(["no", "quorblid", "is", "seen"], [])[2] == ()
    assert reader.read(["quorblid", "of", "the", "lung"], [])[2] == ((0, 1),)
    # A word with the ending of a disease names the finding.
    assert reader.read(["quorbloma", "of", "the", "lung"], [(PRESENT, 0, 1)])[2] == ()


def invented_words(number, seed=0):
    """Words of no language, with beginnings and endings of medical words and without."""
    draw = random.Random(seed)
    beginnings = ("", "cardio", "pneumo", "hepato", "broncho", "mediastin", "sterno", "fibro", "osteo", "aorto")
    endings = ("", "osis", "itis", "oma", "exia", "rrhea", "oid", "ary", "opathy", "une")
    syllables = ("tre", "quo", "zel", "blim", "vosk", "gra", "plu", "dren", "fex", "nulp")
    return [
        draw.choice(beginnings) + "".join(draw.choices(syllables, k=2)) + draw.choice(endings) for _ in range(number)
    ]


@pytest.mark.parametrize("position", TABLES["positions"])
def test_read_findings_reads_no_statement_with_an_invented_word_as_normal(position):
    for word in invented_words(15, seed=len(position)):
        report = position.format(word)
        reading = read_findings(report)
        assert reading.unread or abnormal_findings(report, reading.findings), report


@pytest.mark.parametrize(
    "report",
    [
        "No hay lesiones focales. Aorta normal.",
        "Poumons clairs, silhouette cardiaque normale, absence de condensation des bases.",
        "Lungen frei, Mediastinum normal, kein Erguss.",
        "Cuore normale, nessuna lesione nel lobo inferiore.",
        "Consolidacao no lobo inferior esquerdo, aorta normal.",
        "Kalp normal, plevral efuzyon yok.",
    ],
)
def test_read_findings_reads_no_sentence_with_a_word_of_another_language(report):
    assert read_findings(report).unread_share > 0.6


@pytest.mark.parametrize("report", ["pneu\u200bmothorax", "Large ef\u200dfusion.", "Con\u00adsolidation left."])
def test_read_findings_reads_words_with_invisible_characters(report):
    assert not unread(report)
    assert read_findings(report).findings


def test_read_findings_reads_real_reports(shared_data):
    with (shared_data / "reg2rg_ct_rate/pairs.csv").open(newline="", encoding="utf-8") as file:
        reports = [row["reference"] for row in itertools.islice(csv.DictReader(file), 150)]
    readings = list(map(read_findings, reports))
    assert sum(one.num_unread for one in readings) <= 0.01 * sum(one.num_words for one in readings)
    normal = [one for text, one in zip(reports, readings, strict=True) if not abnormal_findings(text, one.findings)]
    assert sum(bool(one.unread) for one in normal) <= 0.1 * len(normal)


@pytest.mark.parametrize("answer", DENIALS)
def test_read_findings_reads_an_answer_that_denies_what_a_colon_follows(answer):
    for name in ("Pleural effusion", "Nodules", INVENTED[0]):
        assert unread(f"{name}: {answer}.") == []
        assert unread(f"{name}: {answer.capitalize()}\nCardiomegaly: {answer}, emphysema: {answer}") == []
    (finding,) = extract_findings(f"Pleural effusion: {answer}.")
    assert (finding.concept, finding.presence) == ("pleural_effusion", "absent")


def test_read_findings_reads_no_answer_in_a_denial_of_something_else():
    assert unread("Bowed trachea: no effusion.") == ["Bowed trachea"]


def test_read_findings_of_a_normal_template_leaves_no_word_unread():
    report = "Lungs: Clear. Nodules: None. Pleural effusion: None. Heart size: Normal. Lymph nodes: Normal."
    reading = read_findings(report)
    assert reading.unread == ()
    assert {finding.presence for finding in reading.findings} == {"absent"}
