"""The rule judge: agreement with radiologists, and properties for any reports."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from rrg_rewards.data.phantom.studies import phantom_studies
from rrg_rewards.findings import extract_findings, get_engine
from rrg_rewards.functional import CrimsonEvaluation, crimson_score
from rrg_rewards.judges import ReportPair, RuleJudge
from rrg_rewards.judges.tasks.crimson import CrimsonTask

JUDGE = RuleJudge()


def score(reference, candidate, **context):
    pair = ReportPair(reference, candidate, tuple((name, text) for name, text in context.items() if text))
    return float(crimson_score(JUDGE.evaluation(pair)))


def test_normal_reports():
    normal = "The heart is normal in size. Lungs are clear. No pleural effusion or pneumothorax."
    assert score(normal, normal) == score(normal, "No acute cardiopulmonary abnormality.") == 1
    assert score("Large right pneumothorax.", normal) == 0
    assert score(normal, "Large right pneumothorax.") == -0.5


def test_evaluations_are_consistent():
    evaluation = JUDGE.evaluation(
        ReportPair("Left effusion. Right effusion. Emphysema.", "Bilateral effusions. Nodule.")
    )
    assert evaluation.matched_findings == (("R1", "P1"), ("R2", "P1"))
    assert (evaluation.false_findings, evaluation.missing_findings) == (("P2",), ("R3",))
    assert CrimsonEvaluation.from_dict(json.loads(json.dumps(evaluation.to_dict()))) == evaluation


def test_only_its_task():
    class Other(CrimsonTask):
        name = "other"

    with pytest.raises(ValueError, match="RuleJudge has rules for the task 'crimson' only, got 'other'"):
        JUDGE.evaluate_now(Other(), [])


def test_judge_pickles_small_and_says_what_it_is():
    data = pickle.dumps(JUDGE)
    assert len(data) < 500
    assert pickle.loads(data).signature == JUDGE.signature
    assert get_engine("chest").lexicon.digest in JUDGE.signature


def rank_holds(scores, ranking):
    """Whether scores agree with ``C1 > C2``, or with ``C1 = C2`` to 0.01."""
    first, relation, second = ranking.split()
    difference = scores[first] - scores[second]
    return difference > 0.01 if relation == ">" else abs(difference) <= 0.01


def test_radiologists_rankings(shared_data):
    cases = json.loads((shared_data / "radjudge" / "cases.json").read_text())
    passed = 0
    for case in cases:
        scores = {
            name: score(case["ground_truth"], candidate["text"], **candidate.get("context", {}))
            for name, candidate in case["candidates"].items()
        }
        expected = case["expected_ranking"]
        rankings = [expected] if isinstance(expected, str) else expected
        passed += all(rank_holds(scores, ranking) for ranking in rankings)
    assert passed >= 0.9 * len(cases)


def test_radiologists_preferences(shared_data):
    scores, ratings = [], []
    for case in json.loads((shared_data / "radpref" / "pairs.json").read_text()):
        context = {"age": case["PatientAge"], "indication": case["Indication"]}
        first, second = (score(case["ground_truth_report"], case[f"{name}_report"], **context) for name in ("C1", "C2"))
        scores.append(first - second)
        ratings.append(sum(r["C1"]["rating"] - r["C2"]["rating"] for r in case["radiologists"]))
    assert kendalltau(scores, ratings).statistic >= 0.62


@pytest.mark.parametrize("style", ["full", "compact"])
def test_findings_of_phantom_studies(style):
    labels = get_engine("chest").lexicon.labels
    names = {concept: label for label, concepts in labels.items() for concept in concepts}
    found = claimed = both = 0
    for study in phantom_studies(200, seed=11, style=style):
        true = {finding.concept for finding in study.findings if finding.presence == "present" and finding.label}
        read = {
            names[finding.concept]
            for finding in extract_findings(study.findings_text)
            if finding.presence == "present" and finding.concept in names
        }
        found, claimed, both = found + len(read), claimed + len(true), both + len(read & true)
    assert 2 * both / (found + claimed) >= 0.98


@pytest.mark.parametrize(("attribute", "own"), [("side", "laterality"), ("lobe", "location"), ("size_mm", "size_mm")])
def test_attributes_of_phantom_studies(attribute, own):
    labels = get_engine("chest").lexicon.labels
    said = read = 0
    for study in phantom_studies(200, seed=12):
        mentions = extract_findings(study.findings_text)
        for finding in study.findings:
            value = getattr(finding, attribute)
            if value is None or finding.presence != "present" or not finding.label:
                continue
            named = [getattr(mention, own) for mention in mentions if mention.concept in labels[finding.label]]
            said += 1
            read += any(value in stated if isinstance(stated, tuple) else value == stated for stated in named)
    assert said > 100
    assert read / said >= 0.93


REPORTS = st.lists(
    st.sampled_from(
        ["Left effusion.", "Cardiomegaly.", "No nodule.", "Pneumonia in the right lower lobe.", "Scoliosis."]
    ),
    max_size=5,
).map(" ".join)


@given(REPORTS, REPORTS)
def test_inventions_never_help(reference, candidate):
    assert score(reference, f"{candidate} Tension pneumothorax.") <= score(reference, candidate)


@given(REPORTS)
def test_saying_it_twice_changes_nothing(reference):
    assert score(reference, f"{reference} {reference}") == score(reference, reference)
