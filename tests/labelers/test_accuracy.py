"""Agreement with labels set by hand, on the real reports where they are present."""

import csv

import numpy as np
import pytest

from rrg_rewards.labelers import RuleLabeler


def counts(path, text_column, prefix=""):
    """Per-label true positives, false positives and false negatives, shape ``(L, 3)``."""
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    labeler = RuleLabeler("ct_rate")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    predicted = labeler([row[text_column] for row in rows]).numpy()
    true = np.array([[float(row[prefix + label]) > 0.5 for label in labeler.labels] for row in rows])
    return np.stack([(predicted & true).sum(0), (predicted & ~true).sum(0), (~predicted & true).sum(0)], axis=1)


def f1(tp, fp, fn):
    return 2 * tp / (2 * tp + fp + fn)


def test_macro_f1_on_ct_rate(shared_data):
    per_label = counts(shared_data / "ct_rate_labels" / "reports.csv", "report_text")
    scores = [f1(*row) for row in per_label.tolist()]
    assert np.mean(scores) >= 0.95
    assert min(scores) >= 0.85


@pytest.mark.parametrize("side", ["GT", "Pred"])
def test_micro_f1_on_reports_of_another_hospital(shared_data, side):
    per_label = counts(shared_data / "reg2rg_ctrg" / "pairs.csv", f"{side}_whole_report", f"{side}_")
    assert f1(*per_label.sum(0).tolist()) >= 0.80
