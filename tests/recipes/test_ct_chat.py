"""CT-CHAT in TRL's trainers: every prompt keeps its volume, phantom data, and the recipes from corpus to reward."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from tiny_ct_chat import CHANNELS, save_tiny_ct_chat, save_volumes, tiny_ct_chat, tiny_processor, volume
from tiny_policy import WORDS
from transformers import AutoModelForCausalLM, AutoProcessor
from trl import GRPOConfig, GRPOTrainer, ModelConfig, SFTConfig, SFTTrainer
from vllm_on_cpu import start_engines_quickly

from rrg_rewards.data import phantom_studies, read_table
from rrg_rewards.models import CTChatForConditionalGeneration
from rrg_rewards.recipes import grpo, sft
from rrg_rewards.recipes._training import make_trainer
from rrg_rewards.recipes.ct_chat import phantom, prepare
from rrg_rewards.schemas import CT_RATE
from rrg_rewards.utilities.features import read_features


def rows(folder: Path, counts: list[int]) -> list[dict[str, Any]]:
    """Return rows with different words as prompts; the word identifies the first volume of the row.

    If any row has several volumes, each row has a list of them.
    """
    paths = save_volumes(folder, len(counts))
    examples = []
    for index, count in enumerate(counts):
        own = [*paths[index:], *paths[:index]][:count]
        image = {"images": own} if max(counts) > 1 else {"image": own[0] if own else None}
        examples.append({"prompt": [{"role": "user", "content": WORDS[index]}], **image})
    return examples


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param([1] * 6, marks=pytest.mark.slow),
        [1, 0, 1, 1, 0, 0],
        pytest.param([0, 0, 0, 0, 0, 1], marks=pytest.mark.slow),
        [2, 1, 0, 3, 1, 2],
    ],
    ids=["all", "some", "one", "several"],
)
def test_load_recipe_data_prompts_keep_their_volumes_through_shuffles_and_splits(
    tmp_path: Path, counts: list[int]
) -> None:
    folder = save_tiny_ct_chat(tmp_path / "model")
    processor, model = AutoProcessor.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    seen: list[tuple[list[int], list[int]]] = []

    def note(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        ids, pixel_values = kwargs["input_ids"], kwargs.get("pixel_values")
        if ids.shape[1] > 1:
            is_image = ids == processor.image_token_id
            prompts = [next(i for i, word in enumerate(WORDS[:6]) if token_of(word) in row) for row in ids.tolist()]
            having = [
                (prompt + place) % 6
                for prompt, row in zip(prompts, is_image, strict=True)
                for place in range(int(row.sum()) // processor.num_image_tokens)
            ]
            seen.append((having, [] if pixel_values is None else [whose(one) for one in pixel_values]))

    def token_of(word: str) -> int:
        return int(processor.tokenizer.convert_tokens_to_ids(word))

    def whose(features: torch.Tensor) -> int:
        numbers = features.float().numpy().ravel()
        return int(np.argmin([np.abs(numbers - volume(index).ravel()).max() for index in range(6)]))

    model.model.register_forward_pre_hook(note, with_kwargs=True)
    trainer = GRPOTrainer(
        model=model,
        processing_class=processor,
        # Words that no prompt has, so that no completion equals a prompt.
        reward_funcs=lambda completions, **_: [float(len(one[0]["content"])) for one in completions],
        train_dataset=Dataset.from_list(rows(tmp_path, counts)),
        args=GRPOConfig(
            output_dir=str(tmp_path),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            max_steps=6,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            num_generations=2,
            beta=0.1,
            max_completion_length=4,
            generation_kwargs={"suppress_tokens": [token_of(word) for word in WORDS[:6]] + [processor.image_token_id]},
            report_to="none",
            disable_tqdm=True,
        ),
    )
    trainer.train()
    assert all(prompts == volumes for prompts, volumes in seen)
    expected = {(index + place) % 6 for index, count in enumerate(counts) for place in range(count)}
    assert {prompt for prompts, _ in seen for prompt in prompts} == expected
    if set(counts) == {1}:
        assert any(prompts[0] != prompts[-1] for prompts, _ in seen if len(prompts) == 2), "nothing was shuffled"


@pytest.mark.slow
def test_ct_chat_grpo_with_a_static_cache_takes_the_steps_of_the_dynamic_one(tmp_path: Path) -> None:
    folder, data = save_tiny_ct_chat(tmp_path / "model"), Dataset.from_list(rows(tmp_path, [1] * 6))
    sampled: dict[str | None, list[list[int]]] = {None: [], "static": []}
    trained = []
    for cache, seen in sampled.items():
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder),
            processing_class=AutoProcessor.from_pretrained(folder),
            reward_funcs=lambda completion_ids, seen=seen, **_: (
                seen.extend(completion_ids) or [sum(one) / len(one) for one in completion_ids]
            ),
            train_dataset=data,
            args=GRPOConfig(
                output_dir=str(tmp_path),
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                max_steps=3,
                per_device_train_batch_size=6,
                num_generations=3,
                max_completion_length=6,
                learning_rate=1e-3,
                beta=0.1,
                cache_implementation=cache,
                report_to="none",
                disable_tqdm=True,
            ),
        )
        trainer.train()
        # Steps with a static cache are not compiled, on a GPU neither: TRL excludes it.
        assert trainer.generation_config.disable_compile
        trained.append(torch.cat([own.detach().flatten() for own in trainer.model.parameters()]))
    assert len(sampled[None]) == 18
    assert sampled["static"] == sampled[None]
    torch.testing.assert_close(trained[1], trained[0], rtol=0, atol=1e-6)


def test_load_recipe_data_supervised_rows_keep_their_volumes(tmp_path: Path) -> None:
    processor = tiny_processor()
    examples = [{**row, "completion": [{"role": "assistant", "content": "normal"}]} for row in rows(tmp_path, [1] * 4)]
    trainer = SFTTrainer(
        model=tiny_ct_chat(processor),
        processing_class=processor,
        train_dataset=Dataset.from_list(examples),
        args=SFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, max_length=None, report_to="none"),
    )
    batch = trainer.data_collator(examples)
    expected = torch.from_numpy(np.stack([volume(index) for index in range(4)])).reshape(4, -1, CHANNELS)
    assert torch.equal(batch["pixel_values"], expected)
    learned = [processor.tokenizer.decode(row[row != -100]) for row in batch["labels"]]
    assert learned == ["normal <|eot_id|>"] * 4


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("phantom")
    phantom.main(["--output", str(folder), "--train-rows", "40", "--heldout-rows", "10", "--seed", "3"])
    return folder


def test_ct_chat_phantom_corpus(corpus: Path) -> None:
    train, heldout = (read_table(corpus / f"{name}.jsonl") for name in ("train", "heldout"))
    studies = phantom_studies(40, seed=3, style="compact", normal=0.3)
    assert train.column("impression") == [study.impression_text for study in studies]
    assert train.column("labels") == [list(study.labels) for study in studies]
    assert not {*train.column("study_id")} & {*heldout.column("study_id")}
    shorter = [len(a) < len(b) for a, b in zip(train.column("abridged"), train.column("impression"), strict=True)]
    assert 5 < sum(shorter) < 40
    assert read_features(corpus / train.column("image")[0]).shape == (4, 4, 4, 32)
    model = AutoModelForCausalLM.from_pretrained(corpus / "model")
    processor = AutoProcessor.from_pretrained(corpus / "model")
    assert isinstance(model, CTChatForConditionalGeneration)
    assert model.num_parameters() < 500_000
    ids = processor.tokenizer(" ".join(train.column("impression")))["input_ids"]
    assert processor.tokenizer.unk_token_id not in ids


@pytest.mark.slow
def test_ct_chat_warm_start_then_reinforcement(corpus: Path, tmp_path: Path) -> None:
    small = ["--dataset", str(corpus / "train.jsonl"), "--heldout_file", str(corpus / "heldout.jsonl")]
    warm = ["--config", "ct_chat/mini_sft", "--model_name_or_path", str(corpus / "model"), *small]
    sft.main([*warm, "--output_dir", str(tmp_path / "sft"), "--max_steps", "3", "--warmup_steps", "0"])
    described = json.loads((tmp_path / "sft" / "run.json").read_text())
    assert described["rows"]["train"] == 40
    assert described["config"]["completion_column"] == "abridged"
    before, after = (AutoModelForCausalLM.from_pretrained(folder) for folder in (corpus / "model", tmp_path / "sft"))
    for name, weights in before.named_parameters():
        assert not torch.equal(weights, after.get_parameter(name)), name

    config = ["--config", "ct_chat/mini_grpo_crg", "--model_name_or_path", str(tmp_path / "sft"), *small]
    sizes = ["--max_steps", "2", "--per_device_train_batch_size", "16", "--heldout_rows", "10"]
    grpo.main([*config, *sizes, "--output_dir", str(tmp_path / "grpo")])
    evaluation = json.loads((tmp_path / "grpo" / "evaluation.json").read_text())
    assert evaluation.keys() == {"before", "after", "images_of_others", "change"}
    assert len((tmp_path / "grpo" / "heldout_images_of_others.jsonl").read_text().splitlines()) == 10


@pytest.mark.slow
def test_ct_chat_crg_and_ct_finebench_together(corpus: Path, tmp_path: Path) -> None:
    small = ["--dataset", str(corpus / "train.jsonl"), "--heldout_file", str(corpus / "heldout.jsonl")]
    config = ["--config", "ct_chat/mini_grpo_crg_finebench", "--model_name_or_path", str(corpus / "model"), *small]
    sizes = ["--max_steps", "2", "--per_device_train_batch_size", "16", "--heldout_rows", "10"]
    grpo.main([*config, *sizes, "--output_dir", str(tmp_path / "grpo")])
    steps = [
        entry for entry in json.loads((tmp_path / "grpo" / "history.json").read_text()) if "rewards/crg/mean" in entry
    ]
    assert len(steps) == 2
    described = json.loads((tmp_path / "grpo" / "run.json").read_text())
    weights = {reward["name"]: reward["weight"] for reward in described["rewards"]}
    for entry in steps:
        assert entry["crg/unscorable"] == 0
        # A model with random weights names no finding; an empty report is correct for a normal chest.
        assert 0 <= entry["rewards/ct_finebench/mean"] < 0.5
        assert entry["ct_finebench/recall_items"] > 1
        total = sum(weight * entry[f"rewards/{name}/mean"] for name, weight in weights.items())
        assert entry["ct_finebench/unscorable"] > 0 or entry["reward"] == pytest.approx(total, rel=1e-4)
    evaluation = json.loads((tmp_path / "grpo" / "evaluation.json").read_text())
    kinds = {"existence", "attributes", "numeric", "categorical", "location", "items", "answered"}
    for stage in ("before", "after", "images_of_others", "change"):
        found = evaluation[stage]["ct_finebench"]
        assert {f"{side}_{kind}" for side in ("recall", "precision") for kind in kinds} < found.keys()
        assert "crg" in evaluation[stage]["crg"]


@pytest.mark.parametrize("system", [None, "Be brief."])
def test_ct_chat_a_model_that_was_trained_with_a_system_prompt(
    system: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = save_tiny_ct_chat(tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "uses_system_prompt": True}))
    first = [] if system is None else [{"role": "system", "content": system}]
    messages = [*first, {"role": "user", "content": "edema"}]
    train = Dataset.from_list([{"prompt": messages, "completion": [{"role": "assistant", "content": "normal"}]}])
    training = SFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, max_length=None, report_to="none")
    make_trainer(SFTTrainer, training, ModelConfig(model_name_or_path=str(model)), train, None)
    assert ("trained with a system prompt in every conversation" in caplog.text) is (system is None)


def test_prepare_ct_rate_tables(tmp_path: Path) -> None:
    features = tmp_path / "features"
    features.mkdir()
    for name in ("train_1_a_1", "train_1_a_2", "train_2_a_1"):
        np.savez(features / f"{name}.npz", arr=np.zeros((1, 2, 2, 2, 4), np.float16))
    names = ["train_1_a_1.nii.gz", "train_1_a_2.nii.gz", "train_2_a_1.nii.gz", "train_3_a_1.nii.gz"]
    texts = [("Large heart.", "Cardiomegaly."), ("Large heart.", "Cardiomegaly."), ("Clear lungs.", ""), ("A.", "B.")]
    lines = ["VolumeName,Findings_EN,Impressions_EN", *(f"{n},{f},{i}" for n, (f, i) in zip(names, texts, strict=True))]
    (tmp_path / "reports.csv").write_text("\n".join(lines) + "\n")
    labels = ["VolumeName," + ",".join(CT_RATE.labels)]
    labels += [f"{name}," + ",".join(["0", "0", "1", *["0"] * 15]) for name in names]
    (tmp_path / "labels.csv").write_text("\n".join(labels) + "\n")
    arguments = []
    for split in ("train", "heldout"):
        arguments += [f"--{split}-reports", str(tmp_path / "reports.csv")]
        arguments += [f"--{split}-labels", str(tmp_path / "labels.csv")]
    prepare.main([*arguments, "--features", str(features), "--output", str(tmp_path / "out")])
    table = read_table(tmp_path / "out" / "train.jsonl")
    assert table.column("study_id") == ["train_1_a_1", "train_2_a_1"]
    assert table.column("report") == ["Findings: Large heart. Impression: Cardiomegaly.", "Findings: Clear lungs."]
    assert table.column(CT_RATE.labels[2]) == [1, 1]
    assert all(Path(path).is_absolute() and Path(path).is_file() for path in table.column("image"))


@pytest.mark.parametrize(
    "name",
    [
        "report_sft",
        pytest.param("report_grpo_crg", marks=pytest.mark.slow),
        pytest.param("report_grpo_crg_zero3", marks=pytest.mark.slow),
        pytest.param("report_grpo_crg_vllm", marks=pytest.mark.vllm),
    ],
)
def test_recipes_of_the_large_model_train_a_small_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All keys except the sizes: 16-bit weights, LoRA and projector, checkpointing, masks, losses, resuming."""
    uses_vllm = "vllm" in name
    if uses_vllm:
        start_engines_quickly(monkeypatch)
    # vLLM's kernels for CPUs take no heads of the usual test size.
    sizes = {"hidden_size": 64, "initializer_range": 0.15} if uses_vllm else {}
    model = save_tiny_ct_chat(tmp_path / "model", **sizes)
    paths = save_volumes(tmp_path / "volumes", 10)
    texts = ["Findings: lungs normal", "Findings: edema heart"]
    table = [
        {"image": path, "report": texts[index % 2], **dict.fromkeys(CT_RATE.labels, index % 2)}
        for index, path in enumerate(paths)
    ]
    for split in ("train", "heldout"):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
        table = [
            {**row, "image": path} for row, path in zip(table[:3], save_volumes(tmp_path / "more", 3), strict=True)
        ]
    script = sft if name == "report_sft" else grpo
    options = {
        "model_name_or_path": model,
        "dataset": tmp_path / "train.jsonl",
        "heldout_file": tmp_path / "heldout.jsonl",
        "output_dir": tmp_path / "run",
        "use_cpu": "true",
        "max_steps": 2,
        "save_steps": 1,
        "per_device_train_batch_size": 4,
        **({"vllm_max_model_length": 96, "learning_rate": 1e-2} if uses_vllm else {}),
        **({"eval_steps": 1} if script is sft else {"num_generations": 4, "max_completion_length": 8}),
    }
    argv = [part for key, value in options.items() for part in (f"--{key}", str(value))]
    trainer = script.run(*script.parse(["--config", f"ct_chat/{name}", *argv]))
    types = {
        ("projector" if "mm_projector" in key else "adapter" if ".lora_" in key else "base"): weights.dtype
        for key, weights in trainer.model.named_parameters()
        if weights.requires_grad or ".base_layer." in key
    }
    # Steps of this size vanish in bfloat16.
    assert types == {"base": torch.bfloat16, "adapter": torch.float32, "projector": torch.float32}
    adapter = load_file(tmp_path / "run" / "adapter_model.safetensors")
    start = load_file(model / "model.safetensors")
    changed = [
        not torch.equal(value.float(), start[key.removeprefix("base_model.model.")].bfloat16().float())
        for key, value in adapter.items()
        if "mm_projector" in key
    ]
    assert len(changed) == 14
    assert sum(changed) > 7
    assert (tmp_path / "run" / "checkpoint-2" / "trainer_state.json").is_file()
    if uses_vllm:
        name = "sampling/sampling_logp_difference/mean"
        # vLLM gets the merged adapter and the trained projector. Both sides compute in bfloat16.
        assert [entry[name] < 0.05 for entry in trainer.state.log_history if name in entry] == [True, True]
        trainer.vllm_generation.llm.llm_engine.engine_core.shutdown()
