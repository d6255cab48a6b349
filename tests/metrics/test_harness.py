"""All metrics in the checks of torchmetrics' own test suite, in one process."""

from pathlib import Path

import pytest
import torch
from metric_harness import SUBJECTS, check_subject, save_models

from rrg_rewards.metrics import ReportMetric


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return save_models(Path(tmp_path_factory.mktemp("models")))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SUBJECTS)
def test_metric_in_one_process(models: dict[str, str], name: str) -> None:
    check_subject(SUBJECTS[name](models))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SUBJECTS)
def test_metric_with_independent_rows_scores_a_pair_alike_in_any_batch(models: dict[str, str], name: str) -> None:
    subject = SUBJECTS[name](models)
    metric = subject.make()
    if not (isinstance(metric, ReportMetric) and metric.has_independent_rows and metric.compares_across_batches):
        return
    assert not metric.depends_on_corpus
    (preds, target), context = subject.batches[0]
    whole = metric.score(preds, target, **context)
    for row in range(len(preds)):
        given = {key: column[row : row + 1] for key, column in context.items()}
        alone = metric.score(preds[row : row + 1], target[row : row + 1], **given)
        assert torch.equal(alone.value.nan_to_num(7), whole.value[row : row + 1].nan_to_num(7))


def test_metrics_by_rules_have_independent_rows(models: dict[str, str]) -> None:
    made = {name: subject(models).make() for name, subject in SUBJECTS.items()}
    found = {name for name, one in made.items() if isinstance(one, ReportMetric) and one.has_independent_rows}
    assert {"bleu", "chrf", "rouge", "label_f1", "crg", "crimson", "ct_finebench"} <= found
    assert not {"cider", "crepe", "bertscore"} & found
