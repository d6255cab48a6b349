"""The processor of CT-CHAT: chat formats, tokens around a volume, pairs of prompts and volumes, errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_ct_chat import CHANNELS, GRID, QUERIES, save_volumes, tiny_processor, volume
from tiny_policy import tiny_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import AutoProcessor, PreTrainedTokenizerFast

from rrg_rewards.models import CTChatConfig, CTChatProcessor
from rrg_rewards.models.ct_chat.processor import ADDED_TOKENS, chat_template
from rrg_rewards.utilities.features import FeatureError, write_features


def word_tokenizer(*words: str, kind: Any = PreTrainedTokenizerFast, **named: str) -> Any:
    """Return a tokenizer that knows the words."""
    vocabulary = {word: place for place, word in enumerate(["<unk>", *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    return kind(tokenizer_object=backend, unk_token="<unk>", **named)


MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [{"type": "image", "image": "a.npz"}, {"type": "text", "text": "Report. <report_generation>"}],
    },
    {"role": "assistant", "content": "Edema."},
    {"role": "user", "content": "More?"},
]
RENDERED = {
    "llama3": (
        "<bos><bos><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n<image>\nReport. <report_generation><|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nEdema.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nMore?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "vicuna": "<bos>Be brief. USER: <image>\nReport. <report_generation> ASSISTANT: Edema.<eos>USER: More? ASSISTANT:",
    "mistral": (
        "<bos>[INST] Be brief.\n\n<image>\nReport. <report_generation> [/INST] Edema. <eos>[INST] More? [/INST]"
    ),
}


@pytest.fixture
def processor() -> Any:
    return tiny_processor()


@pytest.mark.parametrize("chat_format", RENDERED)
def test_ct_chat_processor_chat_formats(chat_format: str) -> None:
    processor = CTChatProcessor.from_tokenizer(tiny_tokenizer(), chat_format, QUERIES, CHANNELS)
    assert processor.apply_chat_template(MESSAGES, add_generation_prompt=True) == RENDERED[chat_format]


@pytest.mark.parametrize("chat_format", RENDERED)
def test_ct_chat_processor_a_completed_prompt_begins_with_the_prompt(chat_format: str) -> None:
    processor = CTChatProcessor.from_tokenizer(tiny_tokenizer(), chat_format, QUERIES, CHANNELS)
    prompt = processor.apply_chat_template(MESSAGES[:2], add_generation_prompt=True)
    assert processor.apply_chat_template(MESSAGES[:3]).startswith(prompt)


def test_ct_chat_processor_unknown_role_and_format() -> None:
    processor = CTChatProcessor.from_tokenizer(tiny_tokenizer(), "vicuna", QUERIES, CHANNELS)
    with pytest.raises(Exception, match="the Vicuna format has no role tool"):
        processor.apply_chat_template([{"role": "tool", "content": "x"}])
    with pytest.raises(ValueError, match="unknown chat format 'llama'; did you mean 'llama3'"):
        chat_template("llama")


def test_ct_chat_processor_tokens_are_appended_in_the_published_order() -> None:
    tokenizer = word_tokenizer("edema", "heart")
    processor = CTChatProcessor.from_tokenizer(tokenizer, "llama3", QUERIES, CHANNELS)
    assert [tokenizer.convert_ids_to_tokens(3 + place) for place in range(6)] == [
        "<pad>", "<multiple_choice>", "<long_answer>", "<short_answe>", "<report_generation>", "<image>",
    ]  # fmt: skip
    assert (processor.image_token_id, tokenizer.pad_token_id, len(ADDED_TOKENS)) == (8, 3, 5)


def test_ct_chat_processor_text_is_tokenised_apart_on_both_sides_of_the_volume() -> None:
    """As published, the parts before and after a volume are tokenised separately."""
    vocabulary = {token: place for place, token in enumerate(["<unk>", "<s>", "_edema", "_heart", "edema", "heart"])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="_", prepend_scheme="first")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", unk_token="<unk>")
    processor = CTChatProcessor.from_tokenizer(tokenizer, "vicuna", QUERIES, CHANNELS)
    ids = processor(text="edema<image>heart", images=volume(0))["input_ids"][0]
    assert ids == [2, *[processor.image_token_id] * QUERIES, 3]


def _word_processor(tokenizer_class: Any = PreTrainedTokenizerFast) -> CTChatProcessor:
    """Return a processor whose tokenizer knows two words and starts a text with ``<s>``."""
    tokenizer = word_tokenizer("<s>", "edema", "heart", kind=tokenizer_class, bos_token="<s>")
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return CTChatProcessor.from_tokenizer(tokenizer, "llama3", QUERIES, CHANNELS)


def test_ct_chat_processor_special_tokens_stand_at_the_start_only() -> None:
    processor = _word_processor()
    image = [processor.image_token_id] * QUERIES
    assert processor(text="<image>heart", images=volume(0))["input_ids"] == [[1, *image, 3]]
    assert processor(text="<image>heart", images=volume(0), add_special_tokens=False)["input_ids"] == [[*image, 3]]
    # A chat template contains the token.
    message = [{"role": "user", "content": "heart"}]
    ids = processor.apply_chat_template([message], tokenize=True, return_dict=True)["input_ids"][0]
    assert ids.count(1) == 1


def test_ct_chat_processor_a_batch_has_the_tokens_of_each_text_and_tokenises_equal_texts_once() -> None:
    tokenised: list[str] = []

    class Counting(PreTrainedTokenizerFast):  # type: ignore[misc]
        def __call__(self, text: Any, **options: Any) -> Any:
            tokenised.extend([text] if isinstance(text, str) else text)
            return super().__call__(text, **options)

    processor = _word_processor(Counting)
    image = [processor.image_token_id] * QUERIES
    texts = ["edema<image>heart<image>", "heart", "edema<image>heart<image>", "<image>edema heart"]
    ids = processor(text=texts, images=[[volume(0)] * 2, None, [volume(0)] * 2, volume(1)])["input_ids"]
    twice = [1, 2, *image, 3, *image]
    assert ids == [twice, [1, 3], twice, [1, *image, 2, 3]]
    assert sorted(tokenised) == sorted(["edema", "heart", "", "heart", "", "edema heart"])
    ids[0].append(0)
    assert ids[2] == twice


def test_ct_chat_processor_volumes_come_in_the_order_of_their_prompts(processor: Any, tmp_path: Path) -> None:
    first, second = save_volumes(tmp_path, 2)
    texts = ["edema", "<image> heart", "lungs", "<image>"]
    by_row = processor(text=texts, images=[None, second, [], [first]], padding=True, return_tensors="pt")
    in_order = processor(text=texts, images=[Path(second), first], padding=True, return_tensors="pt")
    expected = torch.from_numpy(np.stack([volume(1), volume(0)])).reshape(2, -1, CHANNELS)
    for inputs in (by_row, in_order):
        assert torch.equal(inputs["pixel_values"], expected)
        assert (inputs["input_ids"] == processor.image_token_id).sum(1).tolist() == [0, QUERIES, 0, QUERIES]
    assert by_row["attention_mask"].sum(1).tolist() == [1, QUERIES + 1, 1, QUERIES]
    assert by_row["input_ids"][0].tolist() == [processor.tokenizer.pad_token_id] * QUERIES + [
        processor.tokenizer.convert_tokens_to_ids("edema")
    ]


@pytest.mark.parametrize(
    "given",
    [volume(0), volume(0)[None], torch.from_numpy(volume(0)), volume(0).reshape(-1, CHANNELS).astype(np.float32)],
)
def test_ct_chat_processor_arrays_in_place_of_files(processor: Any, given: Any) -> None:
    found = processor(text="<image>", images=given)["pixel_values"]
    torch.testing.assert_close(found.float(), torch.from_numpy(volume(0)).reshape(1, -1, CHANNELS).float())


def test_ct_chat_processor_chat_template_reads_volumes_and_leaves_ids_ragged(processor: Any, tmp_path: Path) -> None:
    paths = save_volumes(tmp_path, 2)
    conversations = [
        [{"role": "user", "content": [{"type": "image", "image": path}, {"type": "text", "text": text}]}]
        for path, text in zip(paths, ["edema", "edema heart"], strict=True)
    ]
    found = processor.apply_chat_template(conversations, add_generation_prompt=True, tokenize=True, return_dict=True)
    assert len(found["input_ids"][0]) + 1 == len(found["input_ids"][1])
    assert found["pixel_values"].shape == (2, np.prod(GRID), CHANNELS)


def test_ct_chat_processor_without_volumes_there_are_no_pixel_values(processor: Any) -> None:
    assert set(processor(text=["edema", "heart"])) == {"input_ids", "attention_mask"}
    # TRL reads their shape if it passes images, also if all are None.
    for images in ([None, None], [[], []]):
        assert processor(text=["edema", "heart"], images=images)["pixel_values"].shape == (0, 1, CHANNELS)


def test_ct_chat_processor_decoding_leaves_out_what_no_reader_wants(processor: Any) -> None:
    ids = processor(text="<image> edema <report_generation>", images=volume(0))["input_ids"]
    assert processor.batch_decode(ids, skip_special_tokens=True) == ["edema"]
    assert processor.batch_decode(ids)[0].count("<image>") == QUERIES


def test_ct_chat_processor_truncation(processor: Any) -> None:
    ids = processor(text="edema heart lungs", truncation=True, max_length=2)["input_ids"][0]
    assert processor.tokenizer.convert_ids_to_tokens(ids) == ["edema", "heart"]
    processor.tokenizer.truncation_side = "left"
    ids = processor(text="edema heart lungs", truncation=True, max_length=2)["input_ids"][0]
    assert processor.tokenizer.convert_ids_to_tokens(ids) == ["heart", "lungs"]


@pytest.mark.parametrize(
    ("text", "images", "message"),
    [
        (["edema", "<image><image>"], None, r"text\[1\] has <image> 2 times, but images\[1\] has 0 volumes"),
        ("<image> <image>", "a.npz", r"text\[0\] has <image> 2 times, but images\[0\] has 1 volumes"),
        (["edema", "<image>"], None, r"text\[1\] has <image> 1 times, but images\[1\] has 0 volumes"),
        (["edema", "<image>"], ["a.npz", None], r"text\[0\] has <image> 0 times, but images\[0\] has 1 volumes"),
        (["<image>"], [["a.npz", "b.npz"]], r"text\[0\] has <image> 1 times, but images\[0\] has 2 volumes"),
        (["<image>", "<image>"], ["a.npz"], "images and text must have the same length, got 1 and 2"),
        (None, ["a.npz"], "text is missing"),
        ("<image>", np.zeros((4, CHANNELS + 1)), r"features must have shape \(\.\.\., 24\), got \(4, 25\)"),
        ("<image>", np.full((4, CHANNELS), np.nan), "features must be finite, got NaN or infinity"),
        (["<image>"] * 2, [np.zeros((4, CHANNELS)), np.zeros((5, CHANNELS))], r"same number of tokens, got \[4, 5\]"),
    ],
)
def test_ct_chat_processor_refuses_what_does_not_go_together(
    processor: Any, text: Any, images: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        processor(text=text, images=images)


def test_ct_chat_processor_refuses_what_is_no_volume(processor: Any) -> None:
    with pytest.raises(TypeError, match="a volume must be a path or an array of features, got int"):
        processor(text=["<image>"], images=[3])
    with pytest.raises(ValueError, match="no videos and no audio"):
        processor(text="edema", videos=[1])


def test_ct_chat_processor_bad_files_name_the_study(processor: Any, tmp_path: Path) -> None:
    with pytest.raises(FeatureError, match="train_9_a_1"):
        processor(text="<image>", images=str(tmp_path / "train_9_a_1.npz"))
    (path,) = save_volumes(tmp_path, 1)
    Path(path).write_bytes(Path(path).read_bytes()[:-20])
    with pytest.raises(FeatureError, match="study_0"):
        processor(text="<image>", images=path)
    array = volume(0)
    array[0, 0, 0, 0] = np.inf
    write_features(Path(path), array)
    with pytest.raises(FeatureError, match="study_0"):
        processor(text="<image>", images=path)
    wide = CTChatProcessor(processor.tokenizer, processor.chat_template, QUERIES, CHANNELS + 1)
    (path,) = save_volumes(tmp_path, 1)
    with pytest.raises(FeatureError, match=r"study_0.*25"):
        wide(text="<image>", images=path)


def test_ct_chat_processor_saving_keeps_everything(processor: Any, tmp_path: Path) -> None:
    processor.save_pretrained(tmp_path)
    # The automatic classes require the type of the model.
    CTChatConfig().save_pretrained(tmp_path)
    again = AutoProcessor.from_pretrained(tmp_path)
    assert isinstance(again, CTChatProcessor)
    assert (again.num_image_tokens, again.feature_size) == (QUERIES, CHANNELS)
    assert again.chat_template == processor.chat_template
    inputs = {"text": ["<image> edema", "heart"], "images": [volume(0), None], "padding": True, "return_tensors": "pt"}
    for name, tensor in processor(**inputs).items():
        assert torch.equal(again(**inputs)[name], tensor), name


def test_ct_chat_processor_a_padding_token_of_the_base_model_stays() -> None:
    """As published: ``<pad>`` is appended only to a vocabulary without a padding token."""
    tokenizer = word_tokenizer("</s>", "edema", pad_token="</s>")
    processor = CTChatProcessor.from_tokenizer(tokenizer, "vicuna", QUERIES, CHANNELS)
    assert tokenizer.convert_ids_to_tokens([3, 4, 5, 6, 7]) == [*ADDED_TOKENS[1:], "<image>"]
    assert (processor.image_token_id, tokenizer.pad_token_id) == (7, 1)


def test_ct_chat_processor_a_published_system_prompt_has_the_published_ids() -> None:
    """Text by text as in LLaVA's code: the tokenizer adds its start token to the first part, and to no other."""
    names = ["<unk>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "\n"]
    vocabulary = {token: place for place, token in enumerate([*names, "system", "user", "assistant", "Ask", "Report"])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    backend.post_processor = TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 1)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<|begin_of_text|>", unk_token="<unk>")
    tokenizer.add_tokens(names[2:5], special_tokens=True)
    processor = CTChatProcessor.from_tokenizer(tokenizer, "llama3", QUERIES, CHANNELS)
    header = "<|start_header_id|>{}<|end_header_id|>\n\n"
    system = f"<|begin_of_text|>{header.format('system')}Ask"
    published = f"{system}<|eot_id|>{header.format('user')}<image>\nReport<|eot_id|>{header.format('assistant')}"
    first, second = published.split("<image>")
    ids = tokenizer(first)["input_ids"]
    ids += [processor.image_token_id] * QUERIES + tokenizer(second)["input_ids"][1:]
    assert ids[:2] == [1, 1]
    user = {"role": "user", "content": [{"type": "image", "image": volume(0)}, {"type": "text", "text": "Report"}]}
    for text in (system, "Ask"):
        found = processor.apply_chat_template(
            [[{"role": "system", "content": text}, user]], add_generation_prompt=True, tokenize=True, return_dict=True
        )
        assert found["input_ids"] == [ids]
    without = processor.apply_chat_template([[user]], add_generation_prompt=True, tokenize=True, return_dict=True)
    assert without["input_ids"][0].count(1) == 1


def test_ct_chat_processor_several_volumes_in_a_prompt(processor: Any, tmp_path: Path) -> None:
    first, second, third = save_volumes(tmp_path, 3)
    texts = ["<image> edema <image>", "heart", "<image>"]
    by_row = processor(text=texts, images=[[second, first], None, third], padding=True, return_tensors="pt")
    in_order = processor(text=texts, images=[second, first, third], padding=True, return_tensors="pt")
    expected = torch.from_numpy(np.stack([volume(1), volume(0), volume(2)])).reshape(3, -1, CHANNELS)
    for inputs in (by_row, in_order):
        assert torch.equal(inputs["pixel_values"], expected)
        assert (inputs["input_ids"] == processor.image_token_id).sum(1).tolist() == [2 * QUERIES, 0, QUERIES]


def test_ct_chat_processor_the_published_maximum_length(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    text_config = {"model_type": "mistral", "vocab_size": len(tiny_tokenizer()) + 4}
    config = CTChatConfig(text_config, feature_size=CHANNELS, tokenizer_model_max_length=2)
    processor = CTChatProcessor.from_base_model(tmp_path, config)
    assert processor.tokenizer.model_max_length == 2
    assert len(processor(text="edema heart lungs", truncation=True)["input_ids"][0]) == 2
    assert len(processor(text="edema heart lungs")["input_ids"][0]) == 3


@pytest.mark.parametrize(
    ("folder", "settings", "expected"),
    [
        ("base", {"model_type": "llama"}, None),
        ("base", {"model_type": "qwen2"}, None),
        ("base", {"model_type": "mistral"}, "[INST] "),
        # CT-CHAT's code saves a full Mistral model as llava_llama, and keeps the settings of its configuration.
        ("base", {"model_type": "llama", "sliding_window": None}, "[INST] "),
        ("base", {"model_type": "llama", "_name_or_path": "mistralai/Mistral-7B-Instruct-v0.2"}, "[INST] "),
        ("CT-CHAT-mistral-7b", {"model_type": "llama"}, "[INST] "),
        ("vicuna-7b-v1.5", {"model_type": "llama"}, "USER: "),
        ("base", {"model_type": "llama", "_name_or_path": "lmsys/vicuna-13b-v1.5"}, "USER: "),
    ],
)
def test_ct_chat_processor_chat_format_of_a_base_model(
    tmp_path: Path, folder: str, settings: dict[str, Any], expected: str | None
) -> None:
    tiny_tokenizer().save_pretrained(tmp_path / folder)
    config = CTChatConfig({**settings, "vocab_size": len(tiny_tokenizer()) + 4}, feature_size=CHANNELS)
    if "_name_or_path" in settings:
        config.text_config._name_or_path = settings["_name_or_path"]
    if expected is None:
        with pytest.raises(ValueError, match="chat_format"):
            CTChatProcessor.from_base_model(tmp_path / folder, config)
    else:
        processor = CTChatProcessor.from_base_model(tmp_path / folder, config)
        assert expected in processor.apply_chat_template([{"role": "user", "content": "x"}])


def test_ct_chat_processor_a_processor_of_another_tokenizer(processor: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no token <image>; make the processor by CTChatProcessor"):
        CTChatProcessor(tiny_tokenizer())
    tiny_tokenizer().save_pretrained(tmp_path)
    config = CTChatConfig({"model_type": "llama", "vocab_size": len(tiny_tokenizer()) + 4}, feature_size=CHANNELS)
    assert CTChatProcessor.from_base_model(tmp_path, config, "vicuna").image_token_id == config.image_token_id
    config.image_token_id += 1
    with pytest.raises(ValueError, match="use the tokenizer of the base model without <pad>"):
        CTChatProcessor.from_base_model(tmp_path, config, "vicuna")
