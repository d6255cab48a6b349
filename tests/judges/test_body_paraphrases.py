"""Findings outside the lungs score the same in other words."""

from pathlib import Path

import pytest
import yaml

from rrg_rewards.functional import crimson_score
from rrg_rewards.judges import ReportPair, RuleJudge

PAIRS = yaml.safe_load(Path(__file__).with_name("body_paraphrases.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("report", "paraphrase"), PAIRS)
def test_a_paraphrase_scores_one_in_both_directions(report, paraphrase):
    judge = RuleJudge()
    pairs = (ReportPair(report, paraphrase), ReportPair(paraphrase, report))
    assert crimson_score([judge.evaluation(pair) for pair in pairs]).tolist() == [1.0, 1.0]
