"""CT-CHAT in vLLM: the same tokens and log-probabilities as in transformers."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_ct_chat import QUERIES, save_tiny_ct_chat, save_volumes, tiny_ct_chat, tiny_processor, volume
from tiny_policy import WORDS
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoProcessor, PreTrainedTokenizerFast

from rrg_rewards.models import CTChatProcessor
from rrg_rewards.utilities.features import FeatureError, write_features

pytest.importorskip("vllm", reason="vLLM has an environment of its own")
from vllm_engine import start_engine

pytestmark = pytest.mark.vllm

TOKENS = 12
# vLLM's kernels for CPUs take no heads as narrow as those of the other tests.
SIZES = {
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
}
Prompts = Sequence[tuple[str, Sequence[Any]]]


def text(length: int, seed: int) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, length))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_ct_chat(tmp_path_factory.mktemp("llama"), **SIZES)


@pytest.fixture(scope="module")
def llm(folder: Path) -> Any:
    return start_engine(folder)


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = {"model_type": "mistral", "sliding_window": None, "tie_word_embeddings": True}
    return save_tiny_ct_chat(tmp_path_factory.mktemp("mistral"), **SIZES, **options)


@pytest.fixture(scope="module")
def mistral_llm(mistral: Path) -> Any:
    """Prefills at most 16 tokens at a time, and takes adapters."""
    return start_engine(mistral, max_num_batched_tokens=16, max_num_seqs=4, enable_lora=True, max_lora_rank=8)


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return save_volumes(tmp_path_factory.mktemp("features"), 4)


@pytest.fixture(scope="module")
def prompts(volumes: list[str]) -> Prompts:
    """Prompts of 1 to 160 words with no volume, one and two, at the start, inside and side by side."""
    found: list[tuple[str, list[str]]] = []
    for row, length in enumerate((1, 2, 5, 15, 16, 40, 100, 160)):
        first, second = text(length, row), text(3, row + 50)
        found.append((first, []))
        found.append((f"<image>\n{first}", [volumes[row % 4]]))
        found.append((f"{first} <image> {second} <image>", [volumes[row % 4], volumes[(row + 1) % 4]]))
    return [*found, ("<image><image> heart", volumes[2:4]), ("heart <image>", volumes[:1])]


def reference(folder: Path, prompts: Prompts, dtype: str = "float32", adapter: Path | None = None) -> list[list[int]]:
    """Greedy tokens of transformers, one prompt at a time."""
    model, processor = load(folder, dtype, adapter)
    found = []
    for words, own in prompts:
        inputs = processor(text=words, images=[list(own)] if own else None, return_tensors="pt")
        with torch.inference_mode():
            tokens = model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
        found.append(tokens[0, inputs["input_ids"].shape[1] :].tolist())
    return found


def load(folder: Path, dtype: str = "float32", adapter: Path | None = None) -> tuple[Any, Any]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    if adapter is not None:
        model.load_adapter(str(adapter))
    return model, AutoProcessor.from_pretrained(folder)


def given(prompts: Prompts) -> list[dict[str, Any]]:
    return [{"prompt": words, **({"multi_modal_data": {"image": list(own)}} if own else {})} for words, own in prompts]


def generate(llm: Any, prompts: Sequence[dict[str, Any]], **options: Any) -> list[list[int]]:
    from vllm import SamplingParams

    settings = SamplingParams(max_tokens=TOKENS, temperature=0.0)
    outputs = llm.generate(list(prompts), settings, use_tqdm=False, **options)
    return [list(output.outputs[0].token_ids) for output in outputs]


def test_vllm_model_writes_the_greedy_tokens(llm: Any, folder: Path, prompts: Prompts) -> None:
    expected = reference(folder, prompts)
    assert generate(llm, given(prompts)) == expected
    assert len(prompts) >= 20
    assert len(set(map(tuple, expected))) > 15
    # Some end before the last token, and some do not.
    assert {len(tokens) == TOKENS for tokens in expected} == {True, False}


def test_vllm_model_takes_token_ids_with_expanded_volumes(llm: Any, folder: Path, prompts: Prompts) -> None:
    """As TRL passes them."""
    processor = AutoProcessor.from_pretrained(folder)
    rows = []
    for row, (words, own) in zip(given(prompts), prompts, strict=True):
        ids = processor(text=words, images=[list(own)] if own else None)["input_ids"][0]
        rows.append({"prompt_token_ids": ids, "multi_modal_data": row.get("multi_modal_data")})
    assert generate(llm, rows) == reference(folder, prompts)


def test_vllm_model_takes_token_ids_with_one_token_for_a_volume(llm: Any, folder: Path, prompts: Prompts) -> None:
    tokenizer = AutoProcessor.from_pretrained(folder).tokenizer
    rows = [{"prompt_token_ids": tokenizer(row.pop("prompt"))["input_ids"], **row} for row in given(prompts)]
    assert generate(llm, rows) == reference(folder, prompts)


def test_vllm_model_takes_volumes_as_arrays(llm: Any, folder: Path) -> None:
    arrays = [volume(0), volume(1)[None], volume(2).reshape(-1, volume(2).shape[-1]), torch.from_numpy(volume(3))]
    prompts = [("<image> heart", [array]) for array in arrays]
    single = [{"prompt": words, "multi_modal_data": {"image": own[0]}} for words, own in prompts]
    expected = reference(folder, prompts)
    assert generate(llm, single) == generate(llm, given(prompts)) == expected
    assert len(set(map(tuple, expected))) > 1


def test_vllm_model_answers_a_chat(llm: Any, folder: Path, volumes: list[str]) -> None:
    from vllm import SamplingParams

    model, processor = load(folder)
    system = {"role": "system", "content": text(8, 1)}
    for before in ([], [system]):
        parts = [{"type": "image", "image": volumes[0]}, {"type": "text", "text": text(5, 2)}]
        conversation = [*before, {"role": "user", "content": parts}]
        inputs = processor.apply_chat_template(
            conversation, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
        with torch.inference_mode():
            tokens = model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)[0]
        content = [{"type": "image_pil", "image_pil": volumes[0]}, parts[1]]
        settings = SamplingParams(max_tokens=TOKENS, temperature=0.0)
        output = llm.chat([*before, {"role": "user", "content": content}], settings, use_tqdm=False)[0]
        ids = inputs["input_ids"][0].tolist()
        assert output.prompt_token_ids == ids
        # The start token twice with a system prompt, as in the published conversations.
        assert ids.count(processor.tokenizer.bos_token_id) == 1 + len(before)
        assert list(output.outputs[0].token_ids) == tokens[len(ids) :].tolist()


# In bfloat16, a logit from 4 to 8 has steps of 0.03. The logits of transformers are then 0.017 from those in float32 on
# average, and 0.11 at most.
@pytest.mark.parametrize(("dtype", "largest", "mean"), [("float32", 2e-3, 2e-3), ("bfloat16", 0.1, 2e-2)])
def test_vllm_model_has_the_log_probabilities(
    request: Any, folder: Path, prompts: Prompts, dtype: str, largest: float, mean: float
) -> None:
    from vllm import SamplingParams

    llm = request.getfixturevalue("llm") if dtype == "float32" else start_engine(folder, dtype=dtype)
    model, processor = load(folder, dtype)
    settings = SamplingParams(max_tokens=TOKENS, temperature=1.0, seed=0, logprobs=0)
    differences = []
    for output, (words, own) in zip(llm.generate(given(prompts), settings, use_tqdm=False), prompts, strict=True):
        inputs = processor(text=words, images=[list(own)] if own else None, return_tensors="pt")
        completion = output.outputs[0]
        ids = torch.cat([inputs.pop("input_ids"), torch.tensor([list(completion.token_ids)])], dim=1)
        inputs["attention_mask"] = torch.ones_like(ids)
        with torch.inference_mode():
            scores = model(input_ids=ids, **inputs).logits[0].float().log_softmax(-1)
        start = len(output.prompt_token_ids)
        for step, (token, entry) in enumerate(zip(completion.token_ids, completion.logprobs, strict=True)):
            differences.append(abs(entry[token].logprob - scores[start + step - 1, token].item()))
    assert len(differences) > 100
    assert max(differences) < largest
    assert sum(differences) / len(differences) < mean


def test_vllm_model_shares_prefixes_only_of_equal_volumes(llm: Any, folder: Path, volumes: list[str]) -> None:
    from vllm import SamplingParams

    prompts = [(f"<image> {text(200, 7)}", [path]) for path in (volumes[0], volumes[1], volumes[0])]
    expected = reference(folder, prompts)
    assert expected[0] != expected[1]
    cached = []
    for row, tokens in zip(given(prompts), expected, strict=True):
        output = llm.generate([row], SamplingParams(max_tokens=TOKENS, temperature=0.0), use_tqdm=False)[0]
        assert list(output.outputs[0].token_ids) == tokens
        cached.append(output.num_cached_tokens)
    assert cached[1] == 0
    assert cached[2] > 0


def test_vllm_model_reads_a_file_that_is_written_again(llm: Any, folder: Path, tmp_path: Path) -> None:
    """The size and the time of the file stay the same."""
    path, found = tmp_path / "study.npz", []
    for seed in (10, 11):
        write_features(path, volume(seed))
        os.utime(path, ns=(0, 0))
        prompts = [("<image> report", [str(path)])]
        found.append(generate(llm, given(prompts)))
        assert found[-1] == reference(folder, prompts)
    assert found[0] != found[1]


def test_vllm_model_takes_volumes_of_different_sizes(llm: Any, folder: Path, tmp_path: Path) -> None:
    large = np.concatenate([volume(1), volume(2)])
    prompts = [("<image> report", [array]) for array in (volume(0), large)]
    assert generate(llm, given(prompts)) == reference(folder, prompts)
    assert generate(llm, given([("<image> <image>", [volume(0), large])]))


@pytest.mark.parametrize(
    ("prompt", "images", "error", "message"),
    [
        ("heart", ["study_0"], ValueError, "0 image tokens, but 1 volumes"),
        ("<image> <image>", ["study_0"], ValueError, "2 image tokens, but 1 volumes"),
        ("<image>", None, ValueError, "3 image tokens, but 0 volumes"),
        ("<image>", ["study_9"], FeatureError, "features of study_9: .* no such file"),
        ("<image>", [np.zeros((4, 7))], ValueError, r"features must have shape \(..., 24\), got \(4, 7\)"),
        ("<image>", [np.full((4, 24), np.nan)], ValueError, "features must be finite"),
        ("<image>", [Image.new("RGB", (8, 8))], TypeError, "got Image"),
        ([5, -1, -1, 6], ["study_0"], ValueError, r"runs of \[2\] image tokens"),
        ([5, -1, -1, -1, 6], None, ValueError, "3 image tokens, but 0 volumes"),
    ],
)
def test_vllm_model_tells_what_does_not_fit(
    llm: Any, folder: Path, volumes: list[str], prompt: Any, images: Any, error: type[Exception], message: str
) -> None:
    image_token_id = AutoProcessor.from_pretrained(folder).image_token_id
    if isinstance(prompt, list):
        row = {"prompt_token_ids": [image_token_id if token == -1 else token for token in prompt]}
    else:
        row = {"prompt": prompt}
    if images is not None:
        paths = [str(Path(volumes[0]).with_stem(image)) if isinstance(image, str) else image for image in images]
        row["multi_modal_data"] = {"image": paths}
    with pytest.raises(error, match=message):
        generate(llm, [row])
    # The engine goes on.
    assert generate(llm, given([("heart", [])]))


def test_vllm_model_loads_weights_by_name(folder: Path, prompts: Prompts, tmp_path: Path) -> None:
    """As TRL sends them: one at a time, under the names in the model that is trained."""
    llm = start_engine(folder)
    other = tmp_path / "other"
    model = tiny_ct_chat(tiny_processor(), seed=1, **SIZES)
    model.save_pretrained(other)
    tiny_processor().save_pretrained(other)
    before, after = reference(folder, prompts), reference(other, prompts)
    assert sum(old != new for old, new in zip(before, after, strict=True)) > 15
    assert generate(llm, given(prompts)) == before
    served = llm.llm_engine.model_executor.driver_worker.model_runner.model
    for name, weights in model.named_parameters():
        assert served.load_weights([(name, weights.data)]), name
    llm.reset_prefix_cache()
    llm.llm_engine.reset_encoder_cache()
    assert generate(llm, given(prompts)) == after


def test_vllm_model_prefills_in_chunks(mistral_llm: Any, mistral: Path, prompts: Prompts, volumes: list[str]) -> None:
    # The limit of 16 tokens is inside the soft tokens of the first volume.
    cut = (f"{text(14, 3)} <image> {text(9, 4)} <image>", volumes[:2])
    ids = AutoProcessor.from_pretrained(mistral)(text=cut[0], images=[cut[1]])["input_ids"][0]
    assert ids[15] == ids[16] == max(ids)
    assert QUERIES == 3
    assert generate(mistral_llm, given([cut, *prompts])) == reference(mistral, [cut, *prompts])


def test_vllm_model_takes_an_adapter(mistral_llm: Any, mistral: Path, prompts: Prompts, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from vllm.lora.request import LoRARequest

    torch.manual_seed(0)
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    adapted = get_peft_model(load(mistral)[0], LoraConfig(r=4, target_modules=names, init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    expected = reference(mistral, prompts, adapter=tmp_path / "adapter")
    adapter = LoRARequest("adapter", 1, str(tmp_path / "adapter"))
    assert generate(mistral_llm, given(prompts), lora_request=adapter) == expected
    base = reference(mistral, prompts)
    assert sum(own != other for own, other in zip(expected, base, strict=True)) > 15
    assert generate(mistral_llm, given(prompts)) == base


def test_vllm_model_shares_the_weights_in_two_processes(
    folder: Path, volumes: list[str], prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By tensor parallelism."""
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    llm = start_engine(folder, tensor_parallel_size=2, distributed_executor_backend="mp")
    assert generate(llm, given(prompts)) == reference(folder, prompts)


def test_vllm_processing_keeps_words_after_a_volume() -> None:
    """A word after ``<image>`` is the first of its part, before which some tokenizers write a space."""
    from vllm.tokenizers.hf import get_cached_tokenizer

    from rrg_rewards.integrations.vllm.model import CTChatTokenizeParams

    words = [f"{space}{word}" for space in ("", "▁") for word in WORDS]
    inner = Tokenizer(models.WordLevel({word: row for row, word in enumerate(["<unk>", *words])}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    processor = CTChatProcessor.from_tokenizer(PreTrainedTokenizerFast(tokenizer_object=inner), "vicuna", QUERIES)
    tokenizer, text = get_cached_tokenizer(processor.tokenizer), "heart<image>edema nodule"
    expected = processor(text=text, images=[[np.zeros((2, 512))]])["input_ids"][0]
    whole = tokenizer(text)["input_ids"]
    params = CTChatTokenizeParams(max_total_tokens=64, num_image_tokens=QUERIES).with_kwargs(truncation=False)
    prompt = params.apply_pre_tokenization(tokenizer, {"prompt": text, "multi_modal_data": {"image": "a.npz"}})
    prompt = params.apply_post_tokenization(tokenizer, {**prompt, "prompt_token_ids": whole})
    assert prompt["prompt_token_ids"] == expected
    assert [token for token in whole if token != whole[1]] != [token for token in expected if token != whole[1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_modules": "all-linear"}, "expected target modules in .* but received .*mm_projector"),
        (
            {"target_modules": ["q_proj"], "modules_to_save": ["mm_projector"]},
            "Unsupported modules_to_save: .*mm_projector",
        ),
    ],
    ids=["all linear layers", "projector as a whole"],
)
def test_vllm_model_refuses_an_adapter_of_the_projector(
    mistral_llm: Any, mistral: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    """Otherwise a part of it would have no effect."""
    from peft import LoraConfig, get_peft_model
    from vllm.lora.request import LoRARequest

    get_peft_model(load(mistral)[0], LoraConfig(r=4, **options)).save_pretrained(tmp_path / "adapter")
    with pytest.raises(ValueError, match=message):
        mistral_llm.llm_engine.add_lora(LoRARequest("projector", 2, str(tmp_path / "adapter")))
