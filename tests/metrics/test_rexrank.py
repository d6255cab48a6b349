"""BLEU of ReXrank: values of the official code, and its published scores of a system."""

import pytest
import torch

from rrg_rewards.data import read_table
from rrg_rewards.metrics import ReXrankBLEU, make_metric

# From a run of add_bleu_col (CXR-Report-Metric, with fast_bleu 0.0.90). It gives 0 for a blank reference, which is
# unscorable here.
OFFICIAL = [
    ("Small effusion.", "Small left effusion.", 0.5066641486392106),
    ("Lungs clear.", "No effusion.", 0.12909944487358058),
    ("a b c d", "a x b y", 0.12909944487358058),
    ("a a b a b", "a b a c", 0.5477225575051661),
    ("", "Normal.", 0.0),
    ("One", "One", 0.3162277660168379),
    ("Clear.\nNormal heart, lungs.", "clear. normal heart, lungs.", 0.5178107940302672),
    ("x y z", "a b c", 0.0),
]


def test_rexrank_bleu_is_that_of_the_official_code():
    candidates, references, expected = zip(*OFFICIAL, strict=True)
    found = ReXrankBLEU().score(candidates, references).value
    assert found.tolist() == pytest.approx(expected, abs=1e-15)


def test_rexrank_bleu_published_scores_of_a_system(shared_data):
    """590 reports of MoERad for IU X-Ray, whose scores its authors published; the references are the findings."""
    table = read_table(shared_data / "iu_xray_rexrank" / "systems.csv")
    found = make_metric("rexrank_bleu").score(table.required_texts("moerad"), table.required_texts("section_findings"))
    published = torch.tensor(table.numbers("moerad_bleu"), dtype=torch.float64)
    assert len(published) == 590
    torch.testing.assert_close(found.value, published, rtol=0, atol=1e-12)


def test_rexrank_bleu_corpus_value_is_the_mean_of_scorable_pairs():
    metric = ReXrankBLEU()
    metric.update(["One", None, "Small effusion."], ["One", "x", ""])
    assert metric.compute().item() == pytest.approx(0.3162277660168379)
    assert "rexrank_bleu" in metric.signature
