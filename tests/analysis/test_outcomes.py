"""What judges have used in a run, also in other processes."""

import pytest
from run_notes import RunNotes

from rrg_rewards.analysis.outcomes import RunUsage
from rrg_rewards.judges import OpenAIJudge, RuleJudge


@pytest.fixture
def judges():
    shared = OpenAIJudge("m", price=(1.0, 4.0))
    return {"crg": {"labels": shared}, "label_f1": {"labels": shared}, "crimson": {"judge": RuleJudge()}}


def test_run_usage_counts_a_shared_judge_once_and_adds_other_processes(judges):
    here, there = RunUsage(judges), RunUsage(judges)
    counter = judges["crg"]["labels"]._client.usage
    counter.add(calls=2, prompt_tokens=100)
    here.add(there.take())
    counter.add(calls=1)
    here.add(there.take())
    here.add(there.take())
    assert (here.to_dict("crg")["labels"]["calls"], here.to_dict("label_f1"), here.to_dict("crimson")) == (6, {}, {})
    assert here.to_dict("crg")["labels"]["prompt_tokens"] == 200
    assert list(here.by_user()) == ["crg"]
    notes = RunNotes()
    here.note(notes)
    assert [note.partition(" calls")[0] for note in notes.notes] == ["crg and label_f1, labels: 6"]
