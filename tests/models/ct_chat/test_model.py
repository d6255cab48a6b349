"""CT-CHAT as a transformers model, with its projector and configuration: generation, padding, training and saving."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_ct_chat import CHANNELS, QUERIES, tiny_ct_chat, tiny_processor, volume
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    MistralConfig,
)

from rrg_rewards.models import CTChatConfig, CTChatForConditionalGeneration, CTChatModel, CTChatProcessor

# Prompts of several lengths, with and without a volume.
PROMPTS = [
    "<image> edema <report_generation>",
    "lungs normal heart",
    "heart lungs <image> nodule effusion report",
    "edema",
]
VOLUMES = [volume(0), None, volume(1), None]


@pytest.fixture(scope="module")
def processor() -> Any:
    return tiny_processor()


@pytest.fixture
def model(processor: Any) -> Any:
    return tiny_ct_chat(processor).eval()


def batch(processor: Any, rows: list[int], side: str = "left") -> Any:
    images = [VOLUMES[row] for row in rows]
    return processor(
        text=[PROMPTS[row] for row in rows], images=images, padding=True, padding_side=side, return_tensors="pt"
    )


def generate(model: Any, inputs: Any, **options: Any) -> Tensor:
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, **options}
    return model.generate(**inputs, **options)[:, inputs["input_ids"].shape[1] :]


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_ct_chat_cache_changes_nothing(processor: Any, model: Any, kind: str) -> None:
    if kind == "mistral":
        settings = {k: v for k, v in model.config.text_config.to_dict().items() if k not in ("model_type", "head_dim")}
        model = tiny_with_text(processor, MistralConfig(**settings, sliding_window=None))
    inputs = batch(processor, [0, 1, 2, 3])
    expected = generate(model, inputs)
    assert torch.equal(generate(model, inputs, use_cache=False), expected)
    # As transformers compiles steps on a GPU, with keys and values of a fixed size.
    assert model._can_compile_fullgraph
    assert torch.equal(generate(model, inputs, cache_implementation="static"), expected)


def tiny_with_text(processor: Any, text_config: Any) -> Any:
    torch.manual_seed(3)
    return CTChatForConditionalGeneration(
        CTChatConfig(text_config, num_image_tokens=QUERIES, feature_size=CHANNELS, pooler_heads=4)
    ).eval()


def test_ct_chat_batched_and_left_padded_equals_one_by_one(processor: Any, model: Any) -> None:
    together = generate(model, batch(processor, [0, 1, 2, 3]))
    alone = [generate(model, batch(processor, [row]))[0] for row in range(4)]
    assert torch.equal(together, torch.stack(alone))
    # The outputs must depend on the inputs.
    assert len({tuple(row.tolist()) for row in together}) == 4


def test_ct_chat_logits_of_padded_rows_are_those_of_single_ones(processor: Any, model: Any) -> None:
    for side in ("left", "right"):
        inputs = batch(processor, [2, 0], side)
        logits = model(**inputs).logits
        for row, prompt in enumerate((2, 0)):
            own = model(**batch(processor, [prompt])).logits[0]
            torch.testing.assert_close(logits[row][inputs["attention_mask"][row].bool()], own, rtol=1e-4, atol=1e-5)


def test_ct_chat_volumes_go_to_their_own_prompts(processor: Any, model: Any) -> None:
    two = [PROMPTS[0]] * 2
    one_way = processor(text=two, images=[volume(0), volume(1)], return_tensors="pt")
    other_way = processor(text=two, images=[volume(1), volume(0)], return_tensors="pt")
    torch.testing.assert_close(model(**one_way).logits, model(**other_way).logits.flip(0))
    assert not torch.allclose(model(**one_way).logits[0], model(**one_way).logits[1], atol=1e-2)


def test_ct_chat_several_sequences_of_a_prompt_see_its_volume(processor: Any, model: Any) -> None:
    inputs = batch(processor, [0, 1, 2])
    found = generate(model, inputs, num_beams=2, num_return_sequences=2)
    alone = [generate(model, batch(processor, [row]), num_beams=2, num_return_sequences=2) for row in range(3)]
    assert torch.equal(found, torch.cat(alone))


@pytest.mark.parametrize("option", [{"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2}])
def test_ct_chat_logits_processors_take_image_tokens(processor: Any, model: Any, option: dict[str, Any]) -> None:
    together = generate(model, batch(processor, [0, 1, 2]), **option)
    assert torch.equal(together[0], generate(model, batch(processor, [0]), **option)[0])
    assert not torch.equal(together, generate(model, batch(processor, [0, 1, 2])))


def test_ct_chat_every_attention_gives_the_same(processor: Any, model: Any) -> None:
    inputs = batch(processor, [0, 1, 2])
    assert model.config._attn_implementation == "sdpa"
    mask = inputs["attention_mask"].bool()
    expected = model(**inputs).logits[mask]
    model.set_attn_implementation("eager")
    assert model.model.language_model.config._attn_implementation == "eager"
    torch.testing.assert_close(model(**inputs).logits[mask], expected, rtol=1e-4, atol=1e-5)


def gradients(model: Any, inputs: Any) -> dict[str, Tensor]:
    model.zero_grad()
    model(**inputs, labels=inputs["input_ids"]).loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("reentrant", [False, True])
def test_ct_chat_gradient_checkpointing_changes_no_gradient(processor: Any, model: Any, reentrant: bool) -> None:
    model.train()
    inputs = batch(processor, [0, 1, 2])
    expected = gradients(model, inputs)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    assert model.is_gradient_checkpointing
    if reentrant:
        model.enable_input_require_grads()
    found = gradients(model, inputs)
    assert found.keys() == expected.keys() == dict(model.named_parameters()).keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def test_ct_chat_loss_leaves_soft_tokens_out(processor: Any, model: Any) -> None:
    inputs = batch(processor, [0])
    labels = inputs["input_ids"].clone()
    loss = model(**inputs, labels=labels).loss
    is_image = labels == model.config.image_token_id
    assert is_image.sum() == QUERIES
    torch.testing.assert_close(loss, model(**inputs, labels=labels.masked_fill(is_image, -100)).loss)
    logits = model(**inputs).logits[0, :-1]
    kept = ~is_image[0, 1:]
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits[kept], labels[0, 1:][kept]))


def test_ct_chat_training_without_a_volume_reaches_every_parameter(processor: Any, model: Any) -> None:
    found = gradients(model.train(), batch(processor, [1, 3]))
    assert found.keys() == dict(model.named_parameters()).keys()
    assert all(not gradient.any() for name, gradient in found.items() if "mm_projector" in name)
    # A part of a batch, split by a trainer, in which no row has a volume.
    nothing = {**batch(processor, [1, 3]), "pixel_values": torch.zeros(0, 24, CHANNELS)}
    split = gradients(model, nothing)
    assert split.keys() == found.keys()
    assert all(torch.equal(gradient, found[name]) for name, gradient in split.items())
    trained = model(**batch(processor, [1, 3])).logits
    torch.testing.assert_close(trained, model.eval()(**batch(processor, [1, 3])).logits)


@pytest.mark.parametrize("training", [True, False])
def test_ct_chat_the_projector_runs_in_every_batch(processor: Any, model: Any, training: bool) -> None:
    """Under ZeRO-3, all processes must run the projector; otherwise the others wait for its weights."""
    calls = []
    model.train(training).model.mm_projector.register_forward_hook(lambda *_: calls.append(1))
    for rows in ([0, 2], [1, 3], [0, 1]):
        model(**batch(processor, rows))
    assert len(calls) == 3


@pytest.mark.parametrize("wide", ["mm_projector", "lora"])
def test_ct_chat_what_is_trained_may_be_wider_than_the_rest(processor: Any, model: Any, wide: str) -> None:
    config = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["mm_projector"])
    adapted = get_peft_model(model.to(torch.bfloat16), config)
    for name, weights in adapted.named_parameters():
        if weights.requires_grad:
            weights.data = weights.data.float() if wide in name else weights.data.bfloat16()
    inputs = batch(processor, [0, 1])
    with torch.autocast("cpu", torch.bfloat16):
        adapted(**inputs, labels=inputs["input_ids"]).loss.backward()
    assert generate(adapted, inputs).shape == (2, 8)


def test_ct_chat_lora_with_the_projector_beside_it(processor: Any, model: Any) -> None:
    targets = ["q_proj", "v_proj", "up_proj"]
    adapted = get_peft_model(
        model, LoraConfig(r=4, target_modules=targets, modules_to_save=["mm_projector"], task_type="CAUSAL_LM")
    )
    trained = [name for name, weight in adapted.named_parameters() if weight.requires_grad]
    lora = [name for name in trained if ".lora_" in name]
    assert len(lora) == 2 * len(targets) * 2
    assert all("language_model" in name for name in lora)
    others = [name for name in trained if name not in lora]
    assert len(others) == 14
    assert all(".mm_projector.modules_to_save.default." in name for name in others)
    found = gradients(adapted, batch(processor, [0, 2]))
    assert set(trained) == set(found)
    assert all(found[name].any() for name in others)


def test_ct_chat_auto_classes_and_saving(processor: Any, model: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    inputs = batch(processor, [0, 1, 2])
    expected = model(**inputs).logits
    assert isinstance(AutoConfig.from_pretrained(tmp_path), CTChatConfig)
    for auto in (AutoModelForCausalLM, AutoModelForImageTextToText):
        again = auto.from_pretrained(tmp_path)
        assert isinstance(again, CTChatForConditionalGeneration)
        assert torch.equal(again(**inputs).logits, expected)
    inner = AutoModel.from_pretrained(tmp_path)
    assert isinstance(inner, CTChatModel)
    assert torch.equal(model.lm_head(inner(**inputs).last_hidden_state), expected)
    assert isinstance(AutoProcessor.from_pretrained(tmp_path), CTChatProcessor)


def test_ct_chat_tied_embeddings_stay_tied(processor: Any, tmp_path: Path) -> None:
    model = tiny_ct_chat(processor, tie_word_embeddings=True).eval()
    assert model.lm_head.weight is model.get_input_embeddings().weight
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert again.lm_head.weight is again.get_input_embeddings().weight
    inputs = batch(processor, [0])
    assert torch.equal(again(**inputs).logits, model(**inputs).logits)


def test_ct_chat_volumes_that_do_not_fill_their_places(processor: Any, model: Any) -> None:
    inputs = batch(processor, [0, 2])
    with pytest.raises(ValueError, match="do not match, tokens: 6, features: 3"):
        model(**{**inputs, "pixel_values": inputs["pixel_values"][:1]})
    with pytest.raises(ValueError, match="do not match, tokens: 6, features: 0"):
        model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
    with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
        model(pixel_values=inputs["pixel_values"])
    with pytest.raises(ValueError, match="inputs_embeds marks no positions"):
        model(inputs_embeds=torch.zeros(1, 4, 16), pixel_values=inputs["pixel_values"])


def test_ct_chat_config_refuses_sizes_that_do_not_go_together() -> None:
    with pytest.raises(ValueError, match=r"pooler_heads \(5\) must divide pooler_size \(512\)"):
        CTChatConfig(pooler_heads=5)
    with pytest.raises(ValueError, match="num_image_tokens must be positive, got 0"):
        CTChatConfig(num_image_tokens=0)


def test_ct_chat_half_precision_features_and_weights(processor: Any, model: Any) -> None:
    inputs = batch(processor, [0, 2])
    assert inputs["pixel_values"].dtype == torch.float16
    logits = model.to(torch.bfloat16)(**inputs).logits
    assert logits.dtype == torch.bfloat16
    assert logits.isfinite().all()
