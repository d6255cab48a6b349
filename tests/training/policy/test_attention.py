"""Attention of rows that continue their prompts: the results of transformers' SDPA."""

from contextlib import nullcontext

import pytest
import torch
from tiny_generator import tiny_rows
from tiny_policy import tiny_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from rrg_rewards.training import CausalLMGenerator
from rrg_rewards.training.policy import attention, hf_generators, shared_prompts
from rrg_rewards.training.policy.attention import continued_attention
from rrg_rewards.training.policy.generators import repeat_rows


def _model(attn_implementation="sdpa"):
    torch.manual_seed(0)
    # Two query heads share keys and values.
    config = LlamaConfig(
        vocab_size=14, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, initializer_range=0.3,
        attn_implementation=attn_implementation,
    )  # fmt: skip
    return LlamaForCausalLM(config)


@pytest.fixture(params=["padded", "unpadded"])
def made(request, monkeypatch):
    monkeypatch.setattr(attention, "_BLOCK", 3)
    generator = CausalLMGenerator(_model(), tiny_tokenizer(), max_new_tokens=12).eval()
    chosen = [0, 1, 2] if request.param == "padded" else [0, 3]
    prompts = generator.collate([tiny_rows(4)[row] for row in chosen])
    assert bool(prompts["attention_mask"].all()) == (request.param == "unpadded")
    return generator, repeat_rows(prompts, 4)


def _scores(generator, rows, completions):
    generator.zero_grad()
    scores = generator.log_probs(rows, completions)
    (scores.log_probs * completions.mask).square().sum().backward()
    return scores.log_probs, torch.cat([weight.grad.flatten() for weight in generator.parameters()])


def test_continued_attention_completions_scores_and_gradients_are_those_of_sdpa(made, monkeypatch):
    generator, rows = made

    def sampled():
        torch.manual_seed(1)
        return generator.sample(rows)

    found = sampled()
    # Queries in several blocks, and rows of different lengths.
    assert found.tokens.shape[1] > 6
    assert found.lengths.min() < found.tokens.shape[1]
    scores, gradient = _scores(generator, rows, found)
    for module in (hf_generators, shared_prompts):
        monkeypatch.setattr(module, "continued_attention", lambda model: nullcontext())
    assert torch.equal(found.tokens, sampled().tokens)
    expected, expected_gradient = _scores(generator, rows, found)
    inside = found.mask.bool()
    torch.testing.assert_close(scores[inside], expected[inside], atol=1e-5, rtol=1e-5)
    assert (gradient - expected_gradient).norm() < 1e-5 * expected_gradient.norm()


def test_continued_attention_the_mask_has_one_row_without_padding(made, monkeypatch):
    generator, rows = made
    shapes = []
    own = attention.sdpa_attention_forward

    def recorded(module, query, key, value, mask, *others, **named):
        shapes.append(None if mask is None else tuple(mask.shape))
        return own(module, query, key, value, mask, *others, **named)

    torch.manual_seed(1)
    completions = generator.sample(rows)
    monkeypatch.setattr(attention, "sdpa_attention_forward", recorded)
    generator.log_probs(rows, completions)
    prompt = rows["input_ids"].shape[1]
    continued = [shape for shape in shapes if shape is not None and shape[-1] > prompt]
    if not rows["attention_mask"].all():
        assert {shape[0] for shape in continued} == {len(rows["prompt"])}
    else:
        # Blocks of three queries see no keys after their last query.
        assert {shape[0] for shape in continued} == {1}
        assert {shape[-1] - prompt for shape in continued if shape[2] == 3} >= {3, 6}


def test_continued_attention_applies_inside_its_context_to_sdpa_only():
    model = _model()
    with continued_attention(model):
        assert model.config._attn_implementation != "sdpa"
    assert model.config._attn_implementation == "sdpa"
    with pytest.raises(RuntimeError, match="inside"), continued_attention(model):
        raise RuntimeError("inside")
    assert model.config._attn_implementation == "sdpa"
    eager = _model("eager")
    with continued_attention(eager):
        assert eager.config._attn_implementation == "eager"
