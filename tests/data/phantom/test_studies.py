"""The phantom corpus: determinism, population, and agreement of text, findings and labels."""

import pickle
import re

import numpy as np
import pytest

from rrg_rewards.data import PhantomFinding, PhantomStudy, phantom_rows, phantom_studies, phantom_vocabulary
from rrg_rewards.data.phantom.studies import load_population
from rrg_rewards.data.phantom.wording import STYLES, load_wording
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.schemas import CT_RATE
from rrg_rewards.utilities.yaml_files import package_yaml

BOTH_SIDES = {"bilateral", "both", "bilaterally"}


@pytest.fixture(scope="module", params=STYLES)
def style(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def studies(style: str) -> list[PhantomStudy]:
    return phantom_studies(3000, seed=1, style=style)


@pytest.fixture(scope="module")
def label_rows() -> np.ndarray:
    return np.array([study.labels for study in phantom_studies(3000, seed=1, style="compact")])


def positive_names(study: PhantomStudy) -> set[str]:
    return {name for name, label in zip(CT_RATE.labels, study.labels, strict=True) if label}


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=\.) ", text)


class TestPhantomStudiesDeterminism:
    def test_same_arguments_give_the_same_corpus(self, studies, style):
        assert phantom_studies(200, seed=1, style=style) == studies[:200]

    def test_longer_corpus_begins_with_the_shorter(self, style):
        assert phantom_studies(10, seed=0, style=style) == phantom_studies(120, seed=0, style=style)[:10]

    def test_seeds_differ(self, studies, style):
        other = phantom_studies(200, seed=2, style=style)
        same = sum(a.report == b.report for a, b in zip(studies[:200], other, strict=True))
        assert same < 10

    def test_styles_describe_the_same_patients(self):
        full, compact = (phantom_studies(100, seed=5, style=style) for style in ("full", "compact"))
        assert [(s.labels, s.context) for s in full] == [(s.labels, s.context) for s in compact]
        assert [s.report for s in full] != [s.report for s in compact]

    def test_ids_are_unique(self, studies):
        assert len({study.study_id for study in studies}) == len(studies)

    def test_known_study_stays_what_it_was(self):
        # A literal: whoever changes wording or draws changes every corpus made from a seed, and should know.
        study = phantom_studies(2, seed=0, style="compact")[1]
        assert study.impression_text == "Nodule of 8 mm in the right lower lobe. Moderate emphysema."
        assert study.context.age == 71


class TestPhantomPopulation:
    def test_prevalences_are_the_stated_ones(self, studies):
        labels = np.array([study.labels for study in studies])
        prevalence = load_population().prevalence
        tolerance = 4 * np.sqrt(prevalence * (1 - prevalence) / len(studies))
        assert (np.abs(labels.mean(axis=0) - prevalence) < tolerance).all()

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ("Arterial wall calcification", "Coronary artery wall calcification"),
            ("Pleural effusion", "Atelectasis"),
            ("Consolidation", "Lung opacity"),
            ("Emphysema", "Bronchiectasis"),
            ("Bronchiectasis", "Peribronchial thickening"),
            ("Cardiomegaly", "Pleural effusion"),
            ("Cardiomegaly", "Pericardial effusion"),
        ],
    )
    def test_related_labels_come_together(self, label_rows, first, second):
        columns = label_rows[:, [CT_RATE.labels.index(first), CT_RATE.labels.index(second)]]
        correlation = np.corrcoef(columns.T)[0, 1]
        # The standard error of a correlation near 0 is 1 / sqrt(3000), below 0.02.
        assert correlation > 0.08

    def test_unrelated_labels_do_not(self, label_rows):
        first, second = CT_RATE.labels.index("Hiatal hernia"), CT_RATE.labels.index("Consolidation")
        assert abs(np.corrcoef(label_rows[:, first], label_rows[:, second])[0, 1]) < 0.08

    def test_age_rises_with_calcification(self, studies):
        calcified = [study.context.age for study in studies if study.labels[1]]
        others = [study.context.age for study in studies if not study.labels[1]]
        assert np.mean(calcified) > np.mean(others) + 5
        assert min(calcified + others) >= 18
        assert max(calcified + others) <= 90

    def test_context_does_not_tell_a_label(self, studies):
        names = {label.lower() for label in CT_RATE.labels} | {"effusion", "nodule", "emphysema", "opacity"}
        assert not any(name in study.context.indication for study in studies for name in names)
        assert {study.context.sex for study in studies} == {"female", "male"}

    def test_labels_are_in_order_and_their_squared_loadings_sum_to_less_than_1(self):
        labels = package_yaml("rrg_rewards.data.phantom", "population")["labels"]
        assert tuple(labels) == CT_RATE.labels
        assert all(sum(loading**2 for loading in label["loadings"].values()) < 1 for label in labels.values())


class TestPhantomStudy:
    def test_labels_are_the_findings_that_are_present(self, studies):
        for study in studies:
            stated = [finding for finding in study.findings if finding.label]
            assert {f.concept for f in stated if f.presence == "present"} == positive_names(study)
            assert {f.presence for f in stated} <= {"present", "absent"}
            assert positive_names(study).isdisjoint(f.concept for f in stated if f.presence == "absent")

    def test_no_label_is_stated_twice(self, studies):
        for study in studies:
            labels = [finding.label for finding in study.findings if finding.label]
            assert len(labels) == len(set(labels))

    def test_attributes_are_in_one_sentence_of_the_findings(self, studies, style):
        changes = load_wording(style).changes
        for study in studies:
            written = [sentence.lower() for sentence in sentences(study.findings_text)]
            for finding in study.findings:
                assert any(self.states(sentence, finding, changes) for sentence in written), (finding, written)

    @staticmethod
    def states(sentence: str, finding: PhantomFinding, changes: dict[str, list[str]]) -> bool:
        words = set(re.findall(r"\w+", sentence))
        return (
            (
                finding.side is None
                or finding.side in words
                or (finding.side == "bilateral" and bool(words & BOTH_SIDES))
            )
            and (finding.lobe is None or finding.lobe in words)
            and (finding.kind is None or finding.kind in sentence)
            and (finding.severity is None or finding.severity in words)
            and (finding.size_mm is None or f"{finding.size_mm} mm" in sentence)
            and (finding.change is None or any(text.lower() in sentence for text in changes[finding.change]))
        )

    def test_changes_need_an_earlier_scan(self, studies):
        assert not any(finding.change for study in studies if not study.context.prior for finding in study.findings)

    def test_attributes_lie_in_their_ranges(self, studies):
        stated = [finding for study in studies for finding in study.findings]
        assert {finding.side for finding in stated} == {None, "left", "right", "bilateral"}
        assert {finding.lobe for finding in stated} == {None, "upper", "middle", "lower"}
        assert all(2 <= finding.size_mm <= 60 for finding in stated if finding.size_mm is not None)
        assert all(f.size_mm > 10 for f in stated if f.concept == "Lymphadenopathy" and f.size_mm is not None)
        assert not any((f.side, f.lobe) in {("left", "middle"), ("bilateral", "middle")} for f in stated)

    def test_impression_has_no_size_that_the_findings_lack(self, studies):
        for study in studies:
            sizes = set(re.findall(r"(\d+) mm", study.findings_text))
            assert set(re.findall(r"(\d+) mm", study.impression_text)) <= sizes

    def test_impression_is_normal_exactly_without_positive_labels(self, studies, style):
        wording = load_wording(style)
        normal = {text for template in wording.normal_impressions for text in template.variants({})}
        assert all((study.impression_text in normal) == (sum(study.labels) == 0) for study in studies)

    def test_texts_are_clean(self, studies):
        for study in studies:
            for text in (study.findings_text, study.impression_text):
                assert text.endswith(".")
                assert not re.search(r"[{}<>]|  | [.,;]|\.\.|\n", text)
                assert all(sentence[0].isupper() or sentence[0].isdigit() for sentence in sentences(text))

    def test_report_holds_both_sections(self, studies):
        study = studies[0]
        assert study.report == f"Findings: {study.findings_text}\nImpression: {study.impression_text}"

    def test_full_style_has_what_compact_leaves_out(self):
        full, compact = (
            [finding for study in phantom_studies(500, style=style) for finding in study.findings]
            for style in ("full", "compact")
        )
        assert any(finding.presence == "uncertain" for finding in full)
        assert any(finding.label is None and finding.presence == "present" for finding in full)
        assert {finding.change for finding in full} == {None, "new", "stable", "increased", "decreased"}
        assert all(finding.label for finding in compact)

    def test_compact_reports_are_short(self):
        studies = phantom_studies(2000, seed=4, style="compact")
        findings = np.array([len(study.findings_text.split()) for study in studies])
        impressions = np.array([len(study.impression_text.split()) for study in studies])
        assert 30 < np.median(findings) < 60
        assert findings.max() < 130
        assert np.median(impressions) < 30
        assert impressions.max() < 75

    def test_studies_pickle(self, studies):
        assert pickle.loads(pickle.dumps(studies[:5])) == studies[:5]


class TestPhantomRows:
    def test_row_is_plain_data_of_the_study(self, style):
        study = phantom_studies(1, seed=9, style=style)[0]
        row = phantom_rows(1, seed=9, style=style)[0]
        assert row["labels"] == list(study.labels)
        assert (row["findings"], row["impression"]) == (study.findings_text, study.impression_text)
        assert {type(value) for value in row.values()} == {str, list, int, bool}

    def test_no_rows(self):
        assert phantom_rows(0) == []


class TestPhantomVocabulary:
    def test_holds_every_token_of_every_report(self, studies, style):
        tokens = {token for study in studies for token in re.findall(r"\w+|[^\w\s]+", study.report)}
        assert tokens <= set(phantom_vocabulary(style))

    def test_compact_is_small_and_has_no_word_in_vain(self):
        tokens = {t for s in phantom_studies(3000, style="compact") for t in re.findall(r"\w+|[^\w\s]+", s.report)}
        vocabulary = phantom_vocabulary("compact")
        assert len(vocabulary) < 150
        assert list(vocabulary) == sorted(set(vocabulary))
        # Words that need a rare sentence to come first in its section may be missing from a sample.
        assert len(set(vocabulary) - tokens) <= 5


def test_a_share_of_patients_without_findings_leaves_the_others_unchanged() -> None:
    plain, mixed = (phantom_studies(600, seed=1, style="compact", normal=normal) for normal in (0.0, 0.3))
    changed = [new for old, new in zip(plain, mixed, strict=True) if old != new]
    assert not any(any(study.labels) for study in changed)
    assert 0.25 < len(changed) / len(plain) < 0.35


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: phantom_studies(-1), "n must"),
        (lambda: phantom_studies(1, seed=-3), "seed must"),
        (lambda: phantom_studies(1, normal=1.5), "normal must"),
        (lambda: phantom_rows(1, style="compct"), "style 'compct'; did you mean 'compact'"),
        (lambda: phantom_vocabulary("compct"), "style 'compct'; did you mean 'compact'"),
    ],
)
def test_wrong_arguments_of_phantom_studies_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("text", ["findings_text", "impression_text", "report"])
def test_phantom_labels_are_those_that_the_rule_labeler_reads(studies, text):
    read = RuleLabeler("ct_rate")([getattr(study, text) for study in studies]).int().tolist()
    wrong = [
        (label, getattr(study, text))
        for study, row in zip(studies, read, strict=True)
        for label, expected, got in zip(CT_RATE.labels, study.labels, row, strict=True)
        if expected != got
    ]
    assert wrong == []
