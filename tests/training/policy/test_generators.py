"""Scores of generators for their own samples, and their input columns."""

import pytest
import torch
from tiny_ct_chat import save_volumes, tiny_ct_chat, tiny_processor
from tiny_generator import tiny_generator, tiny_rows
from tiny_policy import tiny_model, tiny_tokenizer
from transformers import (
    BertGenerationConfig,
    BertGenerationDecoder,
    GenerationConfig,
    T5Config,
    T5ForConditionalGeneration,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTModel,
)

from rrg_rewards.training import (
    CausalLMGenerator,
    Completions,
    CTChatGenerator,
    EncoderDecoderGenerator,
    ReportGenerator,
    TokenScores,
)
from rrg_rewards.training.policy.generators import RepeatedRows, num_rows, repeat_rows


def _vision_encoder_decoder():
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    encoder = ViTModel(ViTConfig(**small, image_size=8, patch_size=4, num_channels=1), add_pooling_layer=False)
    decoder = BertGenerationDecoder(
        BertGenerationConfig(
            **small,
            vocab_size=14,
            is_decoder=True,
            add_cross_attention=True,
            initializer_range=0.4,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    model = VisionEncoderDecoderModel(encoder=encoder, decoder=decoder)
    model.generation_config = GenerationConfig(decoder_start_token_id=1, eos_token_id=2, pad_token_id=0)
    generator = EncoderDecoderGenerator(model, tiny_tokenizer(), max_new_tokens=6, temperature=0.7)
    return generator, {"pixel_values": torch.randn(5, 1, 8, 8)}


def _t5():
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=14, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, dropout_rate=0.0, pad_token_id=0,
        eos_token_id=2, decoder_start_token_id=1, initializer_factor=8.0,
    )  # fmt: skip
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1]])
    batch = {"input_ids": torch.randint(4, 14, (5, 3)), "attention_mask": mask}
    keys = ("input_ids", "attention_mask")
    model = T5ForConditionalGeneration(config)
    return EncoderDecoderGenerator(model, tiny_tokenizer(), input_keys=keys, max_new_tokens=6), batch


def _causal():
    generator = tiny_generator(6)
    # Larger weights, for distributions that differ.
    torch.nn.init.normal_(generator.model.lm_head.weight)
    return generator, generator.collate(tiny_rows(5))


def _ct_chat(folder):
    processor = tiny_processor()
    generator = CTChatGenerator(tiny_ct_chat(processor), processor, max_new_tokens=6)
    paths = save_volumes(folder, 5)
    prompts = [[{"role": "user", "content": "report " * (1 + row % 3)}] for row in range(5)]
    rows = [{"prompt": prompt, "image": path} for prompt, path in zip(prompts, paths, strict=True)]
    return generator, generator.collate(rows)


@pytest.fixture(params=["causal", "ct_chat", "vision", "t5"])
def made(request, tmp_path):
    makers = {"causal": _causal, "vision": _vision_encoder_decoder, "t5": _t5, "ct_chat": lambda: _ct_chat(tmp_path)}
    generator, batch = makers[request.param]()
    return generator.eval(), batch


def _generated(generator, batch, **settings):
    """Output and completions of the model's own ``generate``."""
    config = GenerationConfig(
        max_new_tokens=6, output_logits=True, return_dict_in_generate=True, eos_token_id=generator.end_token_ids,
        pad_token_id=0, **settings,
    )  # fmt: skip
    is_decoder = isinstance(generator, EncoderDecoderGenerator)
    inputs = {name: column for name, column in batch.items() if isinstance(column, torch.Tensor)}
    inputs |= {"decoder_start_token_id": 1} if is_decoder else {}
    output = generator.model.generate(**inputs, generation_config=config)
    start = 1 if is_decoder else inputs["input_ids"].shape[1]
    return output, Completions.until_end(output.sequences[:, start:], generator.end_token_ids)


def test_generators_log_probs_are_those_that_were_sampled_with(made):
    generator, batch = made
    assert isinstance(generator, ReportGenerator)
    is_decoder = isinstance(generator, EncoderDecoderGenerator)
    torch.manual_seed(0)
    output, completions = _generated(generator, batch, do_sample=True, temperature=generator.temperature, top_k=0)
    if is_decoder:
        torch.manual_seed(0)
        assert generator.sample(batch).token_lists() == completions.token_lists()
    logits = torch.stack(output.logits, dim=1).float() / generator.temperature
    expected = logits.log_softmax(-1).gather(-1, completions.tokens.unsqueeze(-1)).squeeze(-1)
    scores = generator.log_probs(batch, completions)
    inside = completions.mask.bool()
    assert inside.sum() < inside.numel() or is_decoder
    torch.testing.assert_close(scores.log_probs[inside], expected[inside], atol=1e-5, rtol=1e-5)
    entropies = torch.distributions.Categorical(logits=logits).entropy()
    torch.testing.assert_close(scores.entropies[inside], entropies[inside], atol=1e-5, rtol=1e-5)
    # What a value head sees is what the language head saw.
    assert scores.hidden.shape == (5, completions.tokens.shape[1], generator.hidden_size)
    head = generator.model.get_output_embeddings()
    if not isinstance(generator.model, T5ForConditionalGeneration):
        torch.testing.assert_close(
            head(scores.hidden)[inside] / generator.temperature, logits[inside], atol=1e-4, rtol=0
        )


def test_generators_rows_do_not_depend_on_their_batch(made):
    generator, batch = made
    with torch.no_grad():
        completions = generator.sample(batch)
        rows = torch.tensor([3, 1])
        own = completions.rows(rows)
        some = generator.log_probs(RepeatedRows(batch, rows), own).log_probs
        whole = generator.log_probs(batch, completions).log_probs[rows][:, : own.tokens.shape[1]]
    inside = own.mask.bool()
    torch.testing.assert_close(some[inside], whole[inside], atol=1e-5, rtol=1e-5)


def test_generators_greedy_is_greedy_and_decoded_without_special_tokens(made):
    generator, batch = made
    torch.manual_seed(1)
    first = generator.sample(batch, greedy=True)
    torch.manual_seed(2)
    assert generator.sample(batch, greedy=True).token_lists() == first.token_lists()
    assert first.token_lists() == _generated(generator, batch, do_sample=False)[1].token_lists()
    assert first.log_probs is None
    texts = generator.decode(first)
    assert len(texts) == 5
    assert not any("<" in text and "|" in text for text in texts)
    assert not any("<eos>" in text or "<pad>" in text for text in texts)


def test_generators_greedy_takes_the_most_probable_tokens_whatever_the_settings_of_the_model(made):
    generator, batch = made
    expected = generator.sample(batch, greedy=True).token_lists()
    generator.model.generation_config.repetition_penalty = 50.0
    generator.model.generation_config.num_beams = 3
    assert generator.sample(batch, greedy=True).token_lists() == expected


def test_completions_end_with_their_first_end():
    tokens = torch.tensor([[5, 2, 6, 2], [2, 2, 2, 2], [5, 6, 7, 8], [5, 3, 2, 0]])
    completions = Completions.until_end(tokens, [2, 3])
    assert completions.token_lists() == [[5, 2], [2], [5, 6, 7, 8], [5, 3]]
    assert completions.finished.tolist() == [True, True, False, True]
    some = completions.rows(torch.tensor([1, 3]))
    assert some.tokens.tolist() == [[2, 2], [5, 3]]
    assert some.finished.tolist() == [True, True]


def test_token_scores_entropies_are_left_out_where_no_gradient_is_taken():
    completions = Completions(torch.zeros(1, 2, dtype=torch.long), torch.ones(1, 2, dtype=torch.long))
    logits = torch.zeros(1, 2, 5, requires_grad=True)
    assert not TokenScores.from_logits(logits, completions).entropies.requires_grad
    with torch.no_grad():
        assert TokenScores.from_logits(logits, completions).entropies is None


def test_repeated_rows_have_the_columns_of_the_batch_and_no_copies():
    batch = {"image": torch.arange(6).view(3, 2), "report": ["a", "b", "c"]}
    assert num_rows(batch) == 3
    taken = repeat_rows(batch, 2).take(torch.tensor([0, 1, 5]))
    assert num_rows(taken) == 3
    assert taken.prompts is batch
    assert dict(taken).keys() == batch.keys()
    assert taken["report"] == ["a", "a", "c"]
    assert taken["image"].tolist() == [[0, 1], [0, 1], [4, 5]]


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        ([1, 2], TypeError, "a batch must be a dict of columns, got list"),
        ({}, ValueError, "got no column"),
        ({"a": [1], "b": [1, 2]}, ValueError, "the same number of rows, got {'a': 1, 'b': 2}"),
        ({"a": "text"}, TypeError, r"batch\['a'\] must be a tensor \(N, ...\) or a list of N values, got str"),
    ],
)
def test_num_rows_batches_that_cannot_be(batch, error, message):
    with pytest.raises(error, match=message):
        num_rows(batch)


def test_generators_that_cannot_be():
    with pytest.raises(ValueError, match="max_new_tokens"):
        CausalLMGenerator(tiny_model(), tiny_tokenizer(), max_new_tokens=0)
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match="no padding token"):
        CausalLMGenerator(tiny_model(), tokenizer)
    with pytest.raises(ValueError, match="no start token"):
        EncoderDecoderGenerator(tiny_model(), tiny_tokenizer())


def test_collate_rows_that_a_generator_cannot_read(tmp_path):
    with pytest.raises(ValueError, match="prompt"):
        tiny_generator().collate([{"report": "edema"}])
    generator, batch = _ct_chat(tmp_path)
    with pytest.raises(ValueError, match=r"row 1 .* image"):
        generator.collate([{"prompt": batch["prompt"][0], "image": batch["image"][0]}, {"prompt": batch["prompt"][0]}])
    with pytest.raises(ValueError, match=r"prompt .* messages"):
        generator.collate([{"prompt": "report", "image": batch["image"][0]}])
    with pytest.raises(ValueError, match="input_ids"):
        tiny_generator().sample({"prompt": ["report"]})
    with pytest.raises(ValueError, match="pixel_values"):
        _vision_encoder_decoder()[0].sample({"image": torch.zeros(1)})
