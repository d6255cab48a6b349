"""Published checkpoints: written by the tests, loaded by the package, compared with the published equations."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, PreTrainedTokenizerFast

from rrg_rewards.models import CTChatForConditionalGeneration, CTChatProcessor
from rrg_rewards.models.ct_chat.processor import ADDED_TOKENS

VOCABULARY, WIDTH, CHANNELS, QUERIES, POOL, HEADS = 30, 16, 24, 3, 32, 8
ADDED = 5
RANK, ALPHA = 4, 8
load = CTChatForConditionalGeneration.from_llava_checkpoint


def base_model(kind: str = "llama", tied: bool = False) -> Any:
    torch.manual_seed(1)
    config_class, model_class = {
        "llama": (LlamaConfig, LlamaForCausalLM),
        "mistral": (MistralConfig, MistralForCausalLM),
    }[kind]
    config = config_class(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        initializer_range=0.3,
    )
    return model_class(config).eval()


def projector_weights() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(2)
    shapes = {
        "attn_pool.query": (QUERIES, POOL),
        "attn_pool.ln_k.weight": (CHANNELS,),
        "attn_pool.ln_k.bias": (CHANNELS,),
        "attn_pool.ln_q.weight": (POOL,),
        "attn_pool.ln_q.bias": (POOL,),
        "attn_pool.to_q.weight": (POOL, POOL),
        "attn_pool.to_kv.weight": (2 * POOL, CHANNELS),
        "attn_pool.to_out.weight": (POOL, POOL),
        "ln.weight": (POOL,),
        "ln.bias": (POOL,),
        "proj.0.weight": (WIDTH, POOL),
        "proj.0.bias": (WIDTH,),
        "proj.2.weight": (WIDTH, WIDTH),
        "proj.2.bias": (WIDTH,),
    }
    return {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}


def lora_weights(base: Any) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(3)
    weights = {}
    for name, module in base.named_modules():
        if name.endswith(("q_proj", "down_proj")):
            rows, columns = module.weight.shape
            weights[f"{name}.lora_A.weight"] = torch.randn(RANK, columns, generator=draw) * 0.3
            weights[f"{name}.lora_B.weight"] = torch.randn(rows, RANK, generator=draw) * 0.3
    return weights


def embeddings(seed: int = 4) -> Tensor:
    return torch.randn(VOCABULARY + ADDED, WIDTH, generator=torch.Generator().manual_seed(seed))


def save_base(folder: Path, **kinds: Any) -> Path:
    base_model(**kinds).save_pretrained(folder / "base")
    return folder / "base"


def save_adapter(folder: Path, wrapper: str = "base_model.model.model.", stored_embeddings: bool = False) -> Path:
    """Write a LoRA adapter and ``non_lora_trainables.bin`` as CT-CHAT's code does."""
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    adapter = {f"base_model.model.{name}": tensor for name, tensor in lora_weights(base_model()).items()}
    save_file(adapter, checkpoint / "adapter_model.safetensors")
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": ALPHA,
        "lora_dropout": 0.05,
        "bias": "none",
        "target_modules": ["q_proj", "down_proj"],
        "base_model_name_or_path": "somewhere/else",
    }
    (checkpoint / "adapter_config.json").write_text(json.dumps(settings))
    (checkpoint / "config.json").write_text(json.dumps({"model_type": "llava_llama", "mm_hidden_size": CHANNELS}))
    others = {f"{wrapper}mm_projector.{name}": tensor for name, tensor in projector_weights().items()}
    if stored_embeddings:
        others[f"{wrapper}embed_tokens.weight"] = embeddings(4)
        others[f"{wrapper.removesuffix('model.')}lm_head.weight"] = embeddings(5)
    torch.save(others, checkpoint / "non_lora_trainables.bin")
    return checkpoint


@pytest.fixture
def adapted(tmp_path: Path) -> tuple[Path, Path]:
    """Return the folders of a checkpoint with an adapter and of its base model, which are the arguments of ``load``."""
    return save_adapter(tmp_path), save_base(tmp_path)


def pooled(features: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """Soft tokens of one volume by the published equations, one head and one query at a time."""

    def norm(states: Tensor, name: str) -> Tensor:
        centred = states - states.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return centred / scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    tokens = norm(features.reshape(-1, CHANNELS), "attn_pool.ln_k")
    queries = norm(weights["attn_pool.query"], "attn_pool.ln_q") @ weights["attn_pool.to_q.weight"].T
    keys = tokens @ weights["attn_pool.to_kv.weight"][:POOL].T
    values = tokens @ weights["attn_pool.to_kv.weight"][POOL:].T
    size = POOL // HEADS
    rows = []
    for query in queries:
        heads = []
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            attention = (keys[:, part] @ query[part] / size**0.5).softmax(0)
            heads.append(attention @ values[:, part])
        rows.append(torch.cat(heads) @ weights["attn_pool.to_out.weight"].T)
    states = norm(torch.stack(rows), "ln")
    inner = states @ weights["proj.0.weight"].T + weights["proj.0.bias"]
    inner = inner * 0.5 * (1 + torch.erf(inner / 2**0.5))
    return inner @ weights["proj.2.weight"].T + weights["proj.2.bias"]


def direct_logits(base: Any, tables: tuple[Tensor, Tensor], before: list[int], volume: Tensor, after: list[int]) -> Any:
    """Embed, splice soft tokens in place of ``<image>``, run the language model's layers and head."""
    embedding, head = tables
    spliced = torch.cat([embedding[before], pooled(volume, projector_weights()), embedding[after]])
    hidden = base.model(inputs_embeds=spliced.unsqueeze(0)).last_hidden_state[0]
    return hidden @ head.T


def with_mean_rows(table: Tensor) -> Tensor:
    return torch.cat([table, table.mean(0, keepdim=True).expand(ADDED, -1)])


def merge_lora(base: Any) -> None:
    lora = lora_weights(base)
    for name, module in base.named_modules():
        if f"{name}.lora_A.weight" in lora:
            module.weight.data += ALPHA / RANK * lora[f"{name}.lora_B.weight"] @ lora[f"{name}.lora_A.weight"]


def run(model: Any, before: list[int], volume: Tensor, after: list[int]) -> Tensor:
    ids = [*before, *[model.config.image_token_id] * QUERIES, *after]
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), pixel_values=volume.reshape(1, -1, CHANNELS)).logits[0]


def assert_logits(model: Any, expected: Tensor) -> None:
    torch.testing.assert_close(run(model, BEFORE, VOLUME, AFTER), expected, rtol=1e-4, atol=1e-4)


BEFORE, AFTER = [1, 7, 8], [9, VOCABULARY + 4, 3]
VOLUME = torch.randn(3, 4, 5, CHANNELS, generator=torch.Generator().manual_seed(6))


@pytest.mark.parametrize("wrapper", ["base_model.model.model.", "base_model.model.", "model.", ""])
@pytest.mark.parametrize("stored", [False, True])
def test_llava_checkpoint_adapter_gives_the_logits_of_the_equations(tmp_path: Path, wrapper: str, stored: bool) -> None:
    base_folder, checkpoint = save_base(tmp_path), save_adapter(tmp_path, wrapper, stored)
    model = load(checkpoint, base_folder)
    base = base_model()
    merge_lora(base)
    tables = with_mean_rows(base.model.embed_tokens.weight), with_mean_rows(base.lm_head.weight)
    if stored:
        tables = embeddings(4), embeddings(5)
    with torch.no_grad():
        expected = direct_logits(base, tables, BEFORE, VOLUME, AFTER)
    assert_logits(model, expected)
    assert model.config.text_config.vocab_size == model.lm_head.weight.shape[0] == VOCABULARY + ADDED
    assert model.config.image_token_id == VOCABULARY + ADDED
    # The logits must depend on the adapter and on the volume.
    assert not torch.allclose(expected, direct_logits(base_model(), tables, BEFORE, VOLUME, AFTER), atol=1e-2)
    assert not torch.allclose(expected, direct_logits(base, tables, BEFORE, -VOLUME, AFTER), atol=1e-2)


@pytest.mark.parametrize("kind", ["llama", "mistral"])
@pytest.mark.parametrize("tied", [False, True])
def test_llava_checkpoint_projector_alone_stands_in_front_of_the_base(tmp_path: Path, kind: str, tied: bool) -> None:
    base_folder = save_base(tmp_path, kind=kind, tied=tied)
    torch.save(
        {f"model.mm_projector.{name}": tensor for name, tensor in projector_weights().items()},
        tmp_path / "mm_projector.bin",
    )
    model = load(tmp_path, base_folder)
    base = base_model(kind, tied)
    tables = with_mean_rows(base.get_input_embeddings().weight), with_mean_rows(base.lm_head.weight)
    with torch.no_grad():
        expected = direct_logits(base, tables, BEFORE, VOLUME, AFTER)
    assert_logits(model, expected)


def save_full(folder: Path, shards: int, kind: str = "llama") -> dict[str, Tensor]:
    """A full checkpoint: the language model's keys, the projector's between them, one file or several and an index."""
    base = base_model(kind)
    state = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    state["model.embed_tokens.weight"], state["lm_head.weight"] = embeddings(4), embeddings(5)
    state |= {f"model.mm_projector.{name}": tensor for name, tensor in projector_weights().items()}
    config = {**base.config.to_dict(), "model_type": f"llava_{kind}", "mm_projector_type": "attn_pool+mlp2x_gelu"}
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": VOCABULARY + ADDED}))
    names = sorted(state)
    if shards == 1:
        torch.save(state, folder / "pytorch_model.bin")
        return state
    files = {name: f"model-{index % shards}.safetensors" for index, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: state[name] for name in names if files[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return state


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_llava_checkpoint_full_checkpoint_needs_no_base(tmp_path: Path, shards: int, kind: str) -> None:
    save_full(tmp_path, shards, kind)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    model = load(tmp_path)
    with torch.no_grad():
        expected = direct_logits(base_model(kind), (embeddings(4), embeddings(5)), BEFORE, VOLUME, AFTER)
    assert_logits(model, expected)
    assert model.config.text_config.model_type == kind
    assert model.generation_config.eos_token_id == [7, 9]


def test_llava_checkpoint_a_configuration_of_older_transformers_keeps_its_positions(tmp_path: Path) -> None:
    """Return ``rope_theta`` and ``rope_scaling`` as in the configuration of CT-CHAT's code."""
    save_full(tmp_path, 1)
    scaling = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    }
    old = {
        "architectures": ["LlavaLlamaForCausalLM"],
        "model_type": "llava_llama",
        "hidden_act": "silu",
        "hidden_size": WIDTH,
        "intermediate_size": 24,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-06,
        "rope_theta": 500000.0,
        "rope_scaling": scaling,
        "tie_word_embeddings": False,
        "vocab_size": VOCABULARY + ADDED,
        "mm_hidden_size": CHANNELS,
        "mm_projector_type": "attn_pool+mlp2x_gelu",
        "tune_mm_mlp_adapter": False,
        "image_aspect_ratio": "pad",
        "tokenizer_model_max_length": 128000,
        "torch_dtype": "float32",
        "transformers_version": "4.44.0",
        "use_cache": True,
        "use_mm_proj": True,
    }
    (tmp_path / "config.json").write_text(json.dumps(old))
    model = load(tmp_path)
    base = base_model()
    base.model.rotary_emb.inv_freq = scaled_frequencies(base.config.head_dim, 500000.0, scaling)
    with torch.no_grad():
        expected = direct_logits(base, (embeddings(4), embeddings(5)), BEFORE, VOLUME, AFTER)
    assert_logits(model, expected)
    assert not [name for name in vars(model.config.text_config) if name.startswith(("mm_", "tune_mm", "image_"))]


def scaled_frequencies(size: int, theta: float, scaling: dict[str, Any]) -> Tensor:
    """Frequencies of Llama 3.1: low ones divided by the factor, high ones kept, others interpolated."""
    frequencies = []
    for index in range(0, size, 2):
        frequency = theta ** -(index / size)
        turns = scaling["original_max_position_embeddings"] * frequency / (2 * math.pi)
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        frequencies.append(frequency * (kept + (1 - kept) / scaling["factor"]))
    return torch.tensor(frequencies)


def save_tokenizer(folder: Path, *special: str, **named: str) -> Any:
    """A tokenizer with as many tokens as the base model has embeddings."""
    names = ["<unk>", "<s>", "</s>", *special]
    words = [*names, *(f"word{place}" for place in range(VOCABULARY - len(names)))]
    backend = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", **named)
    tokenizer.save_pretrained(folder)
    return tokenizer


def test_llava_checkpoint_no_padding_token_is_appended_where_the_base_has_one(adapted: Any) -> None:
    checkpoint, base_folder = adapted
    save_tokenizer(base_folder, pad_token="</s>")
    model = load(checkpoint, base_folder)
    assert model.config.text_config.vocab_size == model.config.image_token_id == VOCABULARY + 4
    processor = CTChatProcessor.from_base_model(base_folder, model.config, "vicuna")
    assert processor.tokenizer.convert_tokens_to_ids("<multiple_choice>") == VOCABULARY


@pytest.mark.parametrize("tied", [False, True])
def test_llava_checkpoint_rows_of_task_tokens(tmp_path: Path, tied: bool) -> None:
    base_folder, checkpoint = save_base(tmp_path, tied=tied), save_adapter(tmp_path)
    model = load(checkpoint, base_folder)
    base = base_model(tied=tied)
    rows = model.get_input_embeddings().weight, model.lm_head.weight
    for own, table in zip(rows, (base.model.embed_tokens.weight, base.lm_head.weight), strict=True):
        torch.testing.assert_close(own.detach(), with_mean_rows(table.detach()))


def test_llava_checkpoint_two_volumes_of_a_prompt_come_in_order(adapted: Any) -> None:
    model = load(*adapted)
    base = base_model()
    merge_lora(base)
    embedding, head = with_mean_rows(base.model.embed_tokens.weight), with_mean_rows(base.lm_head.weight)
    volumes, image = [VOLUME, VOLUME.flip(0)], [model.config.image_token_id] * QUERIES
    with torch.no_grad():
        first, second = (pooled(one, projector_weights()) for one in volumes)
        spliced = torch.cat([embedding[BEFORE], first, embedding[[5, 6]], second, embedding[AFTER]])
        expected = base.model(inputs_embeds=spliced.unsqueeze(0)).last_hidden_state[0] @ head.T
        found = model(
            input_ids=torch.tensor([[*BEFORE, *image, 5, 6, *image, *AFTER]]),
            pixel_values=torch.stack([one.reshape(-1, CHANNELS) for one in volumes]),
        ).logits[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_llava_checkpoint_a_mistral_model_that_was_saved_as_a_llama(tmp_path: Path) -> None:
    save_full(tmp_path, 1, "mistral")
    config = json.loads((tmp_path / "config.json").read_text())
    settings = {"model_type": "llava_llama", "sliding_window": None, "tokenizer_model_max_length": 4096}
    (tmp_path / "config.json").write_text(json.dumps({**config, **settings}))
    tokenizer = save_tokenizer(tmp_path)
    tokenizer.add_tokens(list(ADDED_TOKENS), special_tokens=True)
    tokenizer.pad_token = ADDED_TOKENS[0]
    tokenizer.save_pretrained(tmp_path)
    model = load(tmp_path)
    processor = CTChatProcessor.from_base_model(tmp_path, model.config)
    assert "[INST] x [/INST]" in processor.apply_chat_template([{"role": "user", "content": "x"}])
    assert processor.tokenizer.model_max_length == model.config.tokenizer_model_max_length == 4096
    assert not model.config.uses_system_prompt


def test_llava_checkpoint_a_llama_3_model_uses_a_system_prompt(adapted: Any, tmp_path: Path) -> None:
    checkpoint, base_folder = adapted
    save_tokenizer(base_folder, "<|start_header_id|>")
    model = load(checkpoint, base_folder)
    model.save_pretrained(tmp_path / "converted")
    assert CTChatForConditionalGeneration.from_pretrained(tmp_path / "converted").config.uses_system_prompt


def test_llava_checkpoint_converted_folder_gives_the_same_logits(adapted: Any, tmp_path: Path) -> None:
    model = load(*adapted)
    model.save_pretrained(tmp_path / "converted")
    again = CTChatForConditionalGeneration.from_pretrained(tmp_path / "converted")
    assert torch.equal(run(again, BEFORE, VOLUME, AFTER), run(model, BEFORE, VOLUME, AFTER))


def test_llava_checkpoint_dtype_is_the_bases_or_the_one_asked_for(adapted: Any) -> None:
    model = load(*adapted, dtype="bfloat16")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def edit(file: Path, key: str, tensor: Tensor | None = None) -> None:
    """Remove a tensor of a weight file, or replace it."""
    is_pickled = file.suffix == ".bin"
    state = torch.load(file, weights_only=True) if is_pickled else load_file(file)
    state.pop(key, None)
    (torch.save if is_pickled else save_file)(state | ({} if tensor is None else {key: tensor}), file)


W = "base_model.model.model."


@pytest.mark.parametrize(
    ("key", "tensor", "message"),
    [
        (f"{W}mm_projector.attn_pool.query", None, r"missing: mm_projector\.attn_pool\.query"),
        (f"{W}mm_projector.proj.2.bias", None, r"missing: mm_projector\.proj\.2\.bias"),
        (f"{W}mm_projector.proj.4.bias", torch.zeros(2), r"unexpected: mm_projector\.proj\.4\.bias"),
        (f"{W}mm_projector.proj.0.weight", torch.zeros(WIDTH, POOL + 1), r"misshapen: .*proj\.0\.weight \(16, 33\)"),
        (f"{W}mm_projector.attn_pool.query", torch.zeros(POOL), r"misshapen: .*attn_pool\.query"),
        (f"{W}vision_tower.conv.weight", torch.zeros(2), r"unexpected: model\.vision_tower\.conv\.weight"),
        (f"{W}embed_tokens.weight", torch.zeros(VOCABULARY + 4, WIDTH), r"misshapen: model\.embed_tokens.* \(34, 16\)"),
        ("model.mm_projector.ln.bias", torch.zeros(POOL), r"mm_projector\.ln\.bias more than"),
        (f"{W}layers.1.self_attn.q_proj.lora_B.weight", None, "missing: .*layers.1.*lora_B"),
        (f"{W}layers.2.self_attn.q_proj.lora_B.weight", torch.zeros(1), "unexpected: .*layers.2"),
        (f"{W}layers.0.self_attn.q_proj.lora_A.weight", torch.zeros(3, 16), "misshapen: .*lora_A"),
    ],
)
def test_llava_checkpoint_refuses_by_name(adapted: Any, key: str, tensor: Tensor | None, message: str) -> None:
    edit(adapted[0] / ("adapter_model.safetensors" if "lora" in key else "non_lora_trainables.bin"), key, tensor)
    with pytest.raises(ValueError, match=message):
        load(*adapted)


@pytest.mark.parametrize("key", ["model.layers.1.mlp.up_proj.weight", "lm_head.weight", "model.norm.weight"])
def test_llava_checkpoint_refuses_a_full_checkpoint_by_name(tmp_path: Path, key: str) -> None:
    save_full(tmp_path, 1)
    edit(tmp_path / "pytorch_model.bin", key)
    with pytest.raises(ValueError, match=f"missing: {key}"):
        load(tmp_path)


def test_llava_checkpoint_says_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="contains no weights; expected one of adapter_model"):
        load(tmp_path)
    with pytest.raises(ValueError, match="pass base_model, which it was trained from"):
        load(save_adapter(tmp_path))
    torch.save({}, tmp_path / "checkpoint" / "mm_projector.bin")
    with pytest.raises(ValueError, match=r"contains mm_projector\.bin and non_lora_trainables\.bin"):
        load(tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "mm_projector.bin").unlink()
    torch.save({}, tmp_path / "checkpoint" / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"contains pytorch_model\.bin and adapter_model\.safetensors"):
        load(tmp_path / "checkpoint")


class _Evil:
    def __reduce__(self) -> Any:
        return print, ("executed",)


def test_llava_checkpoint_never_executes_what_is_pickled(adapted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, base_folder = adapted
    torch.save({"model.mm_projector.ln.bias": _Evil()}, checkpoint / "non_lora_trainables.bin")
    with pytest.raises(ValueError, match="not a readable weight file"):
        load(checkpoint, base_folder)
    assert "executed" not in capsys.readouterr().out
    for torn in (b"", b"PK\x03\x04 torn", b"text"):
        (checkpoint / "non_lora_trainables.bin").write_bytes(torn)
        with pytest.raises(ValueError, match=r"non_lora_trainables\.bin: not a readable weight file"):
            load(checkpoint, base_folder)


def test_llava_checkpoint_an_index_that_lists_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(ValueError, match="is no index of weight files"):
        load(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../a.safetensors"}}))
    with pytest.raises(ValueError, match=r"lists '\.\./a\.safetensors', which is no file beside it"):
        load(tmp_path)
