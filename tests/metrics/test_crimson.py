"""CRIMSON as a metric: scores, sums, context, failures, several runs, copies; also `judged`, its base."""

import asyncio
import json
import math
import pickle
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from answering_judge import AnsweringJudge
from judge_answers import finding, make_answer
from scripted_judge import ScriptedJudge, evaluate_words

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.functional import CrimsonEvaluation, CrimsonFinding, crimson_score, crimson_training_score
from rrg_rewards.judges import OpenAIJudge, RuleJudge
from rrg_rewards.judges.base import Judge, JudgeFailure, JudgeTask, ReportPair
from rrg_rewards.metrics import CRIMSON, CrimsonScores
from rrg_rewards.metrics.judged import JudgeWarning
from rrg_rewards.metrics.unread import UnreadWarning
from rrg_rewards.rewards import make_reward
from rrg_rewards.utilities.settings import SettingError

PREDS = ["left effusion", "Normal.", "edema, nodule", "right effusion", "", "effusion scar"]
TARGET = ["left effusion", "Normal.", "nodule", "left effusion. pneumothorax", "edema", "effusion"]
# Correct; correct; 0.25 correct and 0.5 invented; half of 1.5 correct; empty; correct with an invented benign finding.
SCORES = [1.0, 1.0, -0.2, 0.25 / 1.5, 0.0, 1.0]

TOTALS = {
    "credit": 0.5 + 0.25 + 0.25 + 0.5,
    "reference_weight": 0.5 + 0.25 + 1.5 + 0.5 + 0.5,
    "weighted_false": 0.5,
    "weighted_missing": 1.5,
    "weighted_attribute": 0.5,
    "reference_findings": 6,
    "predicted_findings": 6,
    "matched_findings": 4,
    "false_findings": 2,
    "missing_findings": 2,
    "attribute_errors": 1,
    "errors": 5,
    "weighted_errors": 2.5,
    "location_errors": 1,
    **{
        f"{kind}_errors": 0
        for kind in (
            "severity",
            "descriptor",
            "measurement",
            "certainty",
            "unspecific",
            "overinterpretation",
            "temporal",
        )
    },
}


def metric(**options: Any) -> CRIMSON:
    return CRIMSON(ScriptedJudge(**options))


def failing(**kinds: Any) -> CRIMSON:
    return metric(fail_on=kinds or {"edema": "deadline", "right": "malformed"})


def total(counts: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: value.item() for name, value in counts.items()}


def test_crimson_scores_are_those_of_the_evaluations() -> None:
    scores = metric().score(PREDS, TARGET)
    assert isinstance(scores, CrimsonScores)
    assert scores.value.dtype == torch.float64
    assert scores.value.tolist() == pytest.approx(SCORES)
    expected = [evaluate_words(ReportPair(t, p)) for p, t in zip(PREDS, TARGET, strict=True)]
    assert scores.evaluations == tuple(expected)
    assert scores.value.tolist() == crimson_score(expected).tolist()
    assert {name: column.sum().item() for name, column in scores.details.items()} == TOTALS


def test_crimson_the_corpus_value_is_the_mean() -> None:
    crimson = metric()
    for rows in (slice(0, 2), slice(2, 6)):
        crimson.update(PREDS[rows], TARGET[rows])
    assert crimson.compute().dtype == torch.float64
    assert crimson.compute().item() == pytest.approx(sum(SCORES) / 6)
    counts = total(crimson.error_counts())
    failed = {name: value for name, value in counts.items() if name.startswith("failed_")}
    assert set(failed.values()) == {0}
    assert counts == {"scored": 6, "unscorable": 0, **failed, **TOTALS}
    assert total(crimson.statistics()) == {name: value / 6 for name, value in TOTALS.items()}
    scores = crimson.score(PREDS, TARGET)
    assert scores.aggregate(*scores.sufficient_statistics).item() == pytest.approx(crimson.compute().item())


def test_crimson_explanations_are_in_words() -> None:
    with pytest.warns(UserWarning, match="the judge failed"):
        explanations = failing(edema="deadline").score(PREDS, TARGET).explanations
    assert explanations == {
        "missed": ["", "", "", "pneumothorax (urgent)", "edema (actionable not urgent)", ""],
        "invented": ["", "", "", "", "", "scar (benign expected)"],
        "misdescribed": ["", "", "", "right effusion for left effusion (significant location)", "", ""],
        "failure": ["", "", "deadline: told to", "", "", ""],
    }


UNREAD_TARGET = ["Quorblid of the aorta.", "Quorblid. Effusion.", "Effusion.", "Normal heart.", None]
UNREAD_PREDS = ["Normal aorta.", "Effusion.", "Effusion, vextramal.", "Normal heart.", "Effusion."]


def test_crimson_by_rules_has_no_score_for_an_unread_reference(monkeypatch) -> None:
    monkeypatch.setattr("rrg_rewards.metrics.unread._Warned.has_warned", False)
    crimson = CRIMSON()
    with pytest.warns(UserWarning, match=r"1 of 2 words of target\[0\], so its pair has no score") as told:
        scores = crimson.score(UNREAD_PREDS, UNREAD_TARGET)
    assert [warning.category for warning in told] == [UnreadWarning]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crimson.score(UNREAD_PREDS, UNREAD_TARGET)
    assert scores.scored.tolist() == [False, True, True, True, False]
    assert scores.value[scores.scored].tolist() == [1, 1, 1]
    shares = {name: scores.details[name] for name in ("unread_reference", "unread_candidate")}
    expected = {"unread_reference": [0.5, 0.5, 0, 0, torch.nan], "unread_candidate": [0, 0, 0.5, 0, torch.nan]}
    for name, values in expected.items():
        assert shares[name].dtype == torch.float64
        torch.testing.assert_close(shares[name], torch.tensor(values).double(), equal_nan=True)
    assert scores.details["credit"][0].isnan()
    assert scores.explanations["unread"] == [
        "reference: Quorblid", "reference: Quorblid", "candidate: vextramal", "", "",
    ]  # fmt: skip
    assert scores.explanations["failure"][0].startswith("unread: 1 of 2 words of the reference")
    crimson.add_scores(scores)
    counts = crimson.error_counts()
    assert (counts["scored"], counts["unscorable"], counts["failed_unread"]) == (3, 2, 1)
    # Over the four pairs that have both reports.
    assert crimson.statistics()["unread_reference"] == 0.25
    assert crimson.statistics()["unread_candidate"] == 0.125
    assert scores.take(torch.tensor([1])).explanations["unread"] == ["reference: Quorblid"]


def test_crimson_by_rules_can_score_an_unread_reference_as_normal() -> None:
    crimson = CRIMSON(judge={"name": "rules", "unread": "normal"})
    scores = crimson.score(UNREAD_PREDS, UNREAD_TARGET)
    assert scores.value[:4].tolist() == [1, 1, 1, 1]
    assert scores.details["unread_reference"][0] == 0.5
    assert "|unread:normal|" in crimson.signature


def test_crimson_warns_of_a_report_in_another_language_in_any_batch(monkeypatch) -> None:
    monkeypatch.setattr("rrg_rewards.metrics.unread._Warned.has_warned", False)
    with pytest.warns(UserWarning, match=r"words of target\[1\].* They read reports in English") as told:
        CRIMSON().score([None, "Effusion."], ["Effusion.", "Kleiner Erguss rechts, Herz deutlich breiter."])
    assert [warning.category for warning in told] == [UnreadWarning]


def test_crimson_of_a_language_model_has_no_unread_words() -> None:
    scores = metric().score(PREDS, TARGET)
    assert "unread_reference" not in scores.details
    assert "unread" not in scores.explanations
    assert scores.coverages == (None,) * len(PREDS)


def test_crimson_failures_have_no_score_and_are_counted_and_told_once() -> None:
    crimson = failing()
    with pytest.warns(UserWarning, match=r"failed on 2 of 6 report pairs \(deadline 1, malformed 1\)") as told:
        crimson.update(PREDS, TARGET)
    assert len(told) == 1
    counts = crimson.error_counts()
    assert (counts["scored"], counts["unscorable"]) == (4, 2)
    assert (counts["failed_deadline"], counts["failed_malformed"], counts["failed_status"]) == (1, 1, 0)
    assert crimson.num_unscorable == 2
    assert crimson.compute().item() == pytest.approx((1 + 1 + 0 + 1) / 4)
    with pytest.warns(UserWarning, match="the judge failed"):
        scores = crimson.score(PREDS, TARGET)
    assert scores.scored.tolist() == [True, True, False, False, True, True]
    assert scores.results[2] == JudgeFailure("deadline", "told to")
    assert scores.evaluations[2] is None
    assert scores.details["credit"].isnan().tolist() == [False, False, True, True, False, False]
    assert scores.failures["malformed"].tolist() == [False, False, False, True, False, False]


def test_crimson_report_text_is_not_in_warnings() -> None:
    with pytest.warns(UserWarning, match="the judge failed") as told:
        failing(secret="status").score(["secret effusion"], ["secret edema"])
    assert not any("secret" in str(warning.message) for warning in told)


def test_crimson_where_every_pair_fails() -> None:
    crimson = metric(fail_on={"": "connection"})
    with pytest.warns(UserWarning, match="the judge failed"):
        scores = crimson.score(PREDS, TARGET)
    assert scores.value.isnan().all()
    crimson.add_scores(scores)
    assert crimson.compute().isnan()
    assert crimson.statistics()["credit"].isnan()
    assert crimson.error_counts()["failed_connection"] == 6


def test_crimson_unscorable_pairs_are_not_judged() -> None:
    crimson = metric()
    preds, target = [None, "edema", "edema", ""], ["edema", None, " ", "edema"]
    crimson.update(preds, target)
    assert crimson.judge.asked == [[ReportPair("edema", "")]]
    assert crimson.num_unscorable == 3
    assert crimson.compute() == 0
    assert crimson.num_failed.sum() == 0
    scores = crimson.score(preds, target)
    assert scores.results[:3] == (None, None, None)
    assert scores.explanations["failure"] == [""] * 4


@pytest.mark.parametrize("waits", [False, True])
def test_crimson_scoring_asynchronously_gives_the_same(waits: bool) -> None:
    crimson = metric(waits=waits)
    preds, target = [*PREDS, None], [*TARGET, "edema"]
    scores = asyncio.run(crimson.score_async(preds, target, age=[7] * 7))
    expected = crimson.score(preds, target, age=[7] * 7)
    assert repr(scores.value) == repr(expected.value)
    assert scores.results == expected.results
    assert scores.explanations == expected.explanations
    with pytest.raises(ValueError, match="same length, got 1 and 2"):
        asyncio.run(crimson.score_async(["a"], ["b", "c"]))


def test_crimson_scoring_inside_an_event_loop() -> None:
    async def notebook() -> list[float]:
        values: list[float] = metric(waits=True).score(PREDS, TARGET).value.tolist()
        return values

    assert asyncio.run(notebook()) == pytest.approx(SCORES)


def test_crimson_context_is_passed_on_as_text() -> None:
    crimson = metric()
    target = ["edema"] * 6
    crimson.score(
        [*target[:5], None],
        target,
        indication=["Cough.", "", None, " ", float("nan"), "not judged"],
        age=["066Y", 66, 66.0, 0.5, None, 3],
    )
    contexts = [pair.context for pair in crimson.judge.asked[0]]
    assert contexts == [
        (("age", "066Y"), ("indication", "Cough.")),
        (("age", "66"),),
        (("age", "66"),),
        (("age", "0.5"),),
        (),
    ]


def test_crimson_context_that_is_wrong() -> None:
    crimson = metric()
    with pytest.raises(TypeError, match="crimson takes no column gender, weight; it accepts age, sex, indication"):
        crimson.score(["a"], ["b"], gender=["F"], weight=[1])
    with pytest.raises(TypeError, match=r"age\[1\] must be a text, a number or None, got list"):
        crimson.score(["a", "b"], ["b", "a"], age=["1", [2]])
    with pytest.raises(TypeError, match=r"sex\[0\] must be a text, a number or None, got bool"):
        crimson.score(["a"], ["b"], sex=[True])
    assert crimson.judge.asked == []


def test_crimson_signature_names_judge_and_prompt() -> None:
    assert metric().signature.startswith("crimson|judge:{scripted}|version:")
    asked = CRIMSON(ScriptedJudge(waits=True))
    assert f"|judge:{{scripted}}|prompt:{asked.task.prompt_signature}|checks:strict|version:" in asked.signature
    assert "|prompt:own@" in CRIMSON(ScriptedJudge(waits=True), checks="published").signature
    assert "|checks:published|" in CRIMSON(ScriptedJudge(waits=True), checks="published").signature


def test_crimson_with_published_checks_scores_ids_that_no_finding_has() -> None:
    error = {"ref_id": "R1", "pred_id": "P9", "severity": "significant", "error_types": ["location"]}
    content = make_answer([finding("R1", "", "urgent")], matched="R1-P9", false="P7", missing="R8", attributes=[error])
    crimson = CRIMSON(AnsweringJudge(lambda _: json.dumps(content)), checks="published")
    scores = crimson.score(["Normal."], ["Mass."])
    assert scores.value.tolist() == pytest.approx([1 / 1.5])
    assert {name: scores.details[name].item() for name in ("false_findings", "missing_findings", "errors")} == {
        "false_findings": 1,
        "missing_findings": 1,
        "errors": 3,
    }
    assert scores.details["weighted_errors"].item() == 0.5
    explained = {name: column[0] for name, column in scores.explanations.items()}
    assert explained == {
        "missed": "R8 (in no list)",
        "invented": "P7 (in no list)",
        "misdescribed": "P9 for R1 (significant location)",
        "failure": "",
    }
    strict = CRIMSON(AnsweringJudge(lambda _: json.dumps(content)))
    with pytest.warns(JudgeWarning):
        assert strict.score(["Normal."], ["Mass."]).value.isnan().all()


def test_crimson_judges_by_name_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    from rrg_rewards.judges import registry

    monkeypatch.setitem(registry._JUDGES, "scripted", "scripted_judge:ScriptedJudge")
    assert CRIMSON("scripted").judge.is_immediate
    assert CRIMSON({"name": "scripted", "waits": True}).judge.waits
    with pytest.raises(ValueError, match="unknown judge 'script'; did you mean 'scripted'"):
        CRIMSON("script")
    with pytest.raises(TypeError, match="judge must be a name, a mapping or a judge, got int"):
        CRIMSON(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prompt: must be one of"):
        CRIMSON("scripted", prompt="mine")  # type: ignore[arg-type]


RULE_PREDS = ["Large right pneumothorax.", "Large left pneumothorax.", "No acute abnormality.", "Cardiomegaly.", None]
RULE_TARGET = ["Large right pneumothorax."] * 3 + ["No acute abnormality."] * 2


def test_crimson_the_rules_are_the_default_judge() -> None:
    crimson = CRIMSON()
    scores = crimson.score(RULE_PREDS, RULE_TARGET)
    exact, wrong_side, template, invented, _ = scores.value.tolist()
    assert exact == 1
    assert wrong_side == pytest.approx(1 / 1.5)
    assert template == 0
    assert -1 < invented < 0
    assert "left for right" in scores.explanations["misdescribed"][1]
    assert "pneumothorax" in scores.explanations["missed"][2]
    assert crimson.signature.startswith("crimson|judge:{rules|")
    assert len(pickle.dumps(crimson)) < 10_000
    assert pickle.loads(pickle.dumps(crimson)).signature == crimson.signature


@pytest.mark.parametrize("judge", ["rules", {"name": "rules"}, RuleJudge()])
def test_crimson_with_a_profile(judge: Any) -> None:
    crimson, reward = CRIMSON(judge, profile="ct"), make_reward("crimson", judge=judge, profile="ct")
    assert "|unread:unscorable|profile:ct|" in crimson.signature
    assert "profile" not in CRIMSON(judge).signature
    assert crimson.signature in reward.signature
    assert CRIMSON(pickle.loads(pickle.dumps(crimson.judge))).signature == crimson.signature
    markings = ["Increased lung markings."]
    weights = [metric.score([""], markings).details["reference_weight"].item() for metric in (crimson, CRIMSON(judge))]
    assert weights == [0.25, 0.5]


@pytest.mark.parametrize("judge", ["openai:model", "local:model", {"name": "openai", "model": "m"}, ScriptedJudge()])
def test_crimson_has_profiles_for_rules_only(judge: Any) -> None:
    with pytest.raises(SettingError, match="rules") as error:
        CRIMSON(judge, profile="ct")
    assert error.value.setting == "profile"


def test_crimson_the_rules_know_the_patient() -> None:
    preds, target = ["No abnormality."] * 2, ["Calcification of the aortic arch."] * 2
    assert CRIMSON().score(preds, target, age=["082Y", "025Y"]).value.tolist() == [1, 0]


def test_crimson_the_rules_score_every_real_pair(shared_data: Path) -> None:
    cases = json.loads((shared_data / "radpref" / "pairs.json").read_text())
    rows = [(case, case[f"{candidate}_report"]) for case in cases for candidate in ("C1", "C2")]
    context = {name: [case[key] for case, _ in rows] for name, key in (("age", "PatientAge"), ("sex", "PatientSex"))}
    crimson = CRIMSON()
    target = [case["ground_truth_report"] for case, _ in rows]
    scores = crimson.score([text for _, text in rows], target, **context)
    assert scores.scored.all()
    assert ((scores.value > -1) & (scores.value <= 1)).all()
    # A report is correct compared with itself; a template without findings scores 0 or 1.
    assert (crimson.score(target, target, **context).value == 1).all()
    assert set(crimson.score(["No acute abnormality."] * len(rows), target, **context).value.tolist()) == {0, 1}


MASS = CrimsonFinding("R1", "mass", "urgent")
FALSE = CrimsonFinding("P1", "scar", "urgent")
FAILED = JudgeFailure("malformed", "told to")
# CRIMSON 1, 0 and -A / (1 + A) = -0.5.
FOUND = CrimsonEvaluation((MASS,), (FALSE,), (("R1", "P1"),))
MISSED = CrimsonEvaluation((MASS,), missing_findings=("R1",))
WRONG = CrimsonEvaluation((MASS,), (FALSE,), (), ("P1",), ("R1",))


class Runs(Judge):
    """Returns the scripted results of each run.

    Args:
        results: Results of each run, for the candidates "0", "1", ...
        run: Number of the run.
    """

    signature = "runs"

    def __init__(self, results: Sequence[Sequence[Any]], run: int = 0) -> None:
        self.results, self.run = results, run

    def rerun(self, run: int) -> "Runs":
        return Runs(self.results, run)

    async def evaluate(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:
        return [self.results[self.run][int(item.candidate)] for item in items]


RESULTS = [
    (FOUND, FOUND, FAILED, FAILED),
    (MISSED, FOUND, WRONG, FAILED),
    (WRONG, FOUND, FAILED, FAILED),
]
RUN_PREDS, RUN_TARGET = ["0", "1", "2", "3", None], ["mass"] * 5


def score() -> Any:
    with pytest.warns(JudgeWarning, match="failed on 1 of 4 report pairs"):
        return CRIMSON(Runs(RESULTS), runs=3).score(RUN_PREDS, RUN_TARGET)


def test_crimson_scores_and_details_are_means_over_the_runs_that_did_not_fail() -> None:
    scores = score()
    # (1 + 0 - 0.5) / 3, and the standard deviation of 1, 0 and -0.5.
    mean = 0.5 / 3
    spread = math.sqrt(((1 - mean) ** 2 + mean**2 + (0.5 + mean) ** 2) / 2)
    assert scores.value[:3].tolist() == pytest.approx([mean, 1, -0.5])
    assert scores.value[3:].isnan().all()
    assert scores.details["spread"][:2].tolist() == pytest.approx([spread, 0])
    assert scores.details["spread"][2:].isnan().all()
    assert scores.details["failed_runs"][:3].tolist() == [0, 0, 2]
    # Errors of the runs: none, one missing, one missing and one false.
    assert scores.details["errors"][:3].tolist() == pytest.approx([1, 0, 2])
    assert scores.details["weighted_errors"][:3].tolist() == pytest.approx([1, 0, 2])
    assert scores.evaluations == (FOUND, FOUND, WRONG, None, None)
    assert scores.explanations["failure"] == ["", "", "", "malformed: told to", ""]


def test_crimson_the_state_counts_failed_runs_and_averages_spreads() -> None:
    metric = CRIMSON(Runs(RESULTS), runs=3)
    with pytest.warns(JudgeWarning):
        metric.update(RUN_PREDS[:2] + RUN_PREDS[3:], RUN_TARGET[:2] + RUN_TARGET[3:])
    metric.update(RUN_PREDS[2:3], RUN_TARGET[2:3])
    counts, means = metric.error_counts(), metric.statistics()
    assert metric.compute().item() == pytest.approx((0.5 / 3 + 1 - 0.5) / 3)
    assert (counts["scored"], counts["unscorable"], counts["failed_malformed"]) == (3, 2, 1)
    # Two of three runs of one pair, and all three of another; the pair without a prediction was not judged.
    assert counts["failed_runs"] == 5
    assert counts["missing_findings"].item() == pytest.approx(2 / 3 + 0 + 1)
    spreads = score().details["spread"]
    assert means["spread"].item() == pytest.approx(spreads.nanmean().item())
    metric.reset()
    assert metric.error_counts()["failed_runs"] == 0


def test_crimson_one_run_is_as_before() -> None:
    once = CRIMSON(Runs(RESULTS))
    scores = once.score(RUN_PREDS[:2], RUN_TARGET[:2])
    assert "spread" not in scores.details
    assert once.counts.dtype == torch.long
    assert "runs" not in once.signature.split("|judge:")[1].split("}")[1]
    assert "|runs:3|" in CRIMSON(Runs(RESULTS), runs=3).signature


def test_crimson_asks_a_server_several_times_at_any_temperature() -> None:
    assert "|runs:2|" in CRIMSON(OpenAIJudge("m", temperature=0.0), runs=2).signature


@pytest.mark.parametrize(
    ("judge", "runs", "message"),
    [
        (RuleJudge(), 2, "RuleJudge returns the same result in each run"),
        (RuleJudge(), 0, "runs must be a positive integer, got 0"),
        (RuleJudge(), 1.5, "runs must be a positive integer, got 1.5"),
    ],
)
def test_crimson_errors(judge: Judge, runs: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CRIMSON(judge, runs=runs)


def test_crimson_training_form_is_the_quotient_of_its_details() -> None:
    metric = CRIMSON(form="training")
    preds = ["Large left pneumothorax.", "", "Possible nodule in the right upper lobe. Cardiomegaly.", None]
    target = ["Large right pneumothorax.", "Cardiomegaly.", "Nodule in the right upper lobe.", "Normal."]
    scores = metric.score(preds, target)
    assert scores.value[:3].tolist() == crimson_training_score([*scores.evaluations[:3]]).tolist()
    assert scores.value[3].isnan()
    quotient = scores.details["training_credit"] / scores.details["training_price"]
    assert quotient[:3].tolist() == scores.value[:3].tolist()
    assert scores.value[1] == 0
    metric.update(preds, target)
    assert metric.compute().item() == pytest.approx(scores.value[:3].mean().item())
    for name in ("training_credit", "training_price", "training_certainty_loss", "weighted_false"):
        assert metric.statistics()[name].item() == pytest.approx(scores.details[name].nanmean().item())
    # The published details are the same in both forms.
    published = CRIMSON().score(preds, target)
    for name, values in published.details.items():
        torch.testing.assert_close(scores.details[name], values, rtol=0, atol=0, equal_nan=True)
    assert "training_credit" not in published.details


def test_crimson_training_form_reads_certainty_places_and_omissions() -> None:
    target = ["Mild atelectasis in the right upper lobe."] * 5
    preds = [
        "Mild atelectasis in the right upper lobe.",
        "Possible mild atelectasis in the right upper lobe.",
        "Mild atelectasis in the right upper lobe and in the left lower lobe.",
        "Mild atelectasis in the left lower lobe.",
        "Atelectasis.",
    ]
    right, possible, two, wrong, bare = CRIMSON(form="training").score(preds, target).value.tolist()
    assert right == 1
    assert possible == pytest.approx(2 * 0.5 / (1 + 0.5**2))
    # One of two stated places is wrong.
    assert two == pytest.approx((1 + 1 / 2) / 2)
    assert wrong == 0.5
    # Published: three of them cost nothing.
    assert CRIMSON().score(preds, target).value.tolist()[1] == 1
    assert bare < 9 / 16 + 1e-9


def test_crimson_form_is_in_the_signature_and_survives_copies() -> None:
    metric = CRIMSON(form="training")
    assert metric.signature.startswith("crimson|form:training|judge:{rules|")
    assert "form:" not in CRIMSON().signature
    copied = pickle.loads(pickle.dumps(metric))
    assert copied.score(["Normal."], ["Nodule."]).value == 0
    assert metric.clone().signature == metric.signature
    with pytest.raises(ValueError, match="unknown form of CRIMSON 'trainig'; did you mean 'training'"):
        CRIMSON(form="trainig")


@pytest.mark.filterwarnings("ignore:crimson. the judge failed")
def test_crimson_training_form_is_the_mean_over_runs_of_another_judge() -> None:
    scores = CRIMSON(Runs(RESULTS), runs=3, form="training").score(RUN_PREDS, RUN_TARGET)
    # Found, missed, and missed with an invention; only the second run of the third pair did not fail.
    assert scores.value[:3].tolist() == pytest.approx([1 / 3, 1, 0])
    assert scores.value[3:].isnan().all()
    # 2C and P of the first pair: 2 of 2, 0 of 1 and 0 of 2.
    assert scores.details["training_credit"][0].item() == pytest.approx(2 / 3)
    assert scores.details["training_price"][0].item() == pytest.approx(5 / 3)


def _sentence(word: str) -> str:
    """Return a sentence with a degree, a side or a level of the lung."""
    if word.endswith("ly"):
        return f"The heart is {word} enlarged."
    if word in ("right", "left") or word in load_knowledge("errors")["severities"]:
        return f"A {word} pleural effusion."
    is_whole = (len(word) == 3 and word != "mid") or word.startswith(("bas", "ap", "bi"))
    return f"Consolidation: {word}." if is_whole else f"Consolidation in the right {word} lung."


def test_crimson_every_word_of_error_injection_is_an_error() -> None:
    knowledge = load_knowledge("errors")
    degrees = [(word, other) for word, others in knowledge["severities"].items() for other in others]
    words = [*degrees, *knowledge["sides"].items(), *knowledge["levels"].items()]
    pairs = [(_sentence(word), _sentence(other)) for word, other in words]
    pairs += [("Effusion.", f"Effusion{added}.") for added in knowledge["comparison"]["added"]]
    invented = [
        text for entry in knowledge["invented"] for name in ("any", "ct", "xray") for text in entry.get(name, ())
    ]
    pairs += [("The trachea is midline.", text) for text in invented]
    margins = next(rules["words"] for rules in load_knowledge("corruptions")["sets"] if rules["kind"] == "margin")
    pairs += [(f"A {word} nodule.", f"A {margins[word]} nodule.") for word in ("irregular", "irregularly", "lobulated")]
    pairs += [
        ("A spiculated nodule.", "A smooth-bordered nodule."),
        ("A smoothly marginated nodule.", "A spiculated nodule."),
    ]
    scored = CRIMSON(judge="rules").score([candidate for _, candidate in pairs], [reference for reference, _ in pairs])
    assert [pair for pair, errors in zip(pairs, scored.details["errors"], strict=True) if not errors > 0] == []


def test_crimson_a_solid_nodule_for_a_cavitary_one_is_one_error_of_a_descriptor() -> None:
    candidates, references = ["Solid nodule.", "Thin-walled cavity."], ["Cavitary nodule.", "Thick-walled cavity."]
    details = CRIMSON(judge="rules").score(candidates, references).details
    assert details["descriptor_errors"].tolist() == details["errors"].tolist() == [1, 1]
