"""The documentation site: languages of code blocks, and types in signatures."""

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = runpy.run_path(str(ROOT / "docs" / "_site" / "code_blocks.py"))

SAMPLE = '''
from dataclasses import dataclass, field
from typing import TypedDict
from typing_extensions import Unpack

_Texts = list[str] | None
_FIRST = "first"

class _Options(TypedDict, total=False):
    scale: float

class _Base(dict):
    pass

def _setting(default):
    return field(default=default)

def score(texts: _Texts, name: str = _FIRST, **options: Unpack[_Options]) -> dict[str, _Texts]:
    """Score."""

class Table(_Base):
    """A table."""

@dataclass
class Settings:
    """Settings."""
    rows: int = _setting(3)
    columns: _Texts = field(default_factory=list)
'''


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("rrg-rewards score pairs.csv --metrics crg\n", "bash"),
        ("# on two GPUs\nCUDA_VISIBLE_DEVICES=0,1 accelerate launch run.py\n", "bash"),
        ("$ rrg-rewards score pairs.csv\ncrg  0.5\n", "console"),
        ("from rrg_rewards import ReportCRG\n", "python"),
        ('CRIMSON(judge="rules")   # as published\n', "python"),
        (">>> 1 + 1\n2\n", "pycon"),
        ('{\n  "bf16": {"enabled": "auto"}\n}\n', "json"),
        ("rewards:\n  - {name: crg, prior: dataset}\n", "yaml"),
        ("study,prediction,reference\na,Small effusion.,Normal.\n", "text"),
        ("score = b + sum of r_j\n", "text"),
    ],
)
def test_code_blocks_without_a_language_get_one(code: str, language: str) -> None:
    assert BLOCKS["block_language"](code) == language
    page = f"Text.\n\n```\n{code}```\n\n- item\n\n  ```toml\n  a = 1\n  ```\n"
    assert BLOCKS["with_languages"](page) == page.replace("```\n", f"```{language}\n", 1)


def test_code_blocks_of_all_pages_have_a_language() -> None:
    for path in (ROOT / "docs").glob("*.md"):
        opened = False
        for line in BLOCKS["with_languages"](path.read_text(encoding="utf-8")).splitlines():
            if line.lstrip().startswith("```"):
                opened = not opened
                assert not opened or line.strip() != "```", path.name


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    griffe = pytest.importorskip("griffe", reason="the extra docs is not installed")
    (tmp_path / "sampled_api.py").write_text(SAMPLE)
    monkeypatch.syspath_prepend(str(tmp_path))
    extension = runpy.run_path(str(ROOT / "docs" / "_site" / "public_types.py"))["PublicTypes"]
    extensions = griffe.load_extensions(extension())
    return griffe.load("sampled_api", search_paths=[str(tmp_path)], extensions=extensions)


def test_signatures_show_public_types_and_values_of_defaults(sample: Any) -> None:
    score = sample["score"]
    shown = [(one.name, str(one.annotation), one.default) for one in score.parameters]
    assert shown == [("texts", "list[str] | None", None), ("name", "str", "'first'"), ("scale", "float", "...")]
    assert str(score.returns) == "dict[str, list[str] | None]"
    assert [str(base) for base in sample["Table"].bases] == ["dict"]
    fields = [(one.name, str(one.annotation), str(one.value)) for one in sample["Settings"].attributes.values()]
    assert fields == [("rows", "int", "3"), ("columns", "list[str] | None", "[]")]
    assert [str(one.default) for one in list(sample["Settings"].parameters)[1:]] == ["3", "[]"]
