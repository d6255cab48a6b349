"""The labeler by a judge: labels, reports without labels, memory, schemas, metrics and rewards."""

import pickle
from pathlib import Path

import pytest
import torch
from label_judge import LabelJudge

from rrg_rewards.judges.base import JudgeFailure, JudgeWarning
from rrg_rewards.labelers import JudgeLabeler, Labeler, RuleLabeler, get_labeler
from rrg_rewards.metrics import LabelF1, ReportCRG
from rrg_rewards.rewards import make_reward
from rrg_rewards.schemas import CHEXBERT, LabelSchema

REPORTS = [
    "Cardiomegaly. No pleural effusion.",
    "Hiatal hernia. Possible pneumonia with consolidation?",
    "  ",
    "Nodule of 8 mm in the left lung. Emphysema.",
]
FAILING = LabelJudge({"Emphysema": "inconsistent"})


def test_judge_labeler_returns_the_labels_of_the_judge() -> None:
    labeler = JudgeLabeler("ct_rate", LabelJudge())
    assert isinstance(labeler, Labeler)
    assert labeler.labels == RuleLabeler("ct_rate").labels
    assert labeler.modality == "ct"
    found = labeler(REPORTS)
    assert found.dtype == torch.float32
    assert torch.equal(found.bool(), RuleLabeler("ct_rate")(REPORTS))
    assert found.sum(1).tolist() == [1, 1, 0, 2]
    assert labeler([]).shape == (0, 18)


def test_judge_labeler_states_uncertain_labels() -> None:
    labeler = JudgeLabeler("ct_rate", LabelJudge())
    (states,) = labeler.states(REPORTS[1:2])
    assert not isinstance(states, JudgeFailure)
    by_label = dict(zip(labeler.labels, states, strict=True))
    assert (by_label["Consolidation"].state, by_label["Consolidation"].quote) == ("uncertain", "consolidation")
    assert by_label["Hiatal hernia"].state == "positive"
    assert not labeler(REPORTS[1:2])[0, labeler.labels.index("Consolidation")]


def test_judge_labeler_derives_no_finding() -> None:
    reports = ["Clear lungs.", "Pacemaker. Clear lungs.", "Possible edema.", "Cardiomegaly.", ""]
    labeler = JudgeLabeler("chexbert", LabelJudge(lexicon="chest_xray"))
    assert "No Finding" not in labeler.task.labels
    assert torch.equal(labeler(reports).bool(), RuleLabeler("chexbert")(reports))
    assert labeler(reports)[:, labeler.labels.index("No Finding")].tolist() == [1, 1, 0, 0, 0]
    assert labeler.modality == "xray"


def test_judge_labeler_counts_reports_without_a_valid_answer() -> None:
    labeler = JudgeLabeler("ct_rate", FAILING)
    with pytest.warns(JudgeWarning, match=r"failed on 1 of 4 reports \(inconsistent 1\), which have no labels"):
        found = labeler(REPORTS)
    assert found.isnan().all(1).tolist() == [False, False, False, True]
    labels, failures = labeler.label(REPORTS)
    assert not labels[3].any()
    assert failures == (None, None, None, JudgeFailure("inconsistent", "told to"))


def test_judge_labeler_remembers_labels_and_not_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrg_rewards.labelers.judge._REMEMBERED", 1)
    judge = LabelJudge({"Emphysema": "deadline"})
    labeler = JudgeLabeler("ct_rate", judge)
    labeler.label([*REPORTS, *REPORTS])
    assert judge.asked == [[REPORTS[0], REPORTS[1], REPORTS[3]]]
    # The answers of the last call are remembered, and the failure is not.
    labeler.label([*REPORTS])
    labeler.label([REPORTS[1]])
    assert judge.asked[1:] == [[REPORTS[3]]]
    # Now only one answer is.
    labeler.label([REPORTS[0]])
    assert judge.asked[2:] == [[REPORTS[0]]]


def test_judge_labeler_pickles() -> None:
    labeler = JudgeLabeler("ct_rate", FAILING)
    other = pickle.loads(pickle.dumps(labeler))
    assert other.signature == labeler.signature
    assert other.judge.fail_on == {"Emphysema": "inconsistent"}


def test_judge_labeler_signature() -> None:
    labeler = JudgeLabeler("ct_rate", LabelJudge())
    assert f"|judge:{{label-rules}}|prompt:{labeler.task.prompt_hash}|" in labeler.signature
    changed = LabelSchema("ct_rate", labeler.labels, "chest CT", ("any",) * 18)
    assert JudgeLabeler(changed, LabelJudge()).signature != labeler.signature


def test_judge_labeler_with_a_schema_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("labels:\n  Lung nodule: a nodule of 6 mm or more\n  Emphysema:\n")
    labeler = JudgeLabeler(path, LabelJudge())
    assert labeler.labels == ("Lung nodule", "Emphysema")
    assert labeler.task.definitions == ("a nodule of 6 mm or more", "")
    assert labeler.modality is None
    assert pickle.loads(pickle.dumps(labeler)).signature == labeler.signature
    assert labeler(REPORTS[3:]).tolist() == [[1, 1]]
    path.write_text("labels: [Lung nodule, Emphysema]\nname: two\n")
    assert JudgeLabeler(path, LabelJudge()).schema == LabelSchema("two", labeler.labels, "")
    # A lexicon file is a label set, too.
    path.write_text("concepts: {lobe: [azygos]}\nlabels:\n  Azygos lobe: [lobe]\n")
    assert JudgeLabeler(path, LabelJudge()).task.definitions == ("",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name: none", "labels: must be a list of names, or a mapping"),
        ("labels: [A, A]", "labels: a name occurs twice"),
        ("labels: [{name: A}]", r"labels: must be names, got \{'name': 'A'\}"),
        ("labels: [A, yes]", "labels: must be names, got True"),
        ("labels: []", "must be one or more names"),
        ("labels: {A: 3}", "label 'A': the definition must be a text, got 3"),
        ("labels: [No Finding]", "has no label of an abnormality"),
    ],
)
def test_judge_labeler_rejects_wrong_schema_files(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(ValueError, match=message):
        JudgeLabeler(tmp_path / "mine.yaml", LabelJudge())


def test_get_labeler_with_a_judge() -> None:
    settings = {"name": "judge", "schema": "chexbert", "judge": {"name": "openai", "model": "m"}}
    by_mapping, by_name = get_labeler(settings), get_labeler("judge:chexbert", judge="openai:m")
    assert by_mapping.signature == by_name.signature
    assert by_name.labels == CHEXBERT.labels
    with pytest.raises(ValueError, match="labeler 'judge:ct_rate' needs a judge"):
        get_labeler("judge:ct_rate")
    with pytest.raises(ValueError, match="evaluates CRIMSON only"):
        get_labeler("judge:ct_rate", judge="rules")
    with pytest.raises(ValueError, match="unknown label schema 'ct_rat'; did you mean 'ct_rate'"):
        get_labeler("judge:ct_rat", judge=FAILING)
    # The message tells no key of a server.
    with pytest.raises(ValueError, match=r"must have a name, one of rules, radbert, judge; got 'schema, judge'$"):
        get_labeler({"schema": "ct_rate", "judge": {"name": "openai", "model": "m", "api_key": "SECRET"}})
    with pytest.raises(ValueError, match=r"must have a name, .*; got 'model, api_key'$"):
        get_labeler("judge:ct_rate", judge={"model": "m", "api_key": "SECRET"})
    with pytest.raises(TypeError, match="cannot be set on a labeler object"):
        get_labeler(RuleLabeler(), judge=FAILING)


def test_report_crg_counts_pairs_without_labels() -> None:
    metric = ReportCRG(JudgeLabeler("ct_rate", FAILING))
    preds = ["Cardiomegaly.", "Emphysema.", "Hiatal hernia.", None]
    target = ["Cardiomegaly. Nodule.", "Cardiomegaly.", "Hiatal hernia. Emphysema.", "Cardiomegaly."]
    with pytest.warns(JudgeWarning, match=r"crg: the judge failed on 2 of 3 report pairs \(inconsistent 2\)"):
        scores = metric.score(preds, target)
    assert scores.scored.tolist() == [True, False, False, False]
    assert scores.explanations["failure"] == ["", "inconsistent: told to", "inconsistent: told to", ""]
    metric.add_scores(scores)
    assert int(metric.num_unscorable) == 3
    assert metric.failure_counts()["inconsistent"] == 2
    # As the rules score the pair that is left: failed references do not count for the prevalence.
    rules = ReportCRG("rules:ct_rate")
    assert torch.equal(scores.value[:1], rules.score(preds[:1], target[:1]).value)
    rules.update(preds[:1], target[:1])
    assert torch.equal(metric.compute(), rules.compute())
    assert rules.failure_counts() == {}
    assert scores.take(torch.tensor([1])).explanations["failure"] == ["inconsistent: told to"]


def test_report_crg_labels_predictions_and_references_together() -> None:
    judge = LabelJudge()
    ReportCRG(JudgeLabeler("ct_rate", judge)).update(["Cardiomegaly."], ["Emphysema."])
    assert judge.asked == [["Cardiomegaly.", "Emphysema."]]


@pytest.mark.filterwarnings("ignore:label_f1. the judge failed")
def test_label_f1_without_labels() -> None:
    metric = LabelF1(JudgeLabeler("ct_rate", FAILING))
    metric.update(["Cardiomegaly.", "Emphysema."], ["Cardiomegaly.", "Cardiomegaly."])
    assert metric.compute() == 1
    assert int(metric.num_unscorable) == 1


@pytest.mark.filterwarnings("ignore:crg. the judge failed")
def test_known_labels_replace_those_of_judge_labeler() -> None:
    judge = LabelJudge({"Emphysema": "inconsistent"})
    metric = ReportCRG(JudgeLabeler("ct_rate", judge))
    known = RuleLabeler("ct_rate")(["Cardiomegaly.", "Cardiomegaly."]).int().tolist()
    scores = metric.score(["Cardiomegaly.", "Emphysema."], [None, None], target_labels=known)
    assert scores.scored.tolist() == [True, False]
    assert judge.asked == [["Cardiomegaly.", "Emphysema."]]


@pytest.mark.filterwarnings("ignore:crg. the judge failed")
def test_crg_reward_is_none_without_labels() -> None:
    logged: dict[str, float] = {}
    references = ["Cardiomegaly.", "Normal.", "Hiatal hernia. Emphysema."]
    reward = make_reward("crg", labeler=JudgeLabeler("ct_rate", FAILING)).fit(reference=references)
    values = reward(
        ["Cardiomegaly.", "Emphysema.", "Hiatal hernia."], reference=references, log_metric=logged.__setitem__
    )
    assert [value is None for value in values] == [False, True, True]
    assert logged["crg/failed"] == logged["crg/unscorable"] == pytest.approx(2 / 3)
    assert reward.prior == make_reward("crg").fit(reference=references[:2]).prior == pytest.approx(1 / 36)
