"""The commands of the first training run, and the messages that the page on TRL explains."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = ROOT / "docs" / "first_training.md"


def run(command: str, folder: Path) -> str:
    # A virtual environment that shares packages with another one has no script of torch.
    command = command.replace("torchrun", f"{sys.executable} -m torch.distributed.run")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


# What the page writes, and what the test runs in its place: fewer steps, rows and completions. The demo shows that runs
# of full size improve such a policy.
SMALLER = {
    "warm_start --output phantom": "warm_start --output phantom --steps 60 --train-rows 200 --heldout-rows 20",
    "max_steps: 40": "max_steps: 3",
    "per_device_train_batch_size: 64": "per_device_train_batch_size: 16",
}


@pytest.mark.slow
def test_the_commands_of_the_tutorial(tmp_path: Path) -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    for written, smaller in SMALLER.items():
        assert text.count(written) == 1, written
        text = text.replace(written, smaller)
    files = dict(re.findall(r'```\w+ title="(\S+)"\n(.*?)```', text, re.DOTALL))
    assert files.keys() == {"make_reports.py", "my_run.yaml", "zero2.json"}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    commands = [line for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    outputs = {command: run(command, tmp_path) for command in commands}

    attacks = [output for command, output in outputs.items() if " attack " in command]
    assert "exploits, which gain more than 0.1: labels, findings" in attacks[0]
    assert "no family gains more than 0.1" in attacks[1]
    assert (tmp_path / "before.html").read_text().startswith("<!")
    assert "ok (rrg_rewards.recipes.grpo)" in outputs["rrg-rewards recipes validate my_run.yaml"]

    history = json.loads((tmp_path / "mine" / "history.json").read_text())
    assert [entry["step"] for entry in history if "rewards/total/mean" in entry] == [1, 2, 3]
    change = json.loads((tmp_path / "mine" / "evaluation.json").read_text())["change"]["crg"]["crg"]
    (group,) = json.loads((tmp_path / "comparison.json").read_text())["groups"]
    assert [one["metric"] for one in group["metrics"]] == ["crg", "crimson", "rouge"]
    # The run and the command compare the same reports.
    (difference,) = group["metrics"][0]["differences"]
    assert difference["value"] != 0
    assert [difference[name] for name in ("value", "low", "high")] == pytest.approx(list(change.values()))


def test_troubleshooting_quotes_messages_of_the_package() -> None:
    messages = []
    for folder in ("rrg_rewards", "callbacks", "recipes"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                values = [part.value if isinstance(part, ast.Constant) else "..." for part in parts]
                messages.append("".join(value for value in values if isinstance(value, str)))
    table = (ROOT / "docs" / "trl.md").read_text(encoding="utf-8").partition("## Troubleshooting")[2]
    quoted = re.findall(r"^\| `([^`]+)` \|", table.partition("Without a message")[0], re.M)
    assert len(quoted) > 10
    assert [one for one in quoted if not any(one in message for message in messages)] == []
