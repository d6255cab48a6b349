"""Scores that were stored in Parquet give the summary of the scores themselves."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rrg_rewards.analysis.scoring import MetricTotals
from rrg_rewards.analysis.stored_scores import read_stored, stored_columns
from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.metrics import BLEU, CRIMSON, ROUGE, CTFineBench, ReportCRG, ReportMetric

pytest.importorskip("pyarrow")

PREDICTIONS = ["Cardiomegaly.", "Small left pleural effusion.", None, "Normal chest.", "Hiatal hernia."] * 3
REFERENCES = ["Cardiomegaly. Hiatal hernia.", "Large left pleural effusion.", "Edema.", "Normal.", ""] * 3


@pytest.mark.parametrize(
    "metric",
    [ReportCRG(prior=0.2), ReportCRG(prior=[0.1] * 18, average="macro"), ROUGE(), BLEU(), CRIMSON(), CTFineBench()],
    ids=["crg", "crg macro", "rouge", "bleu", "crimson", "ct_finebench"],
)
def test_read_stored_gives_the_summary_of_the_scores(metric: ReportMetric, tmp_path: Path) -> None:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    template = metric.score([], [])
    expected, found = MetricTotals(metric), MetricTotals(metric)
    for start in range(0, len(PREDICTIONS), 4):
        scores = metric.score(PREDICTIONS[start : start + 4], REFERENCES[start : start + 4])
        expected.add(scores)
        parquet.write_table(arrow.table(stored_columns("m", scores)), tmp_path / "part.parquet")
        columns = parquet.read_table(tmp_path / "part.parquet").combine_chunks()
        stored = read_stored("m", template, {name: columns.column(name).chunk(0) for name in columns.column_names})
        found.add(stored, template)
    assert found.summary(20, 0) == expected.summary(20, 0)


def test_read_stored_keeps_failures_and_their_reasons() -> None:
    metric = CRIMSON()
    scores = metric.score(["Cardiomegaly.", "Normal."], ["Cardiomegaly.", "Edema."])
    results = (scores.results[0], JudgeFailure("malformed", "no JSON"))
    failed = replace(scores, value=torch.tensor([1.0, math.nan], dtype=torch.float64), results=results)
    expected, found = MetricTotals(metric), MetricTotals(metric)
    expected.add(failed)
    found.add(read_stored("m", metric.score([], []), stored_columns("m", failed)), metric.score([], []))
    assert found.counts.failed == expected.counts.failed
    assert found.counts.failed["malformed"] == 1
    assert found.counts.first_failure == expected.counts.first_failure == "malformed: no JSON"
