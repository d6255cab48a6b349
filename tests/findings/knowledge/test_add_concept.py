"""The recipe of ``docs/labelers.md`` adds a concept by one entry of one file."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import rrg_rewards

PACKAGE = Path(rrg_rewards.__file__).parent
PAGE = PACKAGE.parent / "docs" / "labelers.md"
SCRIPT = """
from rrg_rewards.findings import compare_findings, extract_findings
from rrg_rewards.findings.comparing.significance import clinical_significance
from rrg_rewards.findings.knowledge.patient import Patient

for text in ("A hot quadrate lobe is seen.", "Focal hepatic hot-spot.", "No hot quadrate sign."):
    (found,) = extract_findings(text)
    print(found.concept, found.organ, found.presence, clinical_significance(found.concept, found.attributes, Patient()))
print(len(compare_findings("Hot quadrate sign.", "Focal hepatic hot spot.").matches))
"""


def test_the_entry_of_the_recipe_adds_a_concept(tmp_path: Path) -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Add a concept")[1]
    (entry,) = re.findall(r"```yaml\n(.*?)```", section.split("\n## ")[0], re.DOTALL)
    shutil.copytree(PACKAGE, tmp_path / "rrg_rewards", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "rrg_rewards" / "findings" / "knowledge" / "concepts.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("\nconcepts:\n", f"\nconcepts:\n{entry}", 1), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    level = "not_actionable_not_urgent"
    assert done.stdout.splitlines() == [
        f"hot_quadrate liver present {level}",
        f"hot_quadrate liver present {level}",
        f"hot_quadrate liver absent {level}",
        "1",
    ]
