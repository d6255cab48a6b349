"""The README's code, commands and links, the scope of each metric's page, and the length of the documentation."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from tiny_policy import save_tiny_policy
from torch.utils.data import DataLoader

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = ["crg", "crimson", "crepe", "er2score", "ct_finebench"]
DOC_WORDS = runpy.run_path(str(ROOT / ".ci" / "doc_words.py"))


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


def test_doc_words_finds_long_texts():
    long = " ".join(["word"] * 36)
    page = f"# Title\n\nA `code span of four words`. {long}.\n\n| {long} |\n\nThose of others.\n\n```\n{long}\n```\n"
    found = list(DOC_WORDS["faults"]("page.md", page))
    assert [fault.split(" ")[1] for fault in found] == ["cell", "sentence", "'those"]


def test_links_of_the_readme_lead_somewhere():
    for path, anchor in re.findall(r"\]\(([\w./-]+)(?:#([\w-]+))?\)", README):
        assert (ROOT / path).is_file(), path
        headings = re.findall(r"^#+ (.*)", (ROOT / path).read_text(encoding="utf-8"), re.M) if anchor else []
        assert not anchor or anchor in [re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings]


class Reports(LightningModule):
    """A module whose reports are given."""

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, list[str]]:
        return {"prediction": ["Cardiomegaly."], "reference": ["Cardiomegaly. Hiatal hernia."]}


@pytest.mark.slow
def test_the_screen_of_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    small = "max_steps=1, use_cpu=True, bf16=False, max_completion_length=4, report_to='none'"
    code = code.replace("path/to/model", str(save_tiny_policy(tmp_path / "model"))).replace("max_steps=100", small)
    names = {"module": Reports(), "loader": DataLoader(torch.zeros(1))}
    exec(code, names)
    assert "left for right" in capsys.readouterr().out
    assert names["callback"].metrics  # type: ignore[attr-defined]


@pytest.mark.slow
def test_commands_of_the_block_run_in_order(tmp_path: Path) -> None:
    (block,) = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in block.splitlines():
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    written = {"samples", "scores.csv", "scores.html", "compare.html", "attack.html"}
    assert {path.name for path in tmp_path.iterdir()} == written
