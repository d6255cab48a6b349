"""Write the pages of the site into ``build/docs``, from which a generator builds it.

Run ``python docs/_site/make_pages.py``. Everything that Markdown alone cannot do happens here: the API reference, the
recipes, the notebooks, formulas, and links to files outside the documentation.
"""

import re
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path

from api_pages import api_pages
from code_blocks import with_languages
from docstrings import identifier
from formulas import with_mathml
from notebook_pages import notebook_page
from recipe_page import recipes_page

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
PAGES = ROOT / "build" / "docs"
SOURCES = ROOT / "build" / "docs_sources"
INCLUDED = ("CHANGELOG.md", "CONTRIBUTING.md")


def write_pages(folder: Path) -> None:
    """Write all pages and the files that they show."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in pages():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    shutil.copytree(DOCS / "images", folder / "images")
    for path in sorted((ROOT / "benchmarks" / "results").glob("*/*.png")):
        plot = folder / "images" / "results" / path.parent.name / path.name
        plot.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, plot)
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        shutil.copy(path, folder / "notebooks" / path.name)
    shutil.copy(DOCS / "_site" / "extra.css", folder / "extra.css")


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the Markdown of each page."""
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        yield path.name, with_mathml(adapted(text))
    api = runpy.run_path(str(DOCS / "make_api.py"))
    yield "api.md", with_mathml(link_names(api["api_reference"]()))
    for name in INCLUDED:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        yield name.lower(), with_mathml(adapted(text))
    yield "recipes.md", adapted(recipes_page())
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        yield f"notebooks/{path.stem}.md", with_mathml(adapted(notebook_page(path)))
    copy_package()
    for package, text in api_pages(SOURCES).items():
        yield f"api/{package}.md", with_mathml(text)


def copy_package() -> None:
    """Copy the package and the two top-level folders that are installed in it, for griffe to find them as one."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    code_only = shutil.ignore_patterns("__pycache__", "*.yaml", "*.md", "*.jinja")
    shutil.copytree(ROOT / "rrg_rewards", SOURCES / "rrg_rewards", ignore=code_only)
    for folder in ("callbacks", "recipes"):
        shutil.copytree(ROOT / folder, SOURCES / "rrg_rewards" / folder, ignore=code_only)


def adapted(markdown: str) -> str:
    """Adapt links that leave the folder of the documentation, nested lists and the languages of code blocks."""
    markdown = re.sub(r"\]\(\.\./README\.md(#[^)]*)?\)", "](index.md)", markdown)
    for name in INCLUDED:
        markdown = markdown.replace(f"](../{name}", f"]({name.lower()}")
    markdown = re.sub(r"(!\[[^\]]*\]\()\.\./benchmarks/results/", r"\1images/results/", markdown)
    # The site does not contain the code, so a link to a file becomes the file's path.
    markdown = re.sub(r"\[`?([^\]`]*)`?\]\(\.\./([^)]*)\)", r"\1 (`\2`)", markdown)
    # Python-Markdown nests lists by four spaces, GitHub by two.
    return with_languages(re.sub(r"^  (- .*(?:\n {4}\S.*)*)", r"    \1", markdown, flags=re.M))


def link_names(markdown: str) -> str:
    """Link each name in the tables of the API reference to its description on the page of its package."""
    package = ""
    lines = markdown.split("\n")
    for number, line in enumerate(lines):
        if heading := re.fullmatch(r"## rrg_rewards\.(\w+)", line):
            package = heading[1]
            lines[number] = f"## [rrg_rewards.{package}](api/{package}.md)"
        elif package:
            lines[number] = re.sub(
                r"^\| `(\w+)` \|",
                lambda found, page=package: f"| [`{found[1]}`](api/{page}.md#{identifier(page, found[1])}) |",
                line,
            )
    return "\n".join(lines)


if __name__ == "__main__":
    write_pages(PAGES)
