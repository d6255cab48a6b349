"""Answers of ``tests/judges/tasks/crimson_answers.yaml``."""

import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

PATH = Path(__file__).parents[1] / "judges" / "tasks" / "crimson_answers.yaml"


def read_cases() -> dict[str, tuple[str, float | None]]:
    """Return the text and the published score of each answer by the name of its case."""
    content = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    return {case["name"]: (make_answer(case, content["base"]), case["score"]) for case in content["cases"]}


def make_answer(case: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    """Return the text of the answer that a case describes as a change of the base."""
    if "text" in case:
        return str(case["text"])
    content = deepcopy(dict(base))
    for path, value in case.get("set", {}).items():
        owner, key = _place(content, path)
        owner[key] = value
    for path in case.get("drop", []):
        owner, key = _place(content, path)
        del owner[key]
    answer = json.dumps(content)
    parts = case.get("replace", [])
    for old, new in zip(parts[::2], parts[1::2], strict=True):
        assert old in answer, f"{case['name']}: the base does not contain {old}"
        answer = answer.replace(old, new * case.get("times", 1))
    return str(case.get("wrap", "{}")).replace("{}", answer)


def _place(content: Any, path: str) -> tuple[Any, Any]:
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
    for part in parents:
        content = _owner(content, part)[part]
    return _owner(content, last), last


def _owner(content: Any, key: Any) -> Any:
    """Return the errors of an answer for a list of errors."""
    return content["errors"] if key in ("false_findings", "missing_findings", "attribute_errors") else content
