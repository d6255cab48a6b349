"""ER²Score's model, configuration and weights."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_crepe import random_pairs, tiny_bert_tokenizer
from tiny_er2score import (
    LORA,
    plain_rewards,
    randomize,
    save_tiny_er2score,
    save_tiny_llama,
    tiny_llama_config,
    tiny_llama_tokenizer,
)
from transformers import (
    AutoModel,
    BertConfig,
    Gemma2Config,
    GPT2Config,
    Lfm2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    Qwen2Config,
    RecurrentGemmaConfig,
)

from rrg_rewards.models import ER2ScoreConfig, ER2ScoreModel
from rrg_rewards.models.er2score.prompt import PromptEncoder, PromptTemplate
from rrg_rewards.models.er2score.weights import add_adapter
from rrg_rewards.schemas import get_scoring_system

SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
SLIDING = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
FAMILIES = {
    "llama": lambda: LlamaConfig(**SIZES),
    "qwen2": lambda: Qwen2Config(**SIZES),
    "qwen2, layers with a window": lambda: Qwen2Config(**SIZES, **SLIDING),
    "mistral, window of 6": lambda: MistralConfig(**SIZES, sliding_window=6),
    "mistral, window of 100": lambda: MistralConfig(**SIZES, sliding_window=100),
    "gemma2": lambda: Gemma2Config(**SIZES, sliding_window=6, head_dim=8),
    "lfm2, convolutions among the layers": lambda: Lfm2Config(
        **SIZES, layer_types=["conv", "full_attention", "conv"]
    ),
    "gpt2, learned positions": lambda: GPT2Config(
        vocab_size=60, n_embd=32, n_layer=3, n_head=4, n_positions=128, initializer_range=0.2, bos_token_id=0,
        eos_token_id=1, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0,
    ),
}  # fmt: skip
# Two of three prefixes have several suffixes; the longest is much longer than the attention windows.
PREFIXES, SUFFIXES, OWNER = (9, 17, 3), (4, 11, 1, 6, 8), (0, 1, 1, 2, 0)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("er2score")


@pytest.fixture(scope="module")
def backbone(root):
    return save_tiny_llama(root / "llama")


def rows_of(lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, 60, (length,), generator=generator) for length in lengths]


def padded(rows, side):
    longest = max(map(len, rows))
    ids, mask = torch.zeros(2, len(rows), longest, dtype=torch.long)
    for row, tokens in enumerate(rows):
        place = slice(longest - len(tokens), None) if side == "left" else slice(len(tokens))
        ids[row, place], mask[row, place] = tokens, 1
    return ids, mask


def family(name):
    torch.manual_seed(0)
    return randomize(ER2ScoreModel(ER2ScoreConfig(FAMILIES[name](), "mrscore")).eval())


def prompts():
    prefixes, suffixes = rows_of(PREFIXES, 1), rows_of(SUFFIXES, 2)
    whole = [torch.cat([prefixes[owner], suffix]) for owner, suffix in zip(OWNER, suffixes, strict=True)]
    return prefixes, suffixes, whole


def shared(prefixes, suffixes):
    return *padded(prefixes, "left"), *padded(suffixes, "right"), torch.tensor(OWNER)


def one_by_one(model, whole):
    return torch.cat([model(tokens[None], torch.ones(1, len(tokens), dtype=torch.long)).rewards for tokens in whole])


def assert_near(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", FAMILIES)
def test_er2score_model_rewards_are_read_at_the_last_token_whichever_side_is_padded(name, side):
    model, (*_, whole) = family(name), prompts()

    with torch.no_grad():
        expected = one_by_one(model, whole)
        assert_near(model(*padded(whole, side)).rewards, expected)
    assert expected.shape == (5, 7)
    assert expected.std(0).min() > 0.1, "prompts hardly differ: the test says little"


@pytest.mark.parametrize("name", FAMILIES)
def test_er2score_model_shared_prefixes_change_nothing(name):
    model, (prefixes, suffixes, whole) = family(name), prompts()

    with torch.no_grad():
        assert_near(model.forward_shared(*shared(prefixes, suffixes)).rewards, one_by_one(model, whole))


def test_er2score_model_each_prefix_is_run_once(monkeypatch):
    model, (prefixes, suffixes, _) = family("llama"), prompts()
    seen = []
    embed = model.get_input_embeddings().forward
    monkeypatch.setattr(
        model.get_input_embeddings(), "forward", lambda ids: seen.append(tuple(ids.shape)) or embed(ids)
    )
    model.forward_shared(*shared(prefixes, suffixes))

    assert seen == [(3, 17), (5, 11)]


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", ["llama", "mistral, window of 6"])
def test_er2score_model_gradients_flow_through_shared_prefixes(name, checkpointing):
    model, (prefixes, suffixes, whole) = family(name).train(), prompts()
    weights = torch.randn(5, 7, generator=torch.Generator().manual_seed(3))

    def gradients(rewards):
        (rewards * weights).sum().backward()
        found = {name: value.grad.clone() for name, value in model.named_parameters()}
        model.zero_grad()
        return found

    expected = gradients(one_by_one(model, whole))
    if checkpointing:
        model.gradient_checkpointing_enable()
    for key, found in gradients(model.forward_shared(*shared(prefixes, suffixes)).rewards).items():
        torch.testing.assert_close(found, expected[key], rtol=1e-4, atol=1e-4 * expected[key].abs().max().item())


@pytest.mark.parametrize("name", ["mistral, window of 6", "lfm2, convolutions among the layers"])
def test_er2score_model_prefixes_are_read_once_and_continued_many_times(name):
    model, (prefixes, suffixes, whole) = family(name), prompts()

    with torch.no_grad():
        read = model.read_prefixes(*padded(prefixes, "left"))
        found = [
            model.continue_prefixes(read, *padded([suffix], "right"), torch.tensor([owner])).rewards
            for owner, suffix in zip(OWNER, suffixes, strict=True)
        ]
        assert_near(torch.cat(found), one_by_one(model, whole))


@pytest.mark.parametrize("config", [MambaConfig, RecurrentGemmaConfig])
def test_er2score_model_backbones_that_could_not_share_a_prefix_are_refused(config):
    with pytest.raises(ValueError, match="prompts cannot share a prefix"):
        ER2ScoreModel(ER2ScoreConfig(config(**{**SIZES, "num_key_value_heads": 4})))


def test_er2score_model_prefixes_padded_on_the_right_are_refused():
    model, (prefixes, suffixes, _) = family("llama"), prompts()
    with pytest.raises(ValueError, match="pad prefixes on the left and suffixes on the right"):
        model.forward_shared(*padded(prefixes, "right"), *padded(suffixes, "right"), torch.tensor(OWNER))


def test_er2score_model_rewards_carry_the_weights_of_the_criteria():
    model, (*_, whole) = family("llama"), prompts()
    with torch.no_grad():
        before = one_by_one(model, whole)
        model.criterion_weights.fill_(1)
        after = one_by_one(model, whole)

    torch.testing.assert_close(before, after * torch.tensor([30.0, 20, 20, 10, 10, 5, 5]))
    assert before.dtype == torch.float32


def test_er2score_model_the_head_computes_in_float32_under_autocast_and_on_a_half_precision_backbone(backbone):
    model = randomize(ER2ScoreModel.from_backbone(backbone, dtype=torch.bfloat16)).eval()
    ids = torch.randint(2, 200, (2, 12), generator=torch.Generator().manual_seed(0))
    hidden = []
    model.head.register_forward_pre_hook(lambda _, arguments: hidden.append(arguments[0].dtype))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        rewards = model(ids, torch.ones_like(ids)).rewards

    assert hidden == [torch.float32]
    assert rewards.dtype == torch.float32
    assert {value.dtype for value in model.backbone.parameters()} == {torch.bfloat16}


def encoded(model, number=4):
    candidates, references = random_pairs(number, longest=30)
    encoder = PromptEncoder(model.tokenizer, PromptTemplate(model.config.prompt), model.config.max_prompt_length)
    return encoder.collate(encoder(references, candidates))


def rewards_of(model, number=4):
    with torch.no_grad():
        return model.eval()(**encoded(model, number)).rewards


SYSTEM = """
name: three
base: 10
direction: add
criteria:
  - {name: coverage, description: Is all said., kind: grade, range: [0, 5], weight: 2}
  - {name: style, description: Is it well said., kind: grade, range: [0, 5]}
  - {name: errors, description: Is it free of errors., kind: yes_no, weight: 0.5}
"""


@pytest.mark.parametrize("lora", [None, LORA, {"r": 2}])
def test_er2score_model_a_folder_is_read_back_without_being_told_anything(backbone, tmp_path, lora, monkeypatch):
    (tmp_path / "three.yaml").write_text(SYSTEM)
    prompt = "{criteria}\n{reference}\n--\n{candidate}\n--\nMarks:"
    model = ER2ScoreModel.from_backbone(
        backbone, tmp_path / "three.yaml", num_layers=1, lora=lora, prompt=prompt, max_length=300
    )
    expected = rewards_of(randomize(model))
    model.save_pretrained(tmp_path / "saved")
    # The model is loaded from another working directory.
    monkeypatch.chdir(tmp_path)

    again = ER2ScoreModel.from_pretrained(tmp_path / "saved")

    assert torch.equal(rewards_of(again), expected)
    assert again.scoring_system == model.scoring_system
    assert (again.config.prompt, again.config.max_prompt_length, again.config.num_layers) == (prompt, 300, 1)
    assert not again.training
    assert isinstance(again.tokenizer, type(model.tokenizer))
    files = {path.relative_to(tmp_path / "saved").as_posix() for path in (tmp_path / "saved").rglob("*.*")}
    assert {"config.json", "head.safetensors", "tokenizer.json"} <= files
    assert ("adapter/adapter_model.safetensors" in files) == (lora is not None)
    assert ("backbone/model.safetensors" in files) == (lora is None)
    assert not {path for path in files if path.endswith((".bin", ".pt", ".pkl"))}


@pytest.mark.parametrize("lora", [None, LORA])
def test_er2score_model_the_model_is_what_it_is_said_to_be(tmp_path, lora):
    folder = save_tiny_er2score(tmp_path, lora=lora)
    candidates, references = random_pairs(4, longest=30)
    expected = torch.stack([plain_rewards(folder, *pair) for pair in zip(candidates, references, strict=True)])

    torch.testing.assert_close(rewards_of(ER2ScoreModel.from_pretrained(folder)), expected, rtol=1e-5, atol=1e-5)
    assert expected.std(0).min() > 0.1


def test_er2score_model_a_merged_adapter_scores_as_before_and_needs_no_other_folder(tmp_path):
    model = ER2ScoreModel.from_pretrained(save_tiny_er2score(tmp_path, lora=LORA))
    unmerged = rewards_of(model)

    merged = rewards_of(model.merge_adapter())
    model.save_pretrained(tmp_path / "merged")
    (tmp_path / "llama").rename(tmp_path / "gone")

    torch.testing.assert_close(merged, unmerged, rtol=0, atol=1e-5)
    assert not any("lora" in name for name, _ in model.named_parameters())
    assert all(value.requires_grad for value in model.parameters())
    assert torch.equal(rewards_of(ER2ScoreModel.from_pretrained(tmp_path / "merged")), merged)
    with pytest.raises(ValueError, match="no adapter to merge"):
        model.merge_adapter()


def test_er2score_model_the_adapter_is_one_that_peft_reads_and_is_not_idle(tmp_path):
    folder = save_tiny_er2score(tmp_path, lora=LORA)
    rewards = rewards_of(ER2ScoreModel.from_pretrained(folder))
    weights = load_file(folder / "adapter" / "adapter_model.safetensors")
    save_file(
        {key: torch.zeros_like(value) for key, value in weights.items()},
        folder / "adapter" / "adapter_model.safetensors",
    )

    assert (rewards_of(ER2ScoreModel.from_pretrained(folder)) - rewards).abs().max() > 0.1


def test_er2score_model_a_plain_backbone_keeps_its_weights_and_adapters_freeze_them(backbone):
    whole, adapted = (ER2ScoreModel.from_backbone(backbone, lora=lora) for lora in (None, LORA))
    expected = AutoModel.from_pretrained(backbone).state_dict()

    assert all(part.training for part in whole.modules())
    found = whole.backbone.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert all(value.requires_grad for value in whole.parameters())
    trained = {name for name, value in adapted.named_parameters() if value.requires_grad}
    assert trained == {name for name, _ in adapted.named_parameters() if "lora_" in name or name.startswith("head.")}


def test_er2score_model_every_parameter_learns(backbone):
    for lora in (None, LORA):
        model = randomize(ER2ScoreModel.from_backbone(backbone, lora=lora)).train()
        model(**encoded(model)).rewards.sum().backward()
        # Otherwise DistributedDataParallel waits for a missing gradient.
        assert all(value.grad is not None for value in model.parameters() if value.requires_grad)


def test_er2score_model_layers_are_cut_from_the_top(backbone):
    model, whole = (randomize(ER2ScoreModel.from_backbone(backbone, num_layers=layers)) for layers in (1, None))

    assert {name.split(".")[2] for name in model.state_dict() if "layers" in name} == {"0"}
    assert (rewards_of(model) - rewards_of(whole)).abs().max() > 0.1
    with pytest.raises(ValueError, match=r"num_layers is 3, but .* has 2 layers"):
        ER2ScoreModel.from_backbone(backbone, num_layers=3)


def test_er2score_model_layers_of_mixed_kinds_are_cut_with_their_kinds(tmp_path):
    AutoModel.from_config(FAMILIES["qwen2, layers with a window"]()).save_pretrained(tmp_path)

    model = ER2ScoreModel.from_backbone(tmp_path, num_layers=2)

    assert model.config.backbone_config.layer_types == ["full_attention", "sliding_attention"]
    assert model.tokenizer is None


def test_er2score_model_prompts_are_no_longer_than_the_backbone_takes(tmp_path):
    backbone = save_tiny_llama(tmp_path, max_position_embeddings=200)
    assert ER2ScoreModel.from_backbone(backbone).config.max_prompt_length == 200
    assert ER2ScoreModel.from_backbone(backbone, max_length=150).config.max_prompt_length == 150


def test_er2score_model_a_backbone_that_has_moved_is_asked_for(tmp_path, monkeypatch):
    folder = save_tiny_er2score(tmp_path, lora=LORA)
    expected = rewards_of(ER2ScoreModel.from_pretrained(folder))
    (tmp_path / "llama").rename(tmp_path / "moved")

    with pytest.raises(FileNotFoundError, match=r"adapter on the backbone .*llama, which does not exist; .* backbone="):
        ER2ScoreModel.from_pretrained(folder)
    monkeypatch.chdir(tmp_path)
    found = ER2ScoreModel.from_pretrained(folder, backbone="moved")
    assert torch.equal(rewards_of(found), expected)
    # The saved model records the new location.
    found.save_pretrained(folder)
    monkeypatch.chdir(folder)
    assert torch.equal(rewards_of(ER2ScoreModel.from_pretrained(folder)), expected)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        ER2ScoreModel.from_pretrained(folder, backbone=tmp_path / "nowhere")
    found.merge_adapter().save_pretrained(tmp_path / "merged")
    with pytest.raises(ValueError, match="contains its backbone and no adapter; omit backbone="):
        ER2ScoreModel.from_pretrained(tmp_path / "merged", backbone=tmp_path / "moved")


def test_er2score_model_another_backbone_is_refused(tmp_path):
    folder = save_tiny_er2score(tmp_path, lora=LORA)
    other = save_tiny_llama(tmp_path / "other", hidden_size=64, num_hidden_layers=1)
    with pytest.raises(ValueError, match=r"not the backbone .* it has hidden_size 64, not 32; 1 layers, not 2"):
        ER2ScoreModel.from_pretrained(folder, backbone=other)


def change(folder, **fields):
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, **fields}))


def test_er2score_model_checkpoints_of_another_system_or_torn_ones_are_refused(tmp_path):
    folder = save_tiny_er2score(tmp_path, lora=LORA)
    change(folder, scoring_system=get_scoring_system("mrscore").to_dict())
    with pytest.raises(ValueError, match=r"heads for 6 criteria, but the scoring system 'mrscore' of its .* has 7"):
        ER2ScoreModel.from_pretrained(folder)
    change(folder, scoring_system={**get_scoring_system("radcliq").to_dict(), "total_range": [0, 100]})
    with pytest.raises(ValueError, match="must be finite"):
        ER2ScoreModel.from_pretrained(folder)
    change(folder, scoring_system=get_scoring_system("radcliq").to_dict())

    adapter = folder / "adapter" / "adapter_model.safetensors"
    weights = load_file(adapter)
    name, value = next(iter(weights.items()))
    save_file({key: weights[key] for key in weights if key != name}, adapter)
    with pytest.raises(ValueError, match=r"does not fit the model .missing: base_model"):
        ER2ScoreModel.from_pretrained(folder)
    save_file({**weights, name: value[:1]}, adapter)
    with pytest.raises(ValueError, match="misshapen: base_model"):
        ER2ScoreModel.from_pretrained(folder)
    adapter.write_bytes(adapter.read_bytes()[:50])
    with pytest.raises(ValueError, match="not a readable weight file"):
        ER2ScoreModel.from_pretrained(folder)
    adapter.unlink()
    with pytest.raises(FileNotFoundError):
        ER2ScoreModel.from_pretrained(folder)


def test_er2score_model_what_is_no_model_of_the_kind_is_refused(backbone, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"contains no head\.safetensors, .*ER2ScoreModel\.from_backbone"):
        ER2ScoreModel.from_pretrained(backbone)
    folder = save_tiny_er2score(tmp_path)
    change(folder, model_type="llama")
    with pytest.raises(ValueError, match="is of type llama, which is not an ER2Score model"):
        ER2ScoreModel.from_pretrained(folder)


def test_er2score_model_weights_that_would_have_to_be_unpickled_are_not_read(tmp_path):
    backbone = save_tiny_llama(tmp_path)
    torch.save(load_file(backbone / "model.safetensors"), backbone / "pytorch_model.bin")
    (backbone / "model.safetensors").unlink()
    with pytest.raises(OSError, match="safetensors"):
        ER2ScoreModel.from_backbone(backbone)


def test_er2score_model_backbones_that_do_not_do_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        ER2ScoreModel.from_backbone(tmp_path / "nowhere")
    BertConfig(vocab_size=len(tiny_bert_tokenizer()), hidden_size=8).save_pretrained(tmp_path / "bert")
    with pytest.raises(ValueError, match="of type bert, which is not a decoder"):
        ER2ScoreModel.from_backbone(tmp_path / "bert")
    backbone = save_tiny_llama(tmp_path / "torn")
    weights = load_file(backbone / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, backbone / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks weights: layers\.1\.mlp\.up_proj\.weight"):
        ER2ScoreModel.from_backbone(backbone)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scoring_system": "radclik"}, "unknown scoring system 'radclik'; did you mean 'radcliq'"),
        ({"prompt": "{reference}"}, "must contain {candidate} once, but contains it 0 times"),
        ({"max_length": 0}, "max_prompt_length must be positive, got 0"),
        ({"lora": {"rank": 4}}, r"lora must contain fields of peft\.LoraConfig: .*rank"),
        ({"lora": {"target_modules": ["nothing"]}}, "nothing"),
        ({"quantization": "4bit"}, "4-bit weights cannot be trained: .*give lora"),
        ({"quantization": "8bit", "lora": LORA}, "quantization must be '4bit' or None, got '8bit'"),
    ],
)
def test_er2score_model_settings_without_a_meaning_are_refused(backbone, options, message):
    with pytest.raises(ValueError, match=message):
        ER2ScoreModel.from_backbone(backbone, **options)


def test_er2score_model_four_bits_without_bitsandbytes_say_what_to_do(backbone, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    message = r"bitsandbytes is not installed; run: .*\[qlora\].*quantization=None to load the backbone"
    with pytest.raises(ModuleNotFoundError, match=message):
        ER2ScoreModel.from_backbone(backbone, lora=LORA, quantization="4bit")
    folder = save_tiny_er2score(tmp_path, lora=LORA)
    change(folder, quantization="4bit")
    with pytest.raises(ModuleNotFoundError, match=message):
        ER2ScoreModel.from_pretrained(folder)
    assert ER2ScoreModel.from_pretrained(folder, quantization=None).config.quantization is None


def test_er2score_model_four_bits_under_an_adapter(tmp_path):
    pytest.importorskip("bitsandbytes", reason="4-bit weights need bitsandbytes")
    # Blocks of 64 weights share a constant.
    backbone = save_tiny_llama(tmp_path / "llama", hidden_size=64, intermediate_size=128)
    model = randomize(ER2ScoreModel.from_backbone(backbone, lora=LORA, quantization="4bit"))
    model.train()(**encoded(model)).rewards.sum().backward()
    assert all(value.grad is not None for value in model.parameters() if value.requires_grad)
    expected = rewards_of(model)
    model.save_pretrained(tmp_path / "model")

    again, whole = (
        ER2ScoreModel.from_pretrained(tmp_path / "model", **given) for given in ({}, {"quantization": None})
    )

    assert torch.equal(rewards_of(again), expected)
    difference = (rewards_of(whole) - expected).abs().max()
    assert 0 < difference < 0.5 * expected.abs().max()
    with pytest.raises(ValueError, match="not merged into 4-bit weights"):
        again.merge_adapter()


def test_er2score_model_a_configuration_survives_saving(tmp_path):
    config = ER2ScoreConfig(
        tiny_llama_config(), "mrscore", num_layers=2, lora=LORA, quantization="4bit", backbone="a/b"
    )
    config.save_pretrained(tmp_path)

    again = ER2ScoreConfig.from_pretrained(tmp_path)

    assert again.to_dict() == config.to_dict()
    assert again.system == get_scoring_system("mrscore")
    assert again.hidden_size == 32
    assert type(again.backbone_config) is LlamaConfig
    assert tiny_llama_tokenizer().vocab_size == again.backbone_config.vocab_size


@pytest.mark.parametrize(
    "lora",
    [
        {"r": 16, "target_modules": ["q_proj", "v_proj"]},
        {"r": 8, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
    ],
)
def test_trained_weights_of_the_paper_fit_two_settings(lora):
    """6.8M, counted in one of Llama-3-8B's 32 equal layers."""
    layer = LlamaConfig(
        hidden_size=4096, intermediate_size=64, num_attention_heads=32, num_key_value_heads=8, num_hidden_layers=1
    )
    with torch.device("meta"):
        backbone = add_adapter(AutoModel.from_config(layer), lora)
    trained = 32 * sum(parameter.numel() for parameter in backbone.parameters() if parameter.requires_grad)
    assert trained == 6_815_744
