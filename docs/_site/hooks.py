"""Hooks of MkDocs: pages that are made from the package, links to files outside this folder, and formulas."""

import importlib
import re
import runpy
import shutil
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

from code_blocks import with_languages
from docstrings import identifier
from latex2mathml.converter import convert as mathml
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File
from notebooks import notebook_page
from recipe_page import recipes_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
API = runpy.run_path(str(ROOT / "docs" / "make_api.py"))
SOURCES = ROOT / "build" / "docs_sources" / "rrg_rewards"
INCLUDED = ("CHANGELOG.md", "CONTRIBUTING.md")


# Before the plugins, because mkdocstrings looks for its folders once.
@event_priority(100)
def on_config(config: "MkDocsConfig") -> "MkDocsConfig":
    """Copy the package and the two top-level folders that are installed in it, for griffe to find them as one."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    code_only = shutil.ignore_patterns("__pycache__", "*.yaml", "*.md", "*.jinja")
    shutil.copytree(ROOT / "rrg_rewards", SOURCES, ignore=code_only)
    for folder in ("callbacks", "recipes"):
        shutil.copytree(ROOT / folder, SOURCES / folder, ignore=code_only)
    return config


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add a page for each public package, files of the top folder, the recipes, plots of results and the notebooks."""
    for package in API["PACKAGES"]:
        files.append(File.generated(config, f"api/{package}.md", content=package_page(package)))
    for name in INCLUDED:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name.lower(), content=text))
    files.append(File.generated(config, "recipes.md", content=recipes_page()))
    for path in sorted((ROOT / "benchmarks" / "results").glob("*/*.png")):
        name = f"images/results/{path.parent.name}/{path.name}"
        files.append(File.generated(config, name, content=path.read_bytes()))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook_page(path)))
    return files


def package_page(package: str) -> str:
    """Return the page of a package: its first sentence, and each public name."""
    module = importlib.import_module(f"rrg_rewards.{package}")
    parts = [f"# rrg_rewards.{package}", API["first_line"](module)]
    for name in sorted(module.__all__, key=str.lower):
        if (text := API["CONSTANTS"].get(f"{package}.{name}")) is not None:
            parts += [f"## `{name}` {{#{identifier(package, name)}}}", text]
        else:
            parts.append(f"::: {identifier(package, name)}")
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:  # noqa: ARG001
    """Link the names of the API page, and adapt links that leave the folder of the documentation."""
    if page.file.src_uri == "api.md":
        return link_names(markdown)
    markdown = re.sub(r"\]\(\.\./README\.md(#[^)]*)?\)", "](index.md)", markdown)
    for name in INCLUDED:
        markdown = markdown.replace(f"](../{name}", f"]({name.lower()}")
    markdown = re.sub(r"(!\[[^\]]*\]\()\.\./benchmarks/results/", r"\1images/results/", markdown)
    # The site does not contain the code, so a link to a file becomes the file's path.
    markdown = re.sub(r"\[`?([^\]`]*)`?\]\(\.\./([^)]*)\)", r"\1 (`\2`)", markdown)
    # Python-Markdown nests lists by four spaces, GitHub by two.
    return with_languages(re.sub(r"^  (- .*(?:\n {4}\S.*)*)", r"    \1", markdown, flags=re.M))


def link_names(markdown: str) -> str:
    """Link each name in the tables of ``api.md`` to its description on the page of its package."""
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


def on_page_content(html: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:  # noqa: ARG001
    """Convert formulas to MathML, which browsers show without a script."""
    return re.sub(
        r'<(span|div) class="arithmatex">(.*?)</\1>', lambda found: formula_html(found[2], found[1]), html, flags=re.S
    )


def formula_html(formula: str, tag: str) -> str:
    """Return the MathML of a formula as arithmatex encloses it: inline in a span, or displayed in a div."""
    return mathml(unescape(formula).strip()[2:-2], display="block" if tag == "div" else "inline")
