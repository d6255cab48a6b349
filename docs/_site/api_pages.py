"""Pages of the API reference: the public names of each package with signature, docstring and members, as Markdown."""

import importlib
import logging
import re
import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import griffe
from docstrings import Docstrings, identifier, public_links
from public_types import PublicTypes

_API = runpy.run_path(str(Path(__file__).parents[1] / "make_api.py"))
# Classes document arguments that their base classes declare, and functions those in **kwargs.
_PARSER_OPTIONS = {"warn_missing_types": False, "warn_unknown_params": False}
_LINE_LENGTH = 88
_MARKUP = re.compile(r"[\\`*_\[\]|<>&$]")


class _Messages(logging.Handler):
    """Keeps the warnings of griffe."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def checked_docstrings() -> Iterator[None]:
    """Raise an error at the end if griffe could not read a docstring.

    Raises:
        ValueError: With the file, the line and the reason of each.
    """
    messages, logger = _Messages(), logging.getLogger("griffe")
    logger.addHandler(messages)
    try:
        yield
    finally:
        logger.removeHandler(messages)
    if messages.texts:
        raise ValueError("docstrings that cannot be read:\n" + "\n".join(messages.texts))


def api_pages(sources: Path) -> dict[str, str]:
    """Return the page of each public package by its name, read from the package's copy in a folder."""
    links = public_links()
    extensions = griffe.load_extensions(Docstrings(links), PublicTypes())
    with checked_docstrings():
        package = griffe.load(
            "rrg_rewards", search_paths=[str(sources)], try_relative_path=False, extensions=extensions
        )
        renderer = Renderer(package.modules_collection, links)
        return {name: renderer.page(name) for name in _API["PACKAGES"]}


class Renderer:
    """Writes collected objects as Markdown, with links to public names."""

    def __init__(self, collection: griffe.ModulesCollection, links: dict[str, str]) -> None:
        """Keep the links by the path of the definition."""
        self.collection = collection
        names = [name for name in links if name.startswith("rrg_rewards.")]
        described = [name for name in names if name.removeprefix("rrg_rewards.") not in _API["CONSTANTS"]]
        self.links = {self._object(links[name].partition("#")[2]).path: links[name] for name in described}

    def _object(self, path: str) -> Any:
        found = self.collection[path]
        return found.final_target if found.is_alias else found

    def page(self, package: str) -> str:
        """Return the page of a package: its first sentence, and each public name."""
        module = importlib.import_module(f"rrg_rewards.{package}")
        parts = [f"# rrg_rewards.{package}", _API["first_line"](module)]
        for name in sorted(module.__all__, key=str.lower):
            path = identifier(package, name)
            if (text := _API["CONSTANTS"].get(f"{package}.{name}")) is not None:
                parts += [f"## `{name}` {{#{path}}}", text]
            else:
                parts += self.described(self._object(path), path, 2)
        return "\n\n".join(parts) + "\n"

    def described(self, obj: Any, path: str, level: int) -> Iterator[str]:
        """Yield heading, signature, docstring and public members that have a docstring."""
        yield f"{'#' * level} `{path.rpartition('.')[2]}` {{#{path}}}"
        yield f"```python\n{signature(obj)}\n```"
        if obj.is_class and obj.bases:
            yield f"Bases: {', '.join(map(self.type_html, obj.bases))}"
        yield from self.docstring(obj)
        if not obj.is_class:
            return
        constructor = obj.members.get("__init__")
        if constructor is not None and not constructor.is_alias:
            yield from self.docstring(constructor)
        for name, member in obj.members.items():
            if not name.startswith("_") and not member.is_alias and member.has_docstring:
                yield from self.described(member, f"{path}.{name}", level + 1)

    def docstring(self, obj: Any) -> Iterator[str]:
        """Yield the sections of a docstring."""
        if obj.docstring is None:
            return
        for section in obj.docstring.parse("google", **_PARSER_OPTIONS):
            kind = section.kind.value
            if kind == "text":
                yield section.value
            elif kind == "examples":
                yield "**Examples:**"
                for part, text in section.value:
                    yield text if part.value == "text" else f"```pycon\n{text}\n```"
            elif kind in {"parameters", "attributes", "returns", "yields", "raises"}:
                yield f"**{kind.capitalize()}:**"
                yield "\n".join(self.item(kind, entry) for entry in section.value)
            else:
                raise ValueError(f"{obj.path}: a section of kind {kind} is not known")

    def item(self, kind: str, entry: Any) -> str:
        """Return an entry of a section as an item of a list."""
        shown = self.type_html(entry.annotation) if entry.annotation else ""
        if name := getattr(entry, "name", ""):
            details = [shown] if shown else []
            # A default is also shown for parameters that a signature does not spell out.
            if kind == "parameters" and entry.default is not None:
                details.append(f"default: <code>{escaped(str(entry.default))}</code>")
            shown = f"**`{name}`**" + (f" ({', '.join(details)})" if details else "")
        text = entry.description.strip().replace("\n", "\n    ")
        return f"- {shown}: {text}" if shown else f"- {text}"

    def type_html(self, expression: Any) -> str:
        """Return a type as code with links to public classes."""
        if not isinstance(expression, griffe.Expr):
            return f"<code>{escaped(str(expression))}</code>"
        parts = []
        for one in expression.iterate(flat=True):
            link = self.links.get(one.canonical_path) if isinstance(one, griffe.ExprName) else None
            shown = escaped(one.name if isinstance(one, griffe.ExprName) else str(one))
            parts.append(f"[{shown}]({link})" if link else shown)
        return f"<code>{''.join(parts)}</code>"


def escaped(code: str) -> str:
    """Replace characters that Markdown or HTML reads as markup."""
    return _MARKUP.sub(lambda one: f"&#{ord(one[0])};", code)


def signature(obj: Any) -> str:
    """Return the signature of a class or function, or the declaration of an attribute."""
    if obj.is_attribute:
        prefix = "property " if "property" in obj.labels else ""
        annotation = f": {obj.annotation}" if obj.annotation is not None else ""
        value = f" = {obj.value}" if obj.value is not None and not prefix else ""
        return f"{prefix}{obj.name}{annotation}{value}"
    parameters = parameter_list(obj)
    if obj.is_class:
        decorators, head, result = "", f"class {obj.name}", ""
    else:
        decorators = "".join(f"@{one}\n" for one in ("classmethod", "staticmethod") if one in obj.labels)
        head = f"{'async ' if 'async' in obj.labels else ''}def {obj.name}"
        result = "" if obj.returns is None else f" -> {obj.returns}"
    line = f"{head}({', '.join(parameters)}){result}"
    if len(line) > _LINE_LENGTH:
        line = f"{head}(\n" + "".join(f"    {one},\n" for one in parameters) + f"){result}"
    return decorators + line


def parameter_list(obj: Any) -> list[str]:
    """Return the parameters as in a definition, without that of the instance or class."""
    parameters = list(obj.parameters)
    if (obj.is_class or (obj.parent.is_class and "staticmethod" not in obj.labels)) and parameters:
        parameters = parameters[1:]
    shown = []
    kinds = griffe.ParameterKind
    previous = None
    for one in parameters:
        if previous is kinds.positional_only and one.kind is not previous:
            shown.append("/")
        if one.kind is kinds.keyword_only and previous not in {kinds.keyword_only, kinds.var_positional}:
            shown.append("*")
        stars = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(one.kind, "")
        text = f"{stars}{one.name}"
        if one.annotation is not None:
            text += f": {one.annotation}"
        if one.default is not None and not stars:
            text += f" = {one.default}" if one.annotation is not None else f"={one.default}"
        shown.append(text)
        previous = one.kind
    if previous is kinds.positional_only:
        shown.append("/")
    return shown
