"""What judges have used in a run."""

import pytest
from run_notes import RunNotes

from rrg_rewards.analysis.outcomes import RunUsage
from rrg_rewards.judges import OpenAIJudge, RuleJudge


@pytest.fixture
def judges():
    shared = OpenAIJudge("m", price=(1.0, 4.0))
    return {"crg": {"labels": shared}, "label_f1": {"labels": shared}, "crimson": {"judge": RuleJudge()}}


def test_run_usage_counts_a_shared_judge_once(judges):
    usage = RunUsage(judges)
    judges["crg"]["labels"]._client.usage.add(calls=2, prompt_tokens=100)
    assert (usage.to_dict("crg")["labels"]["calls"], usage.to_dict("label_f1"), usage.to_dict("crimson")) == (2, {}, {})
    assert usage.to_dict("crg")["labels"]["prompt_tokens"] == 100
    assert list(usage.by_user()) == ["crg"]
    notes = RunNotes()
    usage.note(notes)
    assert [note.partition(" calls")[0] for note in notes.notes] == ["crg and label_f1, labels: 2"]
