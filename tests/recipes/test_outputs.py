"""Model cards of policies: valid, with the figures of the run, and never written over a card of the user."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from rrg_rewards.cli.main import main
from rrg_rewards.models.model_card import is_written_here
from rrg_rewards.recipes import grpo, sft
from rrg_rewards.recipes._outputs import write_policy_card


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_policy_card_a_run_writes_a_card_with_its_figures(
    recipe: Callable[..., Path], table: Path, tmp_path: Path
) -> None:
    grpo.main(["--config", str(recipe(save_steps=1))])
    folder = tmp_path / "run"
    card = ModelCard.load(folder / "README.md")
    assert is_written_here((folder / "README.md").read_text())
    assert card.data.library_name == "transformers"
    assert {"radiology", "grpo", "rrg-rewards"} <= set(card.data.tags)
    # The policy is a folder, and the Hub accepts only its own names here.
    assert card.data.base_model is None
    evaluation = read(folder / "evaluation.json")
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("crg", evaluation["after"]["crg"]["crg"]["estimate"])
    for stage in ("before", "after", "change"):
        cell = evaluation[stage]["crg"]["crg"]
        assert f"{cell['estimate']:.3f} ({cell['low']:.3f} to {cell['high']:.3f})" in card.text
    run = read(folder / "run.json")
    assert run["rewards"][0]["signature"].replace("|", r"\|") in card.text
    assert f"| reports.jsonl | {run['rows']['train']} | {run['rows']['heldout']} |" in card.text
    assert str(tmp_path) not in card.text

    # The folder of a data set that is a folder is not named either.
    data_set = tmp_path / "hospital"
    data_set.mkdir()
    (folder / "run.json").write_text(json.dumps({**run, "config": {**run["config"], "dataset": str(data_set)}}))
    assert write_policy_card(folder, "GRPO")
    text = (folder / "README.md").read_text()
    assert "| hospital | " in text
    assert str(tmp_path) not in text

    # A reward that no report has a score of is no result.
    evaluation["after"]["crg"]["crg"] = dict.fromkeys(("estimate", "low", "high"))
    (folder / "evaluation.json").write_text(json.dumps(evaluation))
    assert write_policy_card(folder, "GRPO")
    assert ModelCard.load(folder / "README.md").data.eval_results is None


def test_policy_card_its_command_generates_the_heldout_reports_of_the_run(
    recipe: Callable[..., Path], table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = {"prompt_template": "It's {input}\nnow", "system_prompt": "heart", "input_column": "findings"}
    grpo.main(["--config", str(recipe(**prompts))])
    folder = tmp_path / "run"
    heldout = [json.loads(line) for line in (folder / "heldout_after.jsonl").read_text().splitlines()]
    expected = {row["prompt"][-1]["content"]: row["report"] for row in heldout}
    (command,) = re.findall(r"```\n(rrg-rewards generate .*?)\n```", (folder / "README.md").read_text(), re.DOTALL)

    def reports(words: list[str]) -> dict[str, str]:
        output = tmp_path / "pairs.jsonl"
        paths = {"REPORTS.jsonl": str(table), "FOLDER": str(folder), "PAIRS.csv": str(output)}
        assert main([paths.get(word, word) for word in words[1:]] + ["--overwrite"]) == 0
        rows = [json.loads(line) for line in output.read_text().splitlines()]
        return {f"It's {row['findings']}\nnow": row["prediction"] for row in rows}

    assert expected.items() <= reports(shlex.split(command)).items()
    assert "the prompts are those of the training" not in capsys.readouterr().err
    # Without its options, the prompts are read from the run.
    bare = shlex.split("rrg-rewards generate REPORTS.jsonl --model FOLDER --output PAIRS.csv --max-new-tokens 6")
    assert expected.items() <= reports(bare).items()
    assert "the prompts are those of the training" in capsys.readouterr().err
    assert not expected.items() <= reports([*bare, "--system-prompt", "edema"]).items()


@pytest.mark.parametrize("peft", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_policy_card_a_card_of_the_user_is_kept(recipe: Callable[..., Path], tmp_path: Path, peft: bool) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    mine = b"---\nlicense: mit\n---\n# Mine\r\n"
    (folder / "README.md").write_bytes(mine)
    lora = {"use_peft": True, "lora_r": 2, "lora_target_modules": ["q_proj", "v_proj"]} if peft else {}
    online = ("rewards", "label_columns", "num_generations", "max_completion_length")
    config = recipe(**dict.fromkeys(online), save_steps=1, **lora)
    sft.main(["--config", str(config)])
    assert (folder / "adapter_config.json").exists() == peft
    assert (folder / "README.md").read_bytes() == mine

    (folder / "README.md").unlink()
    sft.main(["--config", str(config)])
    card = (folder / "README.md").read_text()
    assert is_written_here(card)
    assert ModelCard(card).data.library_name == ("peft" if peft else "transformers")
    assert "SFT" in card
    # It is replaced while it is unchanged, and kept after a change.
    assert write_policy_card(folder, "SFT")
    changed = card.replace("Not a medical device", "Not for patients")
    (folder / "README.md").write_text(changed)
    assert not write_policy_card(folder, "SFT")
    assert (folder / "README.md").read_text() == changed


def test_check_push_held_out_reports_are_not_pushed(
    recipe: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=r"heldout_rows"):
        grpo.run(*grpo.parse(["--config", str(recipe(push_to_hub=True))]))
