"""Rows with the same prompt: one computation of the prompt, with the results of computing each row."""

import math
import random
from itertools import pairwise, product

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from tiny_ct_chat import save_volumes, tiny_ct_chat, tiny_processor
from tiny_generator import tiny_generator, tiny_rows
from tiny_policy import sliding_model, tiny_model, tiny_tokenizer
from transformers import GraniteConfig, GraniteForCausalLM

from rrg_rewards.functional import token_log_probs
from rrg_rewards.training import CausalLMGenerator, CTChatGenerator
from rrg_rewards.training.policy import generators, hf_generators, shared_prompts
from rrg_rewards.training.policy.adapters import adapters_merged
from rrg_rewards.training.policy.generators import RepeatedRows, repeat_rows
from rrg_rewards.training.policy.shared_prompts import (
    Prompts,
    new_cache,
    parts_of_similar_length,
    sample_tokens,
)


def _text():
    generator = tiny_generator(6)
    torch.nn.init.normal_(generator.model.lm_head.weight)
    return generator, generator.collate(tiny_rows(5))


def _ct_chat(folder):
    processor = tiny_processor()
    generator = CTChatGenerator(tiny_ct_chat(processor), processor, max_new_tokens=6)
    # Two rows differ by their volume only.
    contents = ["report", "report", "report report", "report report report"]
    rows = [
        {"prompt": [{"role": "user", "content": content}], "image": path}
        for content, path in zip(contents, save_volumes(folder, 4), strict=True)
    ]
    return generator, generator.collate(rows)


@pytest.fixture(params=["text", "ct_chat"])
def made(request, tmp_path):
    generator, batch = _text() if request.param == "text" else _ct_chat(tmp_path)
    return generator.eval(), batch


def test_causal_lm_generator_computes_prompts_once_under_gradient_checkpointing(made, monkeypatch):
    generator, batch = made
    rows = repeat_rows(batch, 3)
    completions = generator.sample(rows)
    monkeypatch.setattr(generators, "_TILE", 100)
    computed = []
    layer = next(own for own in generator.model.modules() if type(own).__name__ == "LlamaDecoderLayer")
    layer.register_forward_pre_hook(lambda _, inputs: computed.append(len(inputs[0])))
    expected, gradient = _scores(generator, rows, completions)
    generator.model.gradient_checkpointing_enable()
    generator.train()
    again = _scores(generator, rows, completions)
    prompts = len(batch["input_ids"])
    # The first call shows that logits are the outputs of the head.
    assert computed[0] == 1
    assert computed[1:] == [prompts, 3 * prompts] * 2
    torch.testing.assert_close(again[0].log_probs, expected.log_probs, atol=1e-5, rtol=1e-5)
    assert (again[1] - gradient).norm() < 1e-5 * gradient.norm()
    assert not layer._can_checkpoint_with_cache


def _scores(generator, batch, completions):
    generator.zero_grad()
    scores = generator.log_probs(batch, completions)
    (scores.log_probs * completions.mask).square().sum().backward()
    gradient = torch.cat([weight.grad.flatten() for weight in generator.parameters() if weight.grad is not None])
    return scores, gradient


@pytest.mark.parametrize("tokens_per_call", [0, 64])
def test_causal_lm_generator_scores_and_gradients_are_those_of_whole_rows(made, monkeypatch, tokens_per_call):
    monkeypatch.setattr(shared_prompts, "_TOKENS_PER_CALL", tokens_per_call)
    generator, batch = made
    rows = repeat_rows(batch, 3).take(torch.tensor([4, 0, 9, 3, 5, 1, 8, 10]))
    torch.manual_seed(1)
    completions = generator.sample(rows)
    read, predicted = [], []
    monkeypatch.setattr(Prompts, "read", lambda self, *args, of=Prompts.read: read.append(len(self)) or of(self, *args))
    head = generator.model.get_output_embeddings()
    head.forward = lambda states, of=head.forward: predicted.append(states[..., 0].numel()) or of(states)
    monkeypatch.setattr(generators, "_TILE", 3 * len(head.weight))
    tiles = [_scores(generator, rows, completions)]
    assert generator._ends_with_head
    assert max(predicted) == 3
    monkeypatch.setattr(hf_generators, "new_cache", lambda model: None)
    tiles.append(_scores(generator, rows, completions))
    # Of whole rows, without tiles.
    generator._ends_with_head = False
    whole, expected = _scores(generator, rows, completions)
    assert max(predicted) == completions.tokens.numel() + len(completions)
    assert read == [4]
    inside = completions.mask.bool()
    for found, gradient in tiles:
        for name in ("log_probs", "entropies", "hidden"):
            torch.testing.assert_close(getattr(found, name)[inside], getattr(whole, name)[inside], atol=1e-5, rtol=1e-5)
        assert (gradient - expected).norm() < 1e-5 * expected.norm()


def test_causal_lm_generator_logits_that_the_model_scales_after_its_head():
    sizes = {"vocab_size": 14, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    model = GraniteForCausalLM(GraniteConfig(**sizes, num_attention_heads=2, logits_scaling=0.01, pad_token_id=0))
    generator = CausalLMGenerator(model.eval(), tiny_tokenizer(), max_new_tokens=4)
    rows = repeat_rows(generator.collate(tiny_rows(2)), 2)
    completions = generator.sample(rows)
    found = generator.log_probs(rows, completions).log_probs
    ids = torch.cat([rows["input_ids"], completions.tokens], dim=1)
    mask = torch.cat([rows["attention_mask"], completions.mask], dim=1)
    logits = model(input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits
    expected = token_log_probs(logits[:, -completions.tokens.shape[1] - 1 : -1], completions.tokens)
    inside = completions.mask.bool()
    torch.testing.assert_close(found[inside], expected[inside], atol=1e-5, rtol=1e-5)


def test_causal_lm_generator_completions_of_one_token(made):
    generator, batch = made
    generator.max_new_tokens = 1
    rows = repeat_rows(batch, 2)
    completions = generator.sample(rows)
    assert completions.tokens.shape == (len(rows["prompt"]), 1)
    alone = generator.log_probs(rows.take(torch.tensor([2])), completions.rows(torch.tensor([2])))
    together = generator.log_probs(rows, completions)
    torch.testing.assert_close(together.log_probs[2:3], alone.log_probs, atol=1e-5, rtol=1e-5)


def test_causal_lm_generator_the_samplers_probabilities_are_those_of_the_scores(made):
    generator, batch = made
    generator.merge_adapters, generator.temperature, generator.max_new_tokens = True, 3.0, 12
    rows = repeat_rows(batch, 8)
    torch.manual_seed(0)
    completions = generator.sample(rows)
    inside = completions.mask.bool()
    # Some rows end early and are removed from the batch.
    assert 0 < inside.sum() < inside.numel()
    expected = generator.log_probs(rows, completions).log_probs
    torch.testing.assert_close(completions.log_probs[inside], expected[inside], atol=1e-5, rtol=1e-5)
    greedy = generator.sample(rows, greedy=True)
    assert greedy.log_probs is None
    generator.merge_adapters = False
    assert generator.sample(rows, greedy=True).token_lists() == greedy.token_lists()


@pytest.mark.parametrize("room", [0, 1, 3])
def test_sample_completions_keys_and_values_with_room_give_the_tokens_of_a_cache_without(made, monkeypatch, room):
    generator, batch = made
    generator.merge_adapters, generator.temperature, generator.max_new_tokens = True, 3.0, 12
    rows = repeat_rows(batch, 8)

    def sampled():
        torch.manual_seed(3)
        return generator.sample(rows)

    monkeypatch.setattr(shared_prompts, "_ROOM", room)
    found = sampled()
    monkeypatch.setattr(
        Prompts, "extensible_copies", lambda self, cache: self.copies(cache, torch.arange(len(self.index)))
    )
    expected = sampled()
    # Some rows end early and are removed from the batch.
    assert found.lengths.min() < found.tokens.shape[1]
    assert torch.equal(found.tokens, expected.tokens)
    torch.testing.assert_close(found.log_probs, expected.log_probs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("rows", "kept"), [([0, 0, 1, 2, 2], [0, 1, 2]), ([2, 0, 2, 2], [2, 0])])
def test_prompts_are_those_of_the_rows_in_their_order(rows, kept):
    ids, pixels = torch.tensor([[0, 4], [5, 6], [0, 7]]), torch.rand(3, 1, 2)
    batch = {"input_ids": ids, "attention_mask": (ids > 0).long(), "pixel_values": pixels, "prompt": ["a", "b", "c"]}
    prompts = Prompts(RepeatedRows(batch, torch.tensor(rows)))
    assert [kept[number] for number in prompts.index.tolist()] == rows
    assert torch.equal(prompts.inputs["pixel_values"], pixels[kept])
    # A batch of which all rows are read is not copied.
    assert (prompts.inputs["pixel_values"] is pixels) == (len(kept) == 3)
    # The padding of all rows is left out.
    assert prompts.is_padded == (1 in rows)
    assert prompts.mask.tolist() == (batch["attention_mask"][rows] if 1 in rows else torch.ones(len(rows), 1)).tolist()


def test_sample_tokens_samples_have_the_frequencies_of_the_model():
    generator, batch = _text()
    generator.eval()
    generator.max_new_tokens = 2
    rows = RepeatedRows(batch, torch.ones(4000, dtype=torch.long))
    torch.manual_seed(0)
    tokens = generator.sample(rows).tokens
    one = RepeatedRows(batch, torch.tensor([1]))
    logits = generator.model(input_ids=one["input_ids"], attention_mask=one["attention_mask"]).logits[0, -1]
    expected = logits.softmax(0)
    seen = tokens[:, 0].bincount(minlength=len(expected)) / 4000
    error = (expected * (1 - expected) / 4000).sqrt()
    assert ((seen - expected).abs() <= 4 * error + 1e-9).all()


@pytest.mark.slow
def test_sample_tokens_rare_tokens_are_drawn_as_often_as_they_should_be():
    # In float32, probabilities of 1e-8 vanish in a sum near 1.
    logits = torch.full((1, 200_001), math.log(1e-7))
    logits[0, 0] = 0.0
    torch.manual_seed(0)
    tokens, log_probs = sample_tokens(logits.expand(1000, -1))
    share = 200_000 * 1e-7 / (1 + 200_000 * 1e-7)
    assert abs((tokens > 0).float().mean().item() - share) < 4 * math.sqrt(share * (1 - share) / 1000)
    assert torch.allclose(log_probs, logits[0].log_softmax(0)[tokens], atol=1e-5)


def test_sample_tokens_a_token_without_probability_is_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(1000, -1)
    assert set(sample_tokens(logits)[0].tolist()) == {1, 3}


def test_adapters_merged_merged_adapters_leave_the_weights_unchanged():
    torch.manual_seed(0)
    model = get_peft_model(
        tiny_model().to(torch.bfloat16), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    )
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    ids = torch.tensor([[4, 5, 6]])
    expected = model(input_ids=ids).logits
    with adapters_merged(model):
        merged = model(input_ids=ids).logits
        assert any(not torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    torch.testing.assert_close(merged, expected, atol=0.05, rtol=0.05)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert torch.equal(model(input_ids=ids).logits, expected)


def _checkpointing():
    model = tiny_model()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    return model.train()


def _prompt_tuning():
    return get_peft_model(tiny_model(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))


@pytest.mark.parametrize("make", [sliding_model, _checkpointing, _prompt_tuning])
def test_causal_lm_generator_models_that_cannot_share_compute_whole_rows(make):
    torch.manual_seed(0)
    model = make()
    assert new_cache(model) is None
    assert new_cache(tiny_model()) is not None
    generator = CausalLMGenerator(model, tiny_tokenizer(), max_new_tokens=4)
    rows = repeat_rows(generator.collate(tiny_rows(3)), 2)
    completions = generator.sample(rows)
    if make is not _prompt_tuning:
        assert generator.log_probs(rows, completions).log_probs.shape == completions.tokens.shape


@pytest.mark.parametrize("is_cpu", [True, False])
def test_parts_of_similar_length_have_the_least_padding_and_limited_numbers_of_tokens(is_cpu, monkeypatch):
    monkeypatch.setattr(shared_prompts, "_MOST_TOKENS_ON_CPU", 60)
    monkeypatch.setattr(shared_prompts, "_TOKENS_PER_CALL", 9)
    monkeypatch.setattr(shared_prompts, "_TOKENS_PER_CALL_ON_GPU", 9)
    lengths = torch.tensor([20, 7, 20, 100, 5, 18, 3, 20])
    ordered = sorted(lengths.tolist())
    costs = {}
    for cuts in product([False, True], repeat=7):
        ends = [0, *(place for place, is_cut in enumerate(cuts, 1) if is_cut), 8]
        tokens = [(end - start, ordered[end - 1]) for start, end in pairwise(ends)]
        # One row may have more.
        if not is_cpu or all(rows == 1 or rows * longest <= 60 for rows, longest in tokens):
            costs[cuts] = sum(rows * longest + 9 for rows, longest in tokens)
    parts = parts_of_similar_length(lengths, is_cpu)
    assert sorted(torch.cat(parts).tolist()) == list(range(8))
    assert sum(len(part) * int(lengths[part].max()) + 9 for part in parts) == min(costs.values())
    assert not is_cpu or all(len(part) == 1 or len(part) * int(lengths[part].max()) <= 60 for part in parts)


@pytest.mark.parametrize("is_cpu", [True, False])
def test_parts_of_similar_length_of_many_rows_are_those_of_all_starts(is_cpu, monkeypatch):
    draws = random.Random(0)
    for most, call, longest in product([1, 60, 8192], [0, 9, 100], [1, 9, 90]):
        for name, value in (
            ("_MOST_TOKENS_ON_CPU", most),
            ("_TOKENS_PER_CALL", call),
            ("_TOKENS_PER_CALL_ON_GPU", call),
        ):
            monkeypatch.setattr(shared_prompts, name, value)
        lengths = torch.tensor([draws.randint(0, longest) for _ in range(draws.randint(1, 60))])
        order, best = lengths.argsort(), [(0, 0)]
        for end, length in enumerate(lengths[order].tolist(), 1):
            starts = range(max(0, end - max(1, most // max(length, 1))) if is_cpu else 0, end)
            best.append(min((best[start][0] + (end - start) * length + call, start) for start in starts))
        ends = [len(order)]
        while ends[0]:
            ends.insert(0, best[ends[0]][1])
        expected = [order[start:end].tolist() for start, end in pairwise(ends)]
        assert [part.tolist() for part in parts_of_similar_length(lengths, is_cpu)] == expected
