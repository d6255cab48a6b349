"""The README's statements about each metric, and the pages to which it links."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = ["crg", "crimson", "crepe", "er2score", "ct_finebench", "text_metrics"]


@pytest.mark.parametrize("page", PAGES)
def test_page_of_a_metric_begins_with_its_scope(page):
    """Language, modality, licence, and what was run on a GPU."""
    top = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").split("\n## ")[0]
    scope = " ".join(line.removeprefix("> ") for line in top.splitlines() if line.startswith("> "))
    assert scope.startswith("**Scope.**")
    assert re.search(r"[Ll]anguage|English", scope)
    assert re.search("on a GPU only the|was not run here|was run on a GPU here", scope)
    assert re.search(r"[Ll]icence|No weights|no GPU", scope)
    assert f"docs/{page}.md" in README


def test_table_of_needs_has_a_cell_for_each_column():
    section = README.split("### What each metric needs")[1].split("\n\n")[1]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()]
    assert all(len(row) == len(head) and all(row) for row in rows)
    named = {row[0].split(",")[0] for row in rows}
    assert {"CRG", "CRIMSON", "CREPE", "ER²Score", "CT-FineBench", "BERTScore"} <= named


@pytest.mark.slow
def test_commands_of_the_block_run_in_order(tmp_path: Path) -> None:
    (block,) = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    commands = block.splitlines()
    assert len(commands) == 11
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in commands:
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    written = {"samples", "labels.csv", "findings.jsonl", "scores.csv", "reward.json", "items.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} == written
