"""The commands of the tutorial run in order, and show what its text says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"


def run(command: str, folder: Path) -> str:
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_commands_of_the_tutorial(tmp_path: Path) -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    ((name, script),) = re.findall(r'```python title="(\S+)"\n(.*?)```', text, re.DOTALL)
    (tmp_path / name).write_text(script)
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    commands = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    assert len(commands) == 9
    outputs = {command: run(command, tmp_path) for command in commands}

    attacks = [output for command, output in outputs.items() if " attack " in command]
    assert "exploits, which gain more than 0.1: labels" in attacks[0]
    assert "no family gains more than 0.1" in attacks[1]
    assert (tmp_path / "scores.html").read_text().startswith("<!")

    summary = json.loads((tmp_path / "comparison.json").read_text())
    (group,) = summary["groups"]
    differences = {one["metric"]: one["differences"][0] for one in group["metrics"]}
    assert differences["crg"]["high"] < 0
    assert differences["crimson"]["low"] > 0
    assert differences["ct_finebench"]["low"] > 0
