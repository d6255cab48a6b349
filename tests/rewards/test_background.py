"""Rewards in the background: the numbers of the plain reward, concurrent calls, and rewards that cannot be divided."""

import asyncio
import pickle
import random
import threading
import time

import pytest
import torch

from rrg_rewards.functional import CrimsonEvaluation
from rrg_rewards.judges import Judge
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards import AsyncMetricReward, BackgroundReward, MetricReward, compose, make_reward
from rrg_rewards.rewards.background import RowScorer, join_parts
from rrg_rewards.utilities.settings import SettingError

SENTENCES = [
    "Large right pleural effusion.",
    "No pneumothorax.",
    "A 4 mm nodule in the left upper lobe.",
    "Cardiomegaly.",
    "Hiatal hernia, unchanged.",
    "Coronary artery calcification.",
    "Mild bronchiectasis in both lower lobes.",
    "",
]
NORMAL = {"reference": ["Normal."]}
RULES = {
    "crg": {"prior": 0.2},
    "macro": {"name": "crg", "average": "macro", "prior": [0.1 + 0.01 * label for label in range(18)]},
    "crimson": {"log_details": True},
    "ct_finebench": {},
    "rouge": {},
    "bleu": {},
    "chrf": {},
    "label_f1": {},
    "repetition": {},
    "format": {"sections": ["Findings"]},
    "overlong": {"max_length": 9, "buffer": 4},
    "composed": {
        "parts": [
            {"name": "crimson", "form": "training", "log_details": True, "clip": [-1, 1]},
            {"name": "crg", "prior": 0.2, "normalize": [0.1, 2.0], "gate": {"on": "crimson", "at_least": 0.2}},
            {"name": "composed", "as": "form", "parts": [{"name": "repetition"}], "weight": 0.1},
        ]
    },
}


def _reports(count, seed):
    draw = random.Random(seed)
    return [" ".join(draw.choices(SENTENCES, k=3)) for _ in range(count)]


def _rule(name):
    options = dict(RULES[name])
    return make_reward(options.pop("name", name), **options)


@pytest.mark.parametrize("name", RULES)
def test_join_parts_gives_the_scores_of_the_whole_batch(name):
    reward = _rule(name)
    assert reward.has_independent_rows
    completions, references = _reports(23, 1), [*_reports(21, 2), "", None]
    whole = reward.score(completions, reference=references)
    draw = random.Random(3)
    rows = draw.sample(range(23), 23)
    parts, start = [], 0
    for size in (1, 5, 2, 14, 1):
        chosen = rows[start : start + size]
        start += size
        given = {"reference": [references[row] for row in chosen]}
        parts.append((chosen, reward.score([completions[row] for row in chosen], **given)))
    joined = join_parts(parts)
    assert torch.equal(joined.value, whole.value) or torch.equal(joined.value.nan_to_num(7), whole.value.nan_to_num(7))
    for detail, values in whole.details.items():
        assert torch.equal(joined.details[detail].nan_to_num(7), values.nan_to_num(7)), detail
    assert joined.explanations == whole.explanations
    logged, expected = {}, {}
    assert reward.finish(joined, 23, logged.__setitem__) == reward.finish(whole, 23, expected.__setitem__)
    assert logged == expected
    called = {}
    assert reward(completions, reference=references, log_metric=called.__setitem__) == reward.rewards(whole)
    assert called == expected


@pytest.mark.parametrize(
    "reward",
    [
        make_reward("crg", prior="running"),
        make_reward("overlong", max_length=9, unit="tokens"),
        compose([{"name": "rouge"}, {"name": "crg", "prior": "running"}]),
        compose([{"name": "rouge", "normalize": True}]),
        make_reward("operator:eq", higher_is_better=True),
    ],
    ids=repr,
)
def test_row_scorer_refuses_rewards_that_may_depend_on_other_rows(reward):
    assert not reward.has_independent_rows
    with pytest.raises(ValueError, match=f"reward '{reward.__name__}' cannot be computed in parts"):
        RowScorer([reward])


def test_reward_has_independent_rows_only_if_no_subclass_scores_differently():
    class Ranked(MetricReward):
        def score(self, completions, **columns):
            scores = super().score(completions, **columns)
            scores.value[:] = scores.value.argsort()
            return scores

    metric = make_reward("rouge").metric
    assert MetricReward(metric).has_independent_rows
    assert not Ranked(metric).has_independent_rows


def test_row_scorer_names_a_missing_column():
    scorer = RowScorer([make_reward("rouge")])
    try:
        with pytest.raises(ValueError, match="reads the column 'reference'"):
            scorer.submit(["Normal."], {"report": ["Normal."]})
    finally:
        scorer.close()


class Meets(Judge):
    """A judge that answers when two of its calls are waiting."""

    signature = "meets"
    has_independent_rows = True

    def __init__(self):
        self.waiting = threading.Barrier(2, timeout=30)

    async def evaluate(self, task, items):
        await asyncio.get_running_loop().run_in_executor(None, self.waiting.wait)
        return [CrimsonEvaluation() for _ in items]


def test_row_scorer_calls_of_a_judge_run_concurrently():
    scorer = RowScorer([AsyncMetricReward(CRIMSON(judge=Meets()))])
    try:
        pending = [*scorer.submit(["Edema."], NORMAL), *scorer.submit(["Normal."], NORMAL)]
        assert [float(one.wait().value) for one in pending] == [1.0, 1.0]
    finally:
        scorer.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "rewards"]


def test_row_scorer_scores_with_rewards_of_both_kinds_in_their_order():
    judge = Meets()
    judge.waiting = threading.Barrier(1)
    rewards = [
        make_reward("rouge"),
        AsyncMetricReward(CRIMSON(judge=judge)),
        make_reward("crg", prior=0.2),
    ]
    scorer = RowScorer(rewards)
    try:
        found = [one.wait().value.tolist() for one in scorer.submit(["Cardiomegaly."], NORMAL)]
    finally:
        scorer.close()
    expected = [rewards[place].score(["Cardiomegaly."], **NORMAL).value.tolist() for place in (0, 2)]
    assert found == [expected[0], [1.0], expected[1]]
    assert expected[0] != expected[1]


def test_background_reward_of_a_judge_scores_early_completions_once():
    judge = Meets()
    reward = BackgroundReward(AsyncMetricReward(CRIMSON(judge=judge)))
    try:
        reward.score_early([1], ["Normal."], NORMAL)
        assert asyncio.run(reward(completions=["Edema.", "Normal."], reference=["Edema.", "Normal."])) == [1.0, 1.0]
    finally:
        reward.close()


@pytest.fixture(scope="module")
def in_processes():
    reward = make_reward("crg", background=2, log_explanations=True, transform={"scale": 2.0})
    references = _reports(30, 5)
    yield reward.fit(reference=references)
    reward.close()


@pytest.mark.slow
def test_background_reward_gives_the_rewards_of_the_plain_reward(in_processes):
    plain = make_reward("crg", log_explanations=True, transform={"scale": 2.0}).fit(reference=_reports(30, 5))
    assert (in_processes.signature, in_processes.columns) == (plain.signature, plain.columns)
    completions, references = _reports(11, 6), [*_reports(10, 7), None]
    told = [{}, {}, {}, {}]
    expected = plain(
        completions=completions,
        reference=references,
        log_metric=told[0].__setitem__,
        log_extra=told[1].__setitem__,
    )
    # These completions are known early; the one of row 3 is another one in the end.
    in_processes.score_early([8, 2], [completions[8], completions[2]], {"reference": [references[8], references[2]]})
    in_processes.score_early([3], ["Something else."], {"reference": [references[3]]})
    found = asyncio.run(
        in_processes(
            completions=completions,
            reference=references,
            log_metric=told[2].__setitem__,
            log_extra=told[3].__setitem__,
        )
    )
    assert found == expected
    assert told[2:] == told[:2]


class WaitsForFile(ReportMetric):
    """A metric whose score is whether a file appears."""

    name = "waits_for_file"
    context = ()
    has_independent_rows = True
    signature = "waits_for_file"

    def __init__(self, path):
        super().__init__()
        self.path = path

    def _score(self, preds, target, **_):
        end = time.monotonic() + 30
        while not self.path.exists() and time.monotonic() < end:
            time.sleep(0.01)
        return Scores(torch.full((len(preds),), float(self.path.exists())))


@pytest.mark.slow
def test_background_reward_does_not_block_the_event_loop(tmp_path):
    path = tmp_path / "written"
    reward = BackgroundReward(MetricReward(WaitsForFile(path)))

    async def write():
        path.touch()

    async def both():
        return (await asyncio.gather(reward(completions=["Normal."], reference=["Normal."]), write()))[0]

    try:
        assert asyncio.run(both()) == [1.0]
    finally:
        reward.close()


def test_background_reward_of_no_completion_is_that_of_the_reward():
    reward = pickle.loads(pickle.dumps(make_reward("rouge", background=1)))
    assert asyncio.run(reward.score_async([], reference=[])).value.numel() == 0


def test_background_reward_checks_its_settings():
    assert make_reward("rouge", background=1).processes == 1
    with pytest.raises(ValueError, match="processes must be a positive integer, got 0"):
        make_reward("rouge", background=0)
    with pytest.raises(ValueError, match="reward 'crg' cannot be computed in parts"):
        make_reward("crg", prior="running", background=2)
    local = make_reward("rouge")
    local.metric.variant = lambda: None
    with pytest.raises(SettingError, match="reward 'rouge' cannot be pickled"):
        RowScorer([local], processes=1)
