"""The documentation site: code blocks, formulas, pages of the API, types in signatures, links and versions."""

import importlib
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "docs" / "_site"
BLOCKS = runpy.run_path(str(SITE / "code_blocks.py"))

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

async def ask(one, /, two: float = 1.0, *, three: int) -> None:
    """Ask.

    Args:
        two: A number_with_underscores.
            Its second line.

    Raises:
        ValueError: If it is :math:`x < 0`.

    Examples:
        >>> 1 + 1
        2
    """

def unreadable(one):
    """Read.

    Args:
        one without a colon
    """

class Table(_Base):
    """A table."""

    def __init__(self, rows: list["Settings"]) -> None:
        """Keep the rows of :class:`Settings`."""

    @property
    def size(self) -> int:
        """Number of rows."""

    def undescribed(self): ...

    @classmethod
    def read(cls, path: str) -> "Table":
        """Read a table."""

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
    extension = runpy.run_path(str(SITE / "public_types.py"))["PublicTypes"]
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


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("griffe", reason="the extra docs is not installed")
    monkeypatch.syspath_prepend(str(SITE))
    return importlib.import_module("api_pages")


def test_page_of_a_function_has_signature_and_sections(sample: Any, api: Any) -> None:
    renderer = api.Renderer(sample.modules_collection, {})
    signature, *_ = [api.signature(sample[name]) for name in ("ask", "score")]
    assert signature == "async def ask(one, /, two: float = 1.0, *, three: int) -> None"
    assert list(renderer.described(sample["ask"], "sampled_api.ask", 2)) == [
        "## `ask` {#sampled_api.ask}",
        f"```python\n{signature}\n```",
        "Ask.",
        "**Parameters:**",
        "- **`two`** (<code>float</code>, default: <code>1.0</code>): A number_with_underscores.\n    Its second line.",
        "**Raises:**",
        "- <code>ValueError</code>: If it is :math:`x < 0`.",
        "**Examples:**",
        "```pycon\n>>> 1 + 1\n2\n```",
    ]


def test_page_of_a_class_has_constructor_and_documented_members(sample: Any, api: Any) -> None:
    renderer = api.Renderer(sample.modules_collection, {})
    renderer.links = {"sampled_api.Settings": "data.md#Settings"}
    shown = list(renderer.described(sample["Table"], "sampled_api.Table", 2))
    assert shown[1] == "```python\nclass Table(rows: list[Settings])\n```"
    assert shown[2:5] == ["Bases: <code>dict</code>", "A table.", "Keep the rows of :class:`Settings`."]
    assert shown[5:] == [
        "### `size` {#sampled_api.Table.size}",
        "```python\nproperty size: int\n```",
        "Number of rows.",
        "### `read` {#sampled_api.Table.read}",
        "```python\n@classmethod\ndef read(path: str) -> Table\n```",
        "Read a table.",
    ]
    annotation = sample["Table"].members["__init__"].parameters["rows"].annotation
    assert renderer.type_html(annotation) == "<code>list&#91;[Settings](data.md#Settings)&#93;</code>"


def test_docstring_that_cannot_be_read_is_an_error(sample: Any, api: Any) -> None:
    renderer = api.Renderer(sample.modules_collection, {})
    with pytest.raises(ValueError, match=r"sampled_api\.py:\d+"), api.checked_docstrings():
        list(renderer.docstring(sample["unreadable"]))


def test_docstring_links_public_names_and_keeps_formulas(api: Any) -> None:
    docstrings = importlib.import_module("docstrings")
    links = {"rrg_rewards.data.Row": "data.md#Row", "Row": "data.md#Row"}
    text = (
        "Of :class:`~rrg_rewards.data.Row`, :meth:`Row.read`, :class:`Other`.\n\n.. math::\n    x^2\n\nEnd :math:`y`."
    )
    assert docstrings.docstring_markdown(text, links).split("\n\n") == [
        "Of [`Row`](data.md#Row), [`Row.read`](data.md#Row), `Other`.",
        "\n$$x^2$$",
        "End $y$.",
    ]


def test_formulas_become_mathml_outside_code() -> None:
    pytest.importorskip("latex2mathml", reason="the extra docs is not installed")
    with_mathml = runpy.run_path(str(SITE / "formulas.py"))["with_mathml"]
    code = "`$x$`, $5 or \\$\n\n```\n$ echo $HOME$\n```\n"
    assert with_mathml(code) == code
    shown = with_mathml("With $a_1 * |b|$ and\n\n$$\nx\n$$\n")
    assert shown.count("<math") == 2
    assert 'display="block"' in shown
    assert not set("*|_$") & set(shown)
    aligned = with_mathml(r"$$a &= \arg b \\ c &= d$$")
    assert aligned.count("<mtr>") == 2
    assert "<mo>arg</mo>" in aligned
    with pytest.raises(ValueError, match=r"nosuch cannot be shown in the formula x"):
        with_mathml(r"$x + \nosuch$")


def _write_site(folder: Path) -> None:
    nav = '<nav><a href="index.html">Home</a><a href="crg.html#definition">CRG</a></nav>'
    (folder / "assets").mkdir(parents=True)
    (folder / "assets" / "main.css").write_text("")
    head = '<link rel="stylesheet" href="assets/main.css"><link rel="canonical" href="https://example.org/">'
    (folder / "index.html").write_text(f'{head}{nav}<h1 id="home">Home</h1><a href="https://example.org">Source</a>')
    (folder / "crg.html").write_text(
        f'{head}{nav}<h2 id="definition">Definition</h2><a href="index.html#home">Home</a>'
    )


def test_check_of_the_built_site_names_each_problem(tmp_path: Path) -> None:
    problems = runpy.run_path(str(SITE / "check_site.py"))["problems"]
    assert len(list(problems(tmp_path / "none"))) == 1
    _write_site(tmp_path)
    assert list(problems(tmp_path)) == []
    (tmp_path / "trl.html").write_text(
        '<a href="crg.html#none">1</a><a href="no.html">2</a><img src="no.png"><script src="https://cdn.org/a.js"></script>'
    )
    assert list(problems(tmp_path)) == [
        "trl.html: crg.html#none has no such anchor",
        "trl.html: https://cdn.org/a.js is loaded from the network",
        "trl.html: no.html does not exist",
        "trl.html: no.png does not exist",
        "trl.html: the navigation in mkdocs.yml does not contain this page",
    ]


def test_versions_are_listed_newest_first(tmp_path: Path) -> None:
    add_version = runpy.run_path(str(SITE / "add_version.py"))["add_version"]
    site, folder = tmp_path / "site", tmp_path / "versions"
    with pytest.raises(FileNotFoundError, match="build it first"):
        add_version(site, folder, "0.9")
    _write_site(site)
    for version in ("0.10", "0.9", "0.10"):
        add_version(site, folder, version)
    entries = json.loads((folder / "versions.json").read_text())
    assert [(entry["version"], entry["aliases"]) for entry in entries] == [("0.10", ["latest"]), ("0.9", [])]
    assert "url=0.10/" in (folder / "index.html").read_text()
    assert (folder / "0.9" / "crg.html").is_file()
    with pytest.raises(ValueError, match=r"1\.2\.3"):
        add_version(site, folder, "../x")
