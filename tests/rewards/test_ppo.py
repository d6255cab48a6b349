"""The reward model that calls rewards, used as PPO's trainer uses it, without the trainer."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tiny_policy import tiny_tokenizer

from rrg_rewards.metrics import Scores
from rrg_rewards.rewards import Reward
from rrg_rewards.rewards.ppo import RewardFunctionModel

PROMPTS = ["lungs edema report", "lungs effusion nodule report", "heart report"]
REFERENCES = ["edema", "effusion", None]


class Overlap(Reward):
    """Number of words of the completion that occur in the reference; unscorable without a reference."""

    signature = "overlap"
    columns = ("reference",)

    def score(self, completions: Sequence[Any], **columns: Any) -> Scores:
        values = [
            math.nan if reference is None else float(sum(word in reference.split() for word in text.split()))
            for text, reference in zip(completions, columns["reference"], strict=True)
        ]
        return Scores(torch.tensor(values), {"seen": torch.tensor([float(len(text.split())) for text in completions])})


class Waited(Overlap):
    async def __call__(self, completions, **given):  # type: ignore[override]
        await asyncio.sleep(0)
        return super().__call__(completions, **given)


@pytest.fixture
def tokenizer():
    return tiny_tokenizer()


def tokens(tokenizer, texts):
    return [tokenizer(text)["input_ids"] for text in texts]


def make(tokenizer, reward=None, **options):
    columns = {"reference": REFERENCES}
    return RewardFunctionModel(reward or Overlap("overlap"), tokenizer, tokens(tokenizer, PROMPTS), columns, **options)


def batch(tokenizer, rows):
    """Prompts padded on the left and completions on the right, as PPO's trainer concatenates them."""
    prompts, completions = zip(*[(tokenizer(p)["input_ids"], tokenizer(c)["input_ids"]) for p, c in rows], strict=True)
    pad = tokenizer.pad_token_id
    longest = [max(map(len, part)) for part in (prompts, completions)]
    ids = torch.tensor(
        [
            [pad] * (longest[0] - len(prompt)) + prompt + completion + [pad] * (longest[1] - len(completion))
            for prompt, completion in zip(prompts, completions, strict=True)
        ]
    )
    mask = ids != pad
    # The trainer writes 0 at padding.
    return {"input_ids": ids.masked_fill(~mask, 0), "attention_mask": mask}


ROWS = [
    (PROMPTS[1], "effusion effusion <eos>"),
    (PROMPTS[0], "edema <eos>"),
    (PROMPTS[1], "<eos>"),
    (PROMPTS[0], "effusion edema edema heart"),
]


def test_reward_function_model_every_token_gets_its_completions_reward(tokenizer):
    model = make(tokenizer)
    inputs = batch(tokenizer, ROWS)
    output = getattr(model, model.base_model_prefix)(**inputs, position_ids=None, return_dict=True, use_cache=False)
    scores = model.score(output.hidden_states[-1])
    assert scores.shape == (*inputs["input_ids"].shape, 1)
    assert scores[..., 0].tolist() == [[value] * scores.shape[1] for value in (2.0, 1.0, 0.0, 2.0)]
    assert torch.equal(model(**inputs), scores)
    assert not list(model.parameters())


def test_reward_function_model_weighted_sums_and_rewards_that_are_waited_for(tokenizer):
    model = make(tokenizer, [Overlap("one"), Waited("two")], weights=[1.0, -0.5])
    assert model(**batch(tokenizer, ROWS))[:, 0, 0].tolist() == [1.0, 0.5, 0.0, 1.0]


def test_reward_function_model_what_rewards_log_is_kept_for_the_trainer(tokenizer):
    model = make(tokenizer, unscorable=-1.0)
    model(**batch(tokenizer, ROWS[:2]))
    model(**batch(tokenizer, [(PROMPTS[2], "heart")]))
    further = {"overlap/extracted": 0.0, "overlap/empty": 0.0}
    assert model.take_logged() == {"overlap/seen": pytest.approx(1.25), "overlap/unscorable": 0.5, **further}
    assert model.take_logged() == {}


def test_reward_function_model_the_unscorable(tokenizer):
    rows = [(PROMPTS[2], "heart")]
    with pytest.raises(ValueError, match="'overlap' cannot score the completion of row 2, and PPO requires a number"):
        make(tokenizer)(**batch(tokenizer, rows))
    assert make(tokenizer, unscorable=-2.0)(**batch(tokenizer, rows))[0, 0, 0] == -2.0


def test_reward_function_model_a_prompt_that_nobody_knows(tokenizer):
    with pytest.raises(ValueError, match="begins with no known prompt"):
        make(tokenizer)(**batch(tokenizer, [("normal report", "heart")]))


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (["lungs report", "heart report", "lungs report"], "rows 0 and 2 have the same prompt"),
        (["lungs heart", "heart", "lungs heart edema"], "prompt of row 2 begins with that of row 0"),
        (["lungs", "", "heart"], "the prompt of row 1 is empty"),
        (["lungs", "heart"], "column 'reference' has 3 values, but there are 2 prompts"),
    ],
)
def test_reward_function_model_prompts_that_cannot_be_told_apart(tokenizer, prompts, message):
    with pytest.raises(ValueError, match=message):
        RewardFunctionModel(Overlap("x"), tokenizer, tokens(tokenizer, prompts), {"reference": REFERENCES})


def test_reward_function_model_settings_that_cannot_be(tokenizer):
    with pytest.raises(ValueError, match="columns lacks 'reference', which a reward reads; it has report"):
        RewardFunctionModel(Overlap("x"), tokenizer, tokens(tokenizer, PROMPTS), {"report": REFERENCES})
    with pytest.raises(ValueError, match="1 rewards, 2 weights"):
        make(tokenizer, weights=[1, 2])
    with pytest.raises(ValueError, match="unscorable must be a finite number"):
        make(tokenizer, unscorable=math.nan)
    tokenizer.pad_token = tokenizer.eos_token
    with pytest.raises(ValueError, match="a padding token that differs from the end of text"):
        make(tokenizer)
