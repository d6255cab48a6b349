"""CRIMSON with a cascade of judges: who judged each pair, in scores, counts and warnings."""

import asyncio
import warnings

import pytest
import torch
from scripted_judge import ScriptedJudge

from rrg_rewards.judges import CascadeJudge, RuleJudge
from rrg_rewards.judges.base import Judge, JudgeWarning
from rrg_rewards.metrics import CRIMSON, CrimsonScores

TARGET = ["Quorblid of the aorta.", "Quorblid. Effusion.", "Effusion.", "Normal heart.", "Edema.", None]
PREDS = ["Normal aorta.", "Effusion.", "Effusion, vextramal.", "Normal heart.", "Effusion.", "Effusion."]


def test_crimson_of_a_cascade_says_who_judged_each_pair() -> None:
    crimson = CRIMSON(judge=CascadeJudge(ScriptedJudge(fail_on={"vextramal": "deadline"})))
    with pytest.warns(JudgeWarning, match=r"failed on 1 of 5 report pairs \(deadline 1\)"):
        scores = crimson.score(PREDS, TARGET)
    assert scores.routes == ("second", "second", "second", "rules", "rules", "")
    assert scores.explanations["judge"] == scores.judges
    assert scores.judges == ["scripted", "scripted", "scripted", "rules", "rules", ""]
    assert scores.value[:2].tolist() == [1, 1]
    assert scores.explanations["failure"][2].startswith("deadline: ")
    torch.testing.assert_close(
        scores.details["by_second_judge"], torch.tensor([1, 1, 1, 0, 0, torch.nan]).double(), equal_nan=True
    )
    assert scores.details["unread_reference"][:2].tolist() == [0.5, 0.5]
    crimson.add_scores(scores)
    counts = crimson.error_counts()
    names = ("scored", "unscorable", "failed_deadline", "by_rules", "by_second_judge")
    assert [int(counts[name]) for name in names] == [4, 2, 1, 2, 3]
    share = crimson.statistics()["by_second_judge"]
    assert (float(share), share.dtype) == (3 / 5, torch.float64)
    assert scores.take(torch.tensor([2])).judges == ["scripted"]
    assert crimson.signature.startswith("crimson|judge:{cascade|first:{rules|")
    crimson.reset()
    assert crimson.error_counts()["by_second_judge"] == 0


def test_crimson_of_a_cascade_counts_failures_of_the_second_judge_and_scores_asynchronously() -> None:
    crimson = CRIMSON(judge=CascadeJudge(ScriptedJudge(waits=True, fail_on={"vextramal": "deadline"})))
    with pytest.warns(JudgeWarning, match="deadline 1"):
        scores = asyncio.run(crimson.score_async(PREDS, TARGET))
    assert isinstance(scores, CrimsonScores)
    assert scores.routes == ("second", "second", "second", "rules", "rules", "")
    assert scores.scored.tolist() == [True, True, False, True, True, False]
    with pytest.warns(JudgeWarning):
        assert crimson.score(PREDS, TARGET).value[:2].equal(scores.value[:2])
    runs = CRIMSON(judge={"name": "cascade", "second": {"name": "openai", "model": "m"}}, runs=2)
    assert runs.score(PREDS[3:4], TARGET[3:4]).details["spread"].tolist() == [0]


@pytest.mark.parametrize("judge", [RuleJudge(), CascadeJudge(ScriptedJudge())], ids=["rules", "cascade"])
def test_crimson_with_coverage_scores_an_empty_batch(judge: Judge) -> None:
    crimson = CRIMSON(judge)
    crimson.update([], [])
    assert len(crimson.score([], [])) == 0
    assert crimson.error_counts()["scored"] == 0


def test_crimson_of_a_cascade_does_not_warn_of_what_the_second_judge_has_read(monkeypatch) -> None:
    monkeypatch.setattr("rrg_rewards.metrics.unread._Warned.has_warned", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CRIMSON(CascadeJudge(ScriptedJudge())).score(["Effusion."], ["Kleiner Erguss rechts, Herz deutlich breiter."])
