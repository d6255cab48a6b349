"""The public names with the first line of their docstrings, as a page of the site (``docs/_site/make_pages.py``)."""

import importlib
import inspect
import re
from types import ModuleType

PACKAGES = (
    "metrics",
    "rewards",
    "analysis",
    "callbacks",
    "integrations",
    "labelers",
    "judges",
    "findings",
    "questions",
    "functional",
    "models",
    "training",
    "attack",
    "watch",
    "pages",
    "data",
    "schemas",
    "recipes",
)
# Constants and type aliases have no docstring.
CONSTANTS = {
    "data.ANNOTATED_SETS": "Public data sets of annotated report pairs, by name.",
    "questions.AnswerType": "Type of an answer: the values that `AttributeSpec.answer_type` takes.",
    "schemas.ATTRIBUTE_ERROR_TYPES": "CRIMSON's types of attribute errors.",
    "schemas.ATTRIBUTE_WEIGHTS": "CRIMSON's weight of each severity of an attribute error.",
    "schemas.AttributeErrorType": "Type of an attribute error: one of `ATTRIBUTE_ERROR_TYPES`.",
    "schemas.CHEXBERT": "The labels of CheXbert.",
    "schemas.CT_RATE": "The 18 labels of CT-RATE.",
    "schemas.ERROR_CATEGORIES": "The error categories of ReXVal and CREPE, in the order A to F.",
    "schemas.LABEL_SCHEMAS": "The label schemas by name.",
    "schemas.MERLIN": "The labels of Merlin, a data set of abdominal CT.",
    "schemas.REXVAL_ERRORS": "ReXVal's error categories by letter, in the words of its protocol.",
    "schemas.SIGNIFICANCE_WEIGHTS": "CRIMSON's weight of each level of clinical significance.",
    "schemas.UNKNOWN_WEIGHT": "CRIMSON's weight of a significance or severity that is none of the known ones.",
    "watch.LABEL_METRIC": "Name of a watch's metric that compares labels.",
}
INTRODUCTION = """# API reference

Each public name with the first line of its docstring. The page of its package has the rest.
"""


def summary(package: str, name: str) -> str:
    """Return the first line of a public name's docstring, as Markdown."""
    value = getattr(importlib.import_module(f"rrg_rewards.{package}"), name)
    if (constant := CONSTANTS.get(f"{package}.{name}")) is not None:
        return constant
    # A subclass must not inherit the description of its base class.
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    return markdown(inspect.cleandoc(text or "").split("\n\n")[0])


def markdown(text: str) -> str:
    """Turn the roles of a docstring into Markdown: ``:class:`~a.B``` becomes ```B```, formulas become ``$...$``."""
    text = re.sub(r":math:`([^`]*)`", r"$\1$", " ".join(text.split()))
    text = re.sub(r":\w+:`~(?:\w+\.)*(\w+)`", r"`\1`", text)
    text = re.sub(r":\w+:`([^`]*)`", r"`\1`", text)
    return text.replace("``", "`").replace("|", r"\|")


def first_line(module: ModuleType) -> str:
    """Return the first sentence of a package's docstring."""
    return markdown(inspect.cleandoc(module.__doc__ or "").split("\n\n")[0])


def api_reference() -> str:
    """Return the page."""
    top = importlib.import_module("rrg_rewards")
    parts = [INTRODUCTION, "## rrg_rewards\n\nThese names can be imported from `rrg_rewards` itself, for example"]
    parts[-1] += " `from rrg_rewards import ReportCRG`.\n"
    names = [f"`{name}`" for name in top.__all__ if name != "__version__"]
    parts.append(", ".join(names) + ".\n")
    for package in PACKAGES:
        module = importlib.import_module(f"rrg_rewards.{package}")
        rows = [f"| `{name}` | {summary(package, name)} |" for name in sorted(module.__all__, key=str.lower)]
        parts.append(f"## rrg_rewards.{package}\n\n{first_line(module)}\n")
        parts.append("\n".join(["| Name | Description |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)
