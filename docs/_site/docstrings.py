"""Extension of griffe: Sphinx roles and directives of docstrings become Markdown, with links to public names."""

import importlib
import inspect
import re
import runpy
from pathlib import Path
from typing import Any

import griffe

PACKAGES: tuple[str, ...] = runpy.run_path(str(Path(__file__).parents[1] / "make_api.py"))["PACKAGES"]


def identifier(package: str, name: str) -> str:
    """Return the path of a public name.

    If a module has the same name, griffe takes the name for the module. The path of its definition is then unambiguous.
    Packages with a stub import lazily, and their stubs name modules.
    """
    module = importlib.import_module(f"rrg_rewards.{package}")
    if not Path(str(module.__file__)).with_suffix(".pyi").exists():
        defined_in = getattr(getattr(module, name), "__module__", "")
        if defined_in.endswith(f".{name}"):
            return f"{defined_in}.{name}"
    return f"{module.__name__}.{name}"


def public_links() -> dict[str, str]:
    """Return the link to each public name, by its full and by its short name, from a page of the API reference."""
    links: dict[str, str] = {}
    for package in PACKAGES:
        for name in importlib.import_module(f"rrg_rewards.{package}").__all__:
            links[f"rrg_rewards.{package}.{name}"] = link = f"{package}.md#{identifier(package, name)}"
            links.setdefault(name, link)
    return links


def role_markdown(target: str, links: dict[str, str]) -> str:
    """Return the Markdown of a role's target: a link to a public name or to the class of a method, else code."""
    shown = target.lstrip("~")
    short = shown.rpartition(".")[2] if target.startswith("~") else shown
    owner, _, member = shown.rpartition(".")
    link = links.get(shown) or links.get(owner)
    if link is None and shown.startswith("rrg_rewards."):
        link = links.get(member)
    return f"[`{short}`]({link})" if link else f"`{short}`"


def docstring_markdown(text: str, links: dict[str, str]) -> str:
    """Turn the reStructuredText of a docstring into Markdown.

    Formulas of ``.. math::`` become paragraphs in ``$$``. ``Example:`` becomes ``Examples:``, the section that griffe
    knows.
    """
    lines: list[str] = []
    source = iter(inspect.cleandoc(text).split("\n"))
    for line in source:
        if (found := re.fullmatch(r"( *)\.\. math::\s*(.*)", line)) is None:
            lines.append(re.sub(r"^Example:$", "Examples:", line))
            continue
        indent, formula = found[1], [found[2]]
        following = ""
        for following in source:
            if following.strip() and not following.startswith(indent + " "):
                break
            formula.append(following.strip())
            following = ""
        lines += ["", f"{indent}$${' '.join(filter(None, formula))}$$", "", following]
    text = "\n".join(lines)
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    return re.sub(r":\w+:`([^`]*)`", lambda found: role_markdown(" ".join(found[1].split()), links), text)


class Docstrings(griffe.Extension):
    """Rewrites every docstring when it is collected."""

    def __init__(self, links: dict[str, str]) -> None:
        """Keep the links to public names."""
        self.links = links

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = docstring_markdown(obj.docstring.value, self.links)
