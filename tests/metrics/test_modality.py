"""A metric for one modality warns of references of the other, once, and only then."""

import warnings

import pytest

from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.metrics import CRIMSON, CTFineBench, ReportCRG
from rrg_rewards.metrics.base import ModalityWarning
from rrg_rewards.rewards import make_reward

XRAY = ["The cardiac silhouette is enlarged. No pneumothorax."] * 12
CT = ["Both main bronchi are open. Nodule in the right lung. No lymph node is seen."] * 12


@pytest.mark.parametrize(
    ("metric", "reports", "remedy"),
    [
        (ReportCRG("rules:ct_rate"), XRAY, "radiograph reports.*of CTs; use labeler='rules:chexbert'"),
        (ReportCRG("rules:chexbert"), CT, "CT reports.*of radiographs; use labeler='rules:ct_rate'"),
        (CTFineBench(), XRAY, "ct_finebench: the references read like radiograph reports"),
    ],
)
def test_references_of_the_other_modality_are_told_once(metric, reports, remedy: str) -> None:
    # Batches of a training are small.
    metric.update(reports[:6], reports[:6])
    with pytest.warns(ModalityWarning, match=remedy):
        metric.update(reports[6:], reports[6:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric.update(reports, reports)


@pytest.mark.parametrize(
    ("metric", "reports"),
    [
        (ReportCRG("rules:ct_rate"), CT),
        (ReportCRG("rules:chexbert"), XRAY),
        (CTFineBench(), CT),
        (CRIMSON(), XRAY),
        (CRIMSON(), CT),
    ],
)
def test_nothing_is_said_of_the_right_modality(metric, reports) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric.update(reports, reports)


def test_a_lexicon_file_has_the_modality_of_what_it_extends(tmp_path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("extends: chest_xray\nconcepts: {a: [b]}\nlabels: {A: [a]}\n")
    assert RuleLabeler(path).modality == "xray"
    path.write_text("concepts: {a: [b]}\nlabels: {A: [a]}\n")
    assert RuleLabeler(path).modality is None


def test_a_reward_warns_too() -> None:
    reward = make_reward("crg", prior=0.3)
    with pytest.warns(ModalityWarning, match="use labeler='rules:chexbert'"):
        reward(completions=XRAY, reference=XRAY)
