"""Scores of paraphrased reports and of reports with wrong details."""

import pytest
import torch
from run_notes import RunNotes

from rrg_rewards.analysis import (
    MetricChoice,
    ReportTexts,
    SensitivitySettings,
    make_paper_metric,
    make_paper_metrics,
    make_versions,
    measure_sensitivity,
)
from rrg_rewards.data import phantom_studies
from rrg_rewards.metrics import BLEU
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.settings import SettingError

REPORTS = ReportTexts.of([study.report for study in phantom_studies(4, seed=2)])


class ScriptedMetric(BLEU):
    """Returns given scores of the paraphrases, then of the wrong details."""

    def __init__(self, answers, parts):
        super().__init__()
        self.answers, self.parts = iter(answers), parts

    def score(self, preds, target):
        details = {name: torch.tensor(values) for name, values in self.parts.items()}
        return Scores(torch.tensor(next(self.answers), dtype=torch.float64), details)


class ScriptedErrors(ScriptedMetric):
    higher_is_better = False


def scored(metric, number):
    """The sensitivity of a metric with the given scores of the paraphrases and of the wrong details."""
    versions = make_versions(ReportTexts.of(["Left effusion."] * number))
    return measure_sensitivity(versions, {"errors": metric})


def test_a_report_counts_where_both_versions_are_scored():
    nan = float("nan")
    answers = [[0.5, nan, 0.8, 0.3], [0.7, 0.1, 0.6, nan]]
    result = scored(ScriptedErrors(answers, {"size": [1.0, 1.0, nan, 1.0]}), 4)
    entry = result.metrics["errors"]
    assert entry["paraphrased"] == pytest.approx(0.65)
    assert entry["adversarial"] == pytest.approx(0.65)
    # Lower is better: the first is better in other words, the third is not.
    assert (entry["paraphrase_better"], entry["scored"], entry["unscorable"]) == (0.5, 2, 2)
    assert entry["parts"] == {"size": {"paraphrased": 1.0, "adversarial": 1.0}}
    assert "errors (lower is better)" in result.to_markdown()


def test_a_metric_that_scores_nothing_has_no_mean():
    result = scored(ScriptedMetric([[float("nan")]] * 2, {}), 1)
    assert result.metrics["errors"]["paraphrased"] is None
    assert "| errors | - | - | - | 0 |" in result.to_markdown()


def test_metrics_of_words_and_of_content_differ():
    made = make_versions(REPORTS)
    result = measure_sensitivity(made, make_paper_metrics(MetricChoice(metrics=["rougeL", "ct_finebench"])))
    rouge, content = result.metrics["rougeL"], result.metrics["ct_finebench"]
    assert rouge["paraphrased"] < rouge["adversarial"]
    assert content["paraphrased"] > content["adversarial"]
    assert list(result.to_dict()) == ["reports", "seed", "changes", "metrics"]
    assert list(made.reports.values()) == list(REPORTS.texts.values())


def test_versions_depend_on_seed_and_limit():
    first, again = make_versions(REPORTS), make_versions(REPORTS, SensitivitySettings(seed=1, limit=2))
    assert list(again.reports) == ["1", "2"]
    assert again.versions["adversarial"] != first.versions["adversarial"][:2]
    with pytest.raises(ValueError, match=r"r\.csv: contains no report"):
        make_versions(ReportTexts({}, source="r.csv"))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"metrics": ["bleu3"]}, "metrics: unknown metric 'bleu3'; did you mean 'bleu"),
        ({"metrics": ["bleu2", "bleu2"]}, "metrics: bleu2 is named more than once"),
        ({"metrics": ["bleu2"], "set": {"bleu2.n": 3}}, "metrics: unknown bleu option 'n'"),
        ({"metrics": ["bleu2"], "set": {"crg.prior": 3}}, "^set: 'crg' is not among"),
        ({"metrics": ["bertscore"]}, "metrics: metric 'bertscore' needs the option model"),
    ],
)
def test_metrics_that_will_not_do(choice, message):
    with pytest.raises(SettingError, match=message):
        make_paper_metrics(MetricChoice(**choice))


def test_the_progress_counts_columns_of_scores():
    log = RunNotes()
    measure_sensitivity(make_versions(REPORTS), {"rougeL": make_paper_metric("rougeL")}, log)
    assert log.steps == [("scoring", 0, 2), ("scoring", 1, 0), ("scoring", 1, 0)]
