"""The command line of a recipe: files and names, options, and errors in one line."""

import json
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from rrg_rewards.recipes import _script, recipe_path
from rrg_rewards.recipes.grpo import main, parse, run

ZERO3 = {"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}}


@pytest.mark.parametrize(
    ("changes", "argv", "started"),
    [
        ({"deepspeed": ZERO3}, [], True),
        ({"deepspeed": ZERO3, "accelerator_config": {"even_batches": False}}, [], True),
        ({"use_cpu": False}, ["--use_cpu", "true", "--deepspeed", json.dumps(ZERO3)], True),
        ({"use_cpu": None}, ["--use-cpu", f"--deepspeed={json.dumps(ZERO3)}"], True),
        ({"deepspeed": ZERO3}, ["--accelerator_config", '{"even_batches": false}'], True),
        ({}, [], False),
        ({"use_cpu": None}, [], False),
    ],
)
def test_parse_deepspeed_on_cpu_starts_processes(
    recipe: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, object],
    argv: list[str],
    started: bool,
) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(_script, "_start_deepspeed_on_cpu", lambda: None)
    monkeypatch.setattr(_script.RecipeScript, "_parse", lambda self, argv: calls.append(argv))
    parse(["--config", str(recipe(**changes)), *argv])
    (parsed,) = calls
    added = parsed[2 + len(argv) :]
    assert bool(added) == started
    if started:
        even = {"even_batches": False} if "even_batches" in str((changes, argv)) else {}
        assert added[0] == "--accelerator_config"
        assert json.loads(added[1]) == {**even, "use_configured_state": True}


@pytest.mark.parametrize("script", ["grpo", "policy", "sft", "crimson.distill"])
def test_help_of_a_script_shows_its_keys_and_those_of_trl(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        import_module(f"rrg_rewards.recipes.{script}").main(["--help"])
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--dataset DATASET" in shown
    assert "--learning_rate" in shown


def test_launch_a_mistake_of_the_launch_is_one_line(
    recipe: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = str(recipe())
    (tmp_path / "policy").mkdir()
    for arguments, code, message in (
        (["--config", config, "--learning_rat", "1"], 2, "unknown key 'learning_rat'; did you mean 'learning_rate'?"),
        (["--config", config, "--max_steps", "few"], 2, ": error: argument --max_steps"),
        (["--config", "no/such.yaml"], 2, "--config no/such.yaml: no such file"),
        (
            ["--config", config, "--model_name_or_path", str(tmp_path / "polcy")],
            1,
            f"did you mean {tmp_path / 'policy'}?",
        ),
        (["--config", config, "--dataset", str(tmp_path / "no.csv")], 1, "no such file; see the header of this recipe"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == code
        error = capfd.readouterr().err
        assert message in error
        assert error.count("error:") == 1
        assert "Traceback" not in error
        assert "usage:" not in error


@pytest.mark.parametrize("script", ["grpo", "policy", "sft"])
def test_launch_a_model_without_chat_template_names_the_key(
    script: str, recipe: Callable[..., Path], tiny_policy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    policy = shutil.copytree(tiny_policy, tmp_path / "policy")
    (policy / "chat_template.jinja").unlink()
    left_out = {
        "grpo": "",
        "sft": "rewards num_generations max_completion_length",
        "policy": "bf16 gradient_checkpointing per_device_train_batch_size num_generations max_completion_length "
        "logging_steps report_to disable_tqdm",
    }
    config = recipe(model_name_or_path=str(policy), **dict.fromkeys(left_out[script].split()))
    with pytest.raises(SystemExit) as ended:
        import_module(f"rrg_rewards.recipes.{script}").main(["--config", str(config)])
    assert ended.value.code == 1
    error = capfd.readouterr().err
    assert f"model_name_or_path: the tokenizer of {policy} has no chat template; take a model that has one" in error
    assert "Traceback" not in error


def test_parse_a_recipe_is_launched_by_name_or_file(tmp_path: Path) -> None:
    by_name, _, _ = parse(["--config", "phantom/impression_grpo_crg", "--dataset", "other.jsonl"])
    by_file, _, _ = parse(["--config", str(recipe_path("phantom/impression_grpo_crg"))])
    assert (by_name.dataset, by_name.rewards) == ("other.jsonl", by_file.rewards)
    with pytest.raises(ValueError, match=r"--config phantom/impresion_grpo_crg.*did you mean"):
        parse(["--config", "phantom/impresion_grpo_crg"])


def test_parse_a_config_after_an_equals_sign(recipe: Callable[..., Path]) -> None:
    assert parse([f"--config={recipe(max_steps=7)}"])[1].max_steps == 7


@pytest.mark.parametrize("option", ["--learning_rat", "--algo", "--deepspee"])
def test_parse_options_are_not_abbreviated(recipe: Callable[..., Path], option: str) -> None:
    """The options that are read before the command line is parsed would miss abbreviations."""
    with pytest.raises((ValueError, SystemExit)):
        parse(["--config", str(recipe()), option, "1"])


def test_parse_a_model_that_is_not_there_is_not_asked_of_the_hub(recipe: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"sftt: no such folder"):
        run(*parse(["--config", str(recipe(model_name_or_path=str(tmp_path / "sftt")))]))
    (tmp_path / "lora").mkdir()
    (tmp_path / "lora" / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="LoRA adapter"):
        run(*parse(["--config", str(recipe(model_name_or_path=str(tmp_path / "lora")))]))
    with pytest.raises(ValueError, match=r"deepspeed: nowhere\.json: no such file"):
        parse(["--config", str(recipe()), "--deepspeed", "nowhere.json", "--use_cpu", "false"])


@pytest.mark.parametrize("mode", ["server", "colocate"])
def test_parse_files_of_volumes_are_not_sent_to_a_server(mode: str) -> None:
    arguments = ["--config", "ct_chat/report_grpo_crg_vllm", "--use_cpu", "true", "--vllm_mode", mode]
    if mode == "server":
        with pytest.raises(ValueError, match="vllm_mode"):
            parse(arguments)
    else:
        assert parse(arguments)[1].vllm_mode == "colocate"
