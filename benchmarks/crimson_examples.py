"""Compare CRIMSON by rules with the examples of the paper and of the published prompt, and print both verdicts.

Run ``python benchmarks/crimson_examples.py``. The examples are in ``tests/judges/crimson_examples.yaml``.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rrg_rewards.functional import CrimsonEvaluation, crimson_score
from rrg_rewards.judges import ReportPair, RuleJudge

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "tests" / "judges" / "crimson_examples.yaml"

LEVELS = {
    "urgent": "urgent",
    "actionable_not_urgent": "actionable",
    "not_actionable_not_urgent": "not actionable",
    "benign_expected": "benign",
}
EQUAL, SAME_SCORE, DIFFERENT = "yes", "same score", "**no**"
JUDGE = RuleJudge()


class Verdict(NamedTuple):
    """The verdict of the rules on an example.

    Args:
        ours: The verdict in words.
        outcome: Whether it is the published one: ``EQUAL``, ``SAME_SCORE`` or ``DIFFERENT``.
    """

    ours: str
    outcome: str


def read_examples() -> dict[str, list[dict[str, Any]]]:
    """Read the examples by kind: ``levels``, ``errors``, ``scores``. Those in both directions are two examples."""
    found: dict[str, list[dict[str, Any]]] = yaml.safe_load(EXAMPLES.read_text(encoding="utf-8"))
    found["errors"] = [one for example in found["errors"] for one in directions(example)]
    return found


def directions(example: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an example, and the one with exchanged roles of the reports if it has one."""
    if "reverse" not in example:
        return [example]
    reverse = example.pop("reverse")
    roles = {"reference": example["candidate"], "candidate": example["reference"]}
    return [example, {**example, **roles, "error": reverse}]


def evaluate(example: Mapping[str, Any], reference: str, candidate: str) -> CrimsonEvaluation:
    """Evaluate two reports with the patient of an example."""
    context = tuple((key, str(example[key])) for key in ("age", "indication") if key in example)
    return JUDGE.evaluation(ReportPair(reference, candidate, context))


def judge_level(example: Mapping[str, Any]) -> Verdict:
    """Return the level of an example's finding. A finding that is not read weighs nothing, as a benign one."""
    findings = evaluate(example, example["report"], "").reference_findings
    levels = [LEVELS[finding.clinical_significance] for finding in findings]
    allowed = example["level"] if isinstance(example["level"], list) else [example["level"]]
    if len(levels) == 1:
        return Verdict(levels[0], EQUAL if levels[0] in allowed else DIFFERENT)
    if not levels:
        return Verdict("no finding", SAME_SCORE if "benign" in allowed else DIFFERENT)
    return Verdict(", ".join(levels), DIFFERENT)


def judge_errors(example: Mapping[str, Any]) -> Verdict:
    """Return the attribute errors of an example, or that its findings do not match."""
    evaluation = evaluate(example, example["reference"], example["candidate"])
    if evaluation.false_findings or evaluation.missing_findings or not evaluation.matched_findings:
        return Verdict("no match", DIFFERENT)
    errors = [f"{error.severity} {' and '.join(error.error_types)}" for error in evaluation.attribute_errors]
    ours = ", ".join(errors) or "none"
    if ours == example["error"]:
        return Verdict(ours, EQUAL)
    published = example["error"].split(", ")
    weighed = [sum(text.startswith("significant") for text in texts) for texts in (errors, published)]
    return Verdict(ours, SAME_SCORE if weighed[0] == weighed[1] else DIFFERENT)


def judge_score(example: Mapping[str, Any]) -> Verdict:
    """Return the score of an example."""
    score = float(crimson_score(evaluate(example, example["reference"], example["candidate"])))
    return Verdict(f"{score:.4g}", EQUAL if abs(score - example["score"]) < 1e-4 else DIFFERENT)


JUDGED = {"levels": judge_level, "errors": judge_errors, "scores": judge_score}


def verdicts(kind: str) -> list[tuple[dict[str, Any], Verdict]]:
    """Return the examples of a kind with the verdicts of the rules."""
    return [(example, JUDGED[kind](example)) for example in read_examples()[kind]]


def patient(example: Mapping[str, Any]) -> str:
    """Describe the patient of an example."""
    age = [f"age {example['age']}"] if "age" in example else []
    return ", ".join([*age, *([example["indication"]] if "indication" in example else [])])


def reports(example: Mapping[str, Any]) -> list[str]:
    """Return the cells of a table that contain the reports and the patient."""
    if "report" in example:
        return [example["report"], patient(example)]
    described = patient(example)
    return [example["reference"], example["candidate"] + (f" ({described})" if described else "")]


def table(kind: str, head: Iterable[str], published: str) -> str:
    """Return the table of a kind of examples."""
    rows = []
    for example, verdict in verdicts(kind):
        value = example[published]
        value = " or ".join(value) if isinstance(value, list) else str(value)
        outcome = verdict.outcome + (f": {example['note']}" if "note" in example else "")
        rows.append([example["from"], *reports(example), value, verdict.ours, outcome])
    columns = ["Source", *head, "Published", "Rules", "Equal"]
    lines = ["| " + " | ".join(cells) + " |" for cells in (columns, ["---"] * len(columns), *rows)]
    return "\n".join(lines) + "\n"


def section() -> str:
    """Return the numbers of equal verdicts, and the tables."""
    counted = [verdict.outcome for kind in JUDGED for _, verdict in verdicts(kind)]
    summary = (
        f"Of {len(counted)} examples, the rules agree on {counted.count(EQUAL)}, on {counted.count(SAME_SCORE)} more "
        f"in the score only, and differ on {counted.count(DIFFERENT)}.\n"
    )
    return "\n".join(
        [
            summary,
            "## Levels of significance\n",
            table("levels", ["Report", "Patient"], "level"),
            "## Attribute errors\n",
            table("errors", ["Reference", "Candidate"], "error"),
            "## Scores\n",
            table("scores", ["Reference", "Candidate"], "score"),
        ]
    )


if __name__ == "__main__":
    print(section())
