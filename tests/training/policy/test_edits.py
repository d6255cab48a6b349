"""Completions that are edited towards the reference: rows, tokens, rewards, advantages and loss by brute force."""

from dataclasses import dataclass

import pytest
import torch
from tiny_generator import PlainSteps, tiny_generator, train, weights, word_value

from rrg_rewards.functional import group_advantages, policy_loss
from rrg_rewards.training import Completions, EditSettings, PolicyModule
from rrg_rewards.training.policy.edits import Edited, edit_statistics, replace_by_edited

CLIP, RATE = 0.2, 0.5


@dataclass(frozen=True)
class SaysReference(EditSettings):
    """Writes a completion anew with words that the tiny tokenizer knows."""

    def __call__(self, completion, reference):
        return f"heart {reference.split()[0]}"


class Keeps(PlainSteps):
    """Keeps what training steps use, and the loss."""

    def training_step(self, batch, batch_idx):
        before = weights(self.generator)
        loss = super().training_step(batch, batch_idx)
        self.steps = [*getattr(self, "steps", []), (self.rollout, before, float(loss.detach()), self._edited)]
        return loss


def _completions(generator, texts):
    rows = generator.encode(texts)
    tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    return Completions.until_end(tokens, generator.end_token_ids)


def test_replace_by_edited_puts_edited_completions_in_the_place_of_others_of_their_group():
    generator = tiny_generator()
    texts = ["edema", "nodule", "effusion", "normal", "edema edema", "lungs", "report", "heart"]
    completions = _completions(generator, texts)
    references = ["nodule"] * 4 + ["edema"] * 4
    found = replace_by_edited(completions, texts, references, generator, SaysReference(), 4, seed=5)
    assert len(found.sources) == len(found.targets) == 4
    assert not set(found.sources) & set(found.targets)
    assert [row // 4 for row in found.sources] == [row // 4 for row in found.targets] == [0, 0, 1, 1]
    expected = list(texts)
    for target in found.targets:
        expected[target] = "heart nodule" if target < 4 else "heart edema"
    assert generator.decode(found.completions) == expected
    assert found.completions.finished.all()
    assert completions.token_lists() == _completions(generator, texts).token_lists()
    again = replace_by_edited(completions, texts, references, generator, SaysReference(), 4, seed=5)
    assert again.targets == found.targets


def test_replace_by_edited_leaves_out_what_does_not_fit_and_what_did_not_end():
    @dataclass(frozen=True)
    class Writes(EditSettings):
        text: str = ""

        def __call__(self, completion, reference):
            return self.text

    generator = tiny_generator(4)
    texts = ["edema", "nodule", "effusion", "normal"]
    completions = _completions(generator, texts)
    for text in ("heart heart heart heart", "cardiomegaly"):
        found = replace_by_edited(completions, texts, ["edema"] * 4, generator, Writes(text=text), 4, seed=0)
        assert found == Edited(completions, [], [], 2)
    for references in ([None] * 4, texts):
        settings = EditSettings() if references == texts else Writes(text="heart")
        assert replace_by_edited(completions, texts, references, generator, settings, 4, seed=0) == (
            completions,
            [],
            [],
            0,
        )
    unended = Completions(completions.tokens, completions.mask, torch.zeros(4, dtype=torch.bool))
    assert not replace_by_edited(unended, texts, ["edema"] * 4, generator, Writes(text="heart"), 4, seed=0).targets


def test_replace_by_edited_sampler_log_probs_of_edited_completions_are_unknown():
    generator = tiny_generator()
    texts = ["edema", "nodule"]
    plain = _completions(generator, texts)
    sampled = Completions(plain.tokens, plain.mask, plain.finished, torch.full(plain.tokens.shape, -0.5))
    found = replace_by_edited(sampled, texts, ["edema", "edema"], generator, SaysReference(), 2, seed=0)
    (target,) = found.targets
    assert found.completions.log_probs[target].isnan().all()
    assert (found.completions.log_probs[1 - target][:2] == -0.5).all()


@pytest.mark.parametrize(("algorithm", "minibatches"), [("grpo", 1), ("dr_grpo", 2)])
def test_policy_module_the_loss_of_edited_completions_is_that_of_the_formula(algorithm, minibatches):
    options = {"num_generations": 4, "minibatches": minibatches, "learning_rate": 0.5, "edits": SaysReference()}
    module = Keeps(tiny_generator(), word_value, algorithm=algorithm, **options)
    train(module, minibatches, batch_size=2)
    rollout, before, _, edited = module.steps[0]
    assert edited.targets
    for target in edited.targets:
        assert rollout.texts[target] == f"heart {rollout.batch['reference'][target].split()[0]}"
    rewards = torch.tensor(word_value(rollout.texts))
    assert torch.allclose(rollout.total, rewards)
    scale = "group" if algorithm == "grpo" else "none"
    advantages = group_advantages(rewards, 4, scale=scale)
    assert torch.allclose(rollout.advantages, advantages.to(rollout.advantages))
    # The policy before the first step scores all tokens, sampled and edited ones.
    generator = tiny_generator()
    torch.nn.utils.vector_to_parameters(before, generator.parameters())
    old = generator.log_probs(rollout.batch, rollout.completions).log_probs.detach()
    if minibatches > 1:
        assert torch.allclose(rollout.old_log_probs * rollout.mask, old * rollout.mask, atol=1e-5)
    torch.nn.utils.vector_to_parameters(module.steps[-1][1], generator.parameters())
    rows = torch.arange(8) if minibatches == 1 else module._minibatch(minibatches - 1, 0, minibatches - 1)
    now = generator.log_probs(rollout.batch, rollout.completions).log_probs
    extra = {"aggregation": "constant", "normalizer": 4} if algorithm == "dr_grpo" else {}
    mask = rollout.completions.mask
    parts = [values[rows] for values in (now, old, advantages, mask)]
    expected = policy_loss(*parts, **extra).loss
    assert module.steps[-1][2] == pytest.approx(float(expected), abs=1e-5)


def test_policy_module_edits_are_logged_and_equal_in_a_thread():
    runs = []
    for overlap in (None, "thread"):
        module = PolicyModule(
            tiny_generator(), word_value, num_generations=4, edits=SaysReference(share=0.25), overlap_rewards=overlap
        )
        history = train(module, 2)
        runs.append((weights(module.generator), history.rows))
    assert torch.equal(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]
    assert runs[0][1][0]["edits/replaced"] <= 0.25
    assert "edits/reward_gain" in runs[0][1][0]


def test_edit_statistics_are_means_over_the_edited_completions():
    total = torch.tensor([0.0, 1.0, float("nan"), 0.5])
    edited = Edited(_completions(tiny_generator(), ["edema"] * 4), [0, 2], [1, 3], 1)
    assert edit_statistics(edited, total) == {"edits/replaced": 0.5, "edits/unfit": 0.25, "edits/reward_gain": 1.0}


def test_policy_module_refuses_edits_that_it_cannot_make():
    with pytest.raises(ValueError, match="edits need groups of completions, which ppo does not compare"):
        PolicyModule(tiny_generator(), word_value, algorithm="ppo", edits=EditSettings())
    with pytest.raises(ValueError, match="share of edited completions must be above 0"):
        EditSettings(share=0.6)
    with pytest.raises(ValueError, match="greatest number of edits must be at least 1 or None, got 0"):
        EditSettings(most=0)
    module = PolicyModule(tiny_generator(), word_value, edits=EditSettings(), reference_column="repotr")
    with pytest.raises(ValueError, match=r"edits need references: .*repotr"):
        train(module, 1)
    generator = tiny_generator()
    generator.encode = None
    with pytest.raises(TypeError, match="edits need a generator with the method encode"):
        PolicyModule(generator, word_value, edits=EditSettings())


class KeepsRollout(PlainSteps):
    """Keeps the rollout, and the rows of each step."""

    def training_step(self, batch, batch_idx):
        if batch_idx == 0:
            self.kept, self.edited, self.rows = self.rollout, self._edited, []
        return super().training_step(batch, batch_idx)

    def _minibatch(self, *given):
        self.rows.append(super()._minibatch(*given))
        return self.rows[-1]


def _log_probs(model, tokenizer, prompt, tokens):
    """Log-probabilities of the tokens after a prompt: one row, no padding, no cache."""
    start = tokenizer(prompt)["input_ids"]
    logits = model(torch.tensor([[*start, *tokens]])).logits[0, len(start) - 1 : -1]
    return logits.log_softmax(-1)[range(len(tokens)), tokens]


def _advantages(rewards, algorithm):
    found = []
    for first in range(0, len(rewards), 4):
        group = rewards[first : first + 4]
        mean = sum(group) / 4
        deviation = (sum((reward - mean) ** 2 for reward in group) / 3) ** 0.5
        scale = {"grpo": 1 / (deviation + 1e-4), "dr_grpo": 1.0, "rloo": 4 / 3}[algorithm]
        found += [(reward - mean) * scale for reward in group]
    return found


def _row_loss(algorithm, now, old, advantage, limit):
    ratio = (now - old).exp() if algorithm != "rloo" else (now - old).sum().exp()
    terms = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    # RLOO has one ratio of a sequence, so its loss is one term.
    return -terms.sum() / limit if algorithm == "dr_grpo" else -terms.mean()


@pytest.mark.parametrize("algorithm", ["grpo", "dr_grpo", "rloo"])
def test_policy_module_steps_on_edited_completions_are_those_of_the_formula(algorithm):
    options = {"algorithm": algorithm, "num_generations": 4, "minibatches": 2, "epochs": 2, "learning_rate": RATE}
    module = KeepsRollout(tiny_generator(), word_value, edits=SaysReference(), **options)
    train(module, 4, batch_size=2)
    rollout, rows = module.kept, module.rows
    assert module.edited.targets
    generator = tiny_generator()
    model, tokenizer = generator.model, generator.tokenizer
    start = weights(generator)
    tokens = rollout.completions.token_lists()
    for target in module.edited.targets:
        words = tokenizer.convert_tokens_to_ids(["heart", rollout.batch["reference"][target]])
        assert tokens[target] == [*words, tokenizer.eos_token_id]
    advantages = _advantages(word_value(rollout.texts), algorithm)
    prompts = rollout.batch["prompt"]
    with torch.no_grad():
        old = [_log_probs(model, tokenizer, *pair) for pair in zip(prompts, tokens, strict=True)]
    for step in rows:
        model.zero_grad()
        losses = [
            _row_loss(algorithm, _log_probs(model, tokenizer, prompts[row], tokens[row]), old[row], advantages[row], 4)
            for row in step.tolist()
        ]
        (sum(losses) / len(losses)).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= RATE * parameter.grad
    expected = weights(generator)
    assert (expected - start).abs().max() > 1e-2
    torch.testing.assert_close(weights(module.generator), expected, rtol=0, atol=1e-5)
