"""Recipes of Lightning's PolicyModule end to end, with a policy of random weights."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

pytest.importorskip("lightning.pytorch")

import rrg_rewards.training.checkpoints as training_checkpoints
from rrg_rewards.recipes.policy import PolicyTraining, last_checkpoint, main, parse, run, validate
from rrg_rewards.utilities.checkpoints import CheckpointError
from rrg_rewards.utilities.files import whole_file

LABELER = "keywords:edema effusion nodule"


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


@pytest.fixture
def policy_recipe(recipe: Callable[..., Path]) -> Callable[..., Path]:
    """Write a recipe of PolicyModule."""
    others = (
        "bf16", "gradient_checkpointing", "per_device_train_batch_size", "max_completion_length", "logging_steps",
        "report_to", "disable_tqdm",
    )  # fmt: skip
    own = {
        "batch_size": 2, "num_generations": 4, "max_new_tokens": 6, "learning_rate": 0.01, "save_steps": 2,
        "rewards": [{"name": "crg", "labeler": LABELER, "label_column": "labels"}],
    }  # fmt: skip
    return lambda **changes: recipe(**{**dict.fromkeys(others), **own, **changes})


@pytest.mark.parametrize(("algorithm", "loss"), [("grpo", {"aggregation": "token_mean"}), ("dr_grpo", {})])
def test_policy_training_has_the_loss_of_its_algorithm(algorithm: str, loss: dict[str, str]) -> None:
    assert PolicyTraining(output_dir="run", algorithm=algorithm).module_options()["loss"] == loss


def test_policy_recipe_a_run_writes_what_the_recipes_of_trl_write(
    policy_recipe: Callable[..., Path], tmp_path: Path
) -> None:
    own = {"max_steps": 4, "minibatches": 2, "scale": "gdpo", "clip_high": 0.28, "mask_truncated": True, "max_draws": 2}
    watch = {"watch": True, "watch_metrics": [{"name": "chrf"}], "watch_labeler": ""}
    path = policy_recipe(**own, **watch, heldout_metrics=[{"name": "bleu"}])
    validate(path)
    main(["--config", str(path)])
    folder = tmp_path / "run"
    steps = read(folder, "history.json")
    assert [entry["step"] for entry in steps] == [1, 2, 3, 4]
    assert all(entry["reward"] == entry["rewards/crg/mean"] for entry in steps)
    assert read(folder, "run.json")["rewards"][0]["name"] == "crg"
    evaluation = read(folder, "evaluation.json")
    assert evaluation.keys() == {"before", "after", "change"}
    assert evaluation["after"].keys() == {"crg", "bleu"}
    rows = [json.loads(line) for line in (folder / "heldout_after.jsonl").read_text().splitlines()]
    assert len(rows) == read(folder, "run.json")["rows"]["heldout"]
    for name in ("run.html", "README.md", "reward_watch.html"):
        assert (folder / name).stat().st_size
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    for row in rows:
        # The saved policy writes the evaluated reports.
        ids = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_tensors="pt")["input_ids"]
        output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)
        assert tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True) == row["report"]


def test_policy_recipe_a_resumed_run_ends_like_an_uninterrupted_one(
    policy_recipe: Callable[..., Path], tmp_path: Path
) -> None:
    options = {"heldout_rows": 0}
    whole = run(*parse(["--config", str(policy_recipe(max_steps=4, **options))]))
    expected = read(tmp_path / "run", "history.json")
    path = policy_recipe(max_steps=2, output_dir=str(tmp_path / "again"), **options)
    run(*parse(["--config", str(path)]))
    resumed = run(*parse(["--config", str(path), "--max_steps", "4"]))
    assert read(tmp_path / "again", "history.json") == expected
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_policy_recipe_an_adapter_is_trained_and_saved(policy_recipe: Callable[..., Path], tmp_path: Path) -> None:
    path = policy_recipe(
        use_peft=True, lora_r=4, lora_target_modules=["q_proj", "v_proj"], merge_adapters=True, beta=0.1, heldout_rows=0
    )
    module = run(*parse(["--config", str(path)]))
    trained = [name for name, weights in module.named_parameters() if weights.requires_grad]
    assert trained
    assert all("lora" in name for name in trained)
    assert (tmp_path / "run" / "adapter_model.safetensors").exists()
    assert {"kl", "sampling/sampling_logp_difference/mean"} <= read(tmp_path / "run", "history.json")[-1].keys()


def test_last_checkpoint_the_last_checkpoint_is_that_with_the_most_steps(tmp_path: Path) -> None:
    training = PolicyTraining(output_dir=str(tmp_path))
    assert last_checkpoint(training) is None
    (tmp_path / "checkpoints").mkdir()
    for name in ("step=9.ckpt", "step=100.ckpt", "step=20-v1.ckpt", "other.ckpt"):
        torch.save({}, tmp_path / "checkpoints" / name)
    assert last_checkpoint(training) == tmp_path / "checkpoints" / "step=100.ckpt"
    training.resume = False
    assert last_checkpoint(training) is None


def test_last_checkpoint_what_was_not_written_to_its_end_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for step in (2, 4):
        torch.save({"weights": torch.ones(1000)}, folder / f"step={step}.ckpt")
    os.truncate(folder / "step=4.ckpt", 2000)
    # DeepSpeed's checkpoint is a folder, in which it writes the file latest last.
    (folder / "step=6.ckpt" / "checkpoint").mkdir(parents=True)
    training = PolicyTraining(output_dir=str(tmp_path))
    assert last_checkpoint(training) == folder / "step=2.ckpt"
    assert [record.getMessage().partition(" is incomplete")[0] for record in caplog.records] == [
        str(folder / f"step={step}.ckpt") for step in (6, 4)
    ]
    (folder / "step=6.ckpt" / "latest").write_text("checkpoint")
    assert last_checkpoint(training) == folder / "step=6.ckpt"


def test_policy_recipe_a_full_disk_leaves_the_last_checkpoint(
    policy_recipe: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = policy_recipe(max_steps=4, heldout_rows=0)
    with monkeypatch.context() as patch:
        patch.setattr(training_checkpoints, "whole_file", full_at("step=4.ckpt"))
        with pytest.raises(OSError, match="No space left"):
            run(*parse(["--config", str(path)]))
    assert [file.name for file in (tmp_path / "run" / "checkpoints").iterdir()] == ["step=2.ckpt"]
    caplog.set_level("INFO")
    run(*parse(["--config", str(path)]))
    assert "resuming from" in caplog.text
    assert read(tmp_path / "run", "history.json")[-1]["step"] == 4


def full_at(name: str) -> Any:
    """Return whole_file on a disk that is full when a file of this name is written."""

    @contextmanager
    def write(path: Path) -> Iterator[Any]:
        with whole_file(path) as file:
            yield file
            if path.name == name:
                raise OSError(errno.ENOSPC, "No space left on device")

    return write


@pytest.mark.parametrize("change", ["model", "optimizer", "module"])
def test_policy_recipe_a_foreign_checkpoint_is_refused(
    policy_recipe: Callable[..., Path], tmp_path: Path, change: str
) -> None:
    path = policy_recipe(max_steps=2, heldout_rows=0)
    run(*parse(["--config", str(path)]))
    file = tmp_path / "run" / "checkpoints" / "step=2.ckpt"
    checkpoint = torch.load(file, weights_only=False)
    if change == "model":
        name = next(iter(checkpoint["state_dict"]))
        checkpoint["state_dict"][name] = torch.ones(3)
    elif change == "optimizer":
        checkpoint["optimizer_states"][0]["state"][0]["exp_avg"] = torch.ones(1)
    else:
        del checkpoint["policy"]
    torch.save(checkpoint, file)
    message = {"model": "size mismatch", "optimizer": "exp_avg of weight 0", "module": "PolicyModule"}
    with pytest.raises(RuntimeError if change == "model" else CheckpointError, match=message[change]):
        run(*parse(["--config", str(path), "--max_steps", "4"]))
    assert file.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_iterations": 2}, "unknown key 'num_iterations'"),
        ({"scale": "banana"}, "scale: must be one of group, batch, none, gdpo"),
        ({"algorithm": "rloo", "scale": "gdpo"}, "scale"),
        ({"max_draws": 0}, "max_draws"),
        ({"clip_high": -0.5}, "clip_high"),
        ({"decoding": "compiled"}, "decoding: must be auto, eager or graph, got 'compiled'"),
        ({"temperature": 0.0}, "temperature"),
    ],
)
def test_policy_recipe_keys_that_cannot_be_are_refused(
    policy_recipe: Callable[..., Path], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        parse(["--config", str(policy_recipe(**changes))])


def test_policy_recipe_a_wrong_option_of_a_heldout_metric_is_refused_before_the_run(
    policy_recipe: Callable[..., Path],
) -> None:
    with pytest.raises(ValueError, match="average"):
        validate(policy_recipe(heldout_metrics=[{"name": "crg", "as": "other", "average": "none"}]))
