"""Reports score the same in other words: findings of the lungs, and findings outside them."""

from pathlib import Path

import pytest
import yaml

from rrg_rewards.functional import crimson_score
from rrg_rewards.judges import ReportPair, RuleJudge

FILES = ("lung_paraphrases.yaml", "body_paraphrases.yaml")
PAIRS = [pair for name in FILES for pair in yaml.safe_load(Path(__file__).with_name(name).read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("report", "paraphrase"), PAIRS)
def test_a_paraphrase_scores_one_in_both_directions(report, paraphrase):
    judge = RuleJudge()
    pairs = (ReportPair(report, paraphrase), ReportPair(paraphrase, report))
    assert crimson_score([judge.evaluation(pair) for pair in pairs]).tolist() == [1.0, 1.0]
