"""Report pairs with the answers of an honest judge, parts of answers, and a CRIMSON task for weak models."""

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from rrg_rewards.functional import CrimsonEvaluation
from rrg_rewards.judges.base import Message, ReportPair
from rrg_rewards.judges.tasks.crimson import CrimsonTask

Answer = dict[str, Any]

# An error in the location of a matched finding.
LOCATION = {
    "ref_id": "R2",
    "pred_id": "P1",
    "severity": "significant",
    "error_types": ["location"],
    "explanation": "other side",
}


def finding(id_: str, text: str, significance: str = "actionable_not_urgent") -> dict[str, str]:
    return {"id": id_, "finding": text, "clinical_significance": significance}


def make_answer(
    reference: list[dict[str, str]] | None = None,
    predicted: list[dict[str, str]] | None = None,
    matched: str = "",
    false: str = "",
    missing: str = "",
    attributes: list[dict[str, Any]] | None = None,
) -> Answer:
    """An answer; matches as ``"R1-P1 R1-P2"``, ids as ``"P1 P2"``."""
    pairs = [pair.split("-") for pair in matched.split()]
    return {
        "reference_findings": reference or [],
        "predicted_findings": predicted or [],
        "matched_findings": [{"ref_id": ref_id, "pred_id": pred_id} for ref_id, pred_id in pairs],
        "errors": {
            "false_findings": false.split(),
            "missing_findings": missing.split(),
            "attribute_errors": attributes or [],
        },
    }


PNEUMOTHORAX = "large right pneumothorax"
EFFUSION = "small left pleural effusion"
BOTH = [finding("R1", PNEUMOTHORAX, "urgent"), finding("R2", EFFUSION)]

PAIRS = {
    "nothing found": ReportPair(
        "There is a large right pneumothorax. Small left pleural effusion. Heart size is normal.",
        "The lungs are clear. No effusion. Heart size is normal.",
        (("age", "60"), ("indication", "dyspnoea")),
    ),
    "one of two found": ReportPair(
        "There is a large right pneumothorax. Small left pleural effusion.",
        "There is a small left pleural effusion. The heart is enlarged.",
    ),
    "all false": ReportPair(
        "The lungs are clear. No effusion or pneumothorax.",
        "Consolidation in the right lower lobe. Cardiomegaly.",
    ),
}

HONEST = {
    "nothing found": make_answer(BOTH, missing="R1 R2"),
    "one of two found": make_answer(
        BOTH,
        [finding("P1", EFFUSION), finding("P2", "heart is enlarged")],
        matched="R2-P1",
        missing="R1",
        false="P2",
    ),
    "all false": make_answer(
        [], [finding("P1", "consolidation in the right lower lobe"), finding("P2", "cardiomegaly")], false="P1 P2"
    ),
}


def changed(answer: Answer, **changes: Any) -> Answer:
    """A copy with other values, also of the lists below ``errors``."""
    copy = deepcopy(answer)
    for key, value in changes.items():
        (copy if key in copy else copy["errors"])[key] = value
    return copy


def text(answer: Answer) -> str:
    return json.dumps(answer)


def block(content: str, name: str) -> str:
    """Return the text between the tags of a name, which must occur once, and between the codes of a report."""
    assert content.count(f"<{name}>") == content.count(f"</{name}>") == 1
    (found,) = re.findall(f"<{name}>\n(.*)\n</{name}>", content, re.DOTALL)
    return re.sub(r"^\[(\w{8})\] (.*) \[/\1\]$", r"\2", found, flags=re.DOTALL)


def bounded(schema: Any, items: int = 1, length: int = 12) -> Any:
    """Return a schema with bounded lists and strings, because a weak model would not end them."""
    if not isinstance(schema, Mapping):
        return schema
    found = {key: bounded(value, items, length) for key, value in schema.items()}
    if found.get("type") == "array":
        found["maxItems"] = items
    if found.get("type") == "string" and "enum" not in found:
        found["maxLength"] = length
    return found


class SeenTask(CrimsonTask):
    """CRIMSON with a short prompt and a bounded schema, which records the answers that it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __hash__(self) -> int:
        return id(self)

    @property
    def schema(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = bounded(super().schema)
        return found

    def messages(self, item: ReportPair) -> list[Message]:
        return [{"role": "user", "content": f"Compare as JSON: {item.reference} And: {item.candidate}"}]

    def parse(self, item: ReportPair, answer: str) -> CrimsonEvaluation:
        self.seen.append(answer)
        return super().parse(item, answer)
