"""Compare CRIMSON by rules with annotated chest CT pairs: scores, findings, sides, sizes and significance.

    python benchmarks/crimson_ct_agreement.py
    python benchmarks/crimson_ct_agreement.py --rows unread_rows.json
    python benchmarks/crimson_ct_agreement.py --annotations mine.json --errors 20

A set is a JSON list of annotated pairs. Each has ``reference_findings`` and ``candidate_findings`` (``finding``, a
verbatim ``quote``, ``significance``), ``matches`` and ``attribute_errors``, as in the published protocol of CRIMSON,
and either its two reports (``reference``, ``candidate``) or a ``row`` of the table of pairs.

The script prints, for each set:

- Kendall's tau between each metric and the CRIMSON score of the annotation, with a bootstrap 95 % interval over pairs,
  and of CRIMSON by rules, with both profiles of the package, also the mean absolute difference of the scores. The
  number of pairs that CRIMSON by rules does not score because it could not read the reference; tau is over all pairs,
  as if the unread words were not there;
- how many annotated findings the rules read (recall), and how many of the findings that the rules read are annotated
  (precision). A finding counts once: findings are paired one to one where the words of a finding lie in a quote;
- of the paired findings, how many have the annotated side, size (within 1 mm) and significance.
"""

import argparse
import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from agreement import RESULTS, SHARED, agreement_with_interval, bootstrap_draws, interval, rouge_l
from benchmark_data import need
from scipy.optimize import linear_sum_assignment

from rrg_rewards import ReportCRG
from rrg_rewards.findings import Finding, abnormal_findings, extract_findings
from rrg_rewards.findings.comparing.significance import clinical_significance
from rrg_rewards.findings.knowledge.patient import Patient
from rrg_rewards.functional import CrimsonAttributeError, CrimsonEvaluation, CrimsonFinding, crimson_score
from rrg_rewards.judges import JudgeFailure, ReportPair, RuleJudge
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.version import __version__

# Name of a set: folder of its annotations, table of pairs, columns of the reference and the candidate.
SETS = {
    "CTRG": ("ct_crimson", "reg2rg_ctrg", "GT_whole_report", "Pred_whole_report"),
    "CT-RATE": ("ct_rate_crimson", "reg2rg_ct_rate", "reference", "prediction"),
}
SIDES = {"right": "right", "left": "left", "bilateral": "bilateral", "both": "bilateral", "bilaterally": "bilateral"}
# The lingula is a part of the left lung.
SIDES |= {"lingula": "left", "lingular": "left"}
# Names of parts of the heart, which are no sides, and lobes of both lungs: "lower lobes and right middle lobe", but not
# "right upper and lower lobes".
NO_SIDE = re.compile(
    r"\b(?:left|right) (?:heart|ventric\w*|atri\w*|bundle)|\b(?:left|right)-sided heart", re.IGNORECASE
)
BOTH_SIDES = re.compile(r"\A(?:(?!\b(?:right|left)\b).)*\b(?:lungs|lower lobes|upper lobes)\b", re.IGNORECASE)
MEASURE = re.compile(r"(\d+(?:\.\d+)?)(?:\s*[x*\u00d7-]\s*(\d+(?:\.\d+)?))*\s*(mm|cm)\b", re.IGNORECASE)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
TOLERANCE_MM = 1.0
REPORTS = ("reference", "candidate")


class Pair(NamedTuple):
    """An annotated pair of reports."""

    reports: dict[str, str]
    findings: dict[str, list[dict[str, Any]]]
    score: float


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the sets")
    parser.add_argument("--rows", type=Path, help="JSON: for each set, the rows to use; default: all")
    parser.add_argument(
        "--annotations", type=Path, nargs="+", help="annotated pairs with their reports, instead of the sets"
    )
    parser.add_argument("--resamples", type=int, default=2000, help="resamples of the bootstrap")
    parser.add_argument(
        "--errors", type=int, default=0, metavar="N", help="list up to N unread and N invented findings"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "crimson_ct_agreement.json")
    return parser.parse_args()


def read_sets(arguments: argparse.Namespace) -> dict[str, list[Pair]]:
    """Read the annotated pairs of each set."""
    if arguments.annotations:
        return {path.stem: [annotated_pair(entry) for entry in read_json(path)] for path in arguments.annotations}
    chosen = read_json(arguments.rows) if arguments.rows else None
    return {
        name: [annotated_pair(entry) for entry in entries if chosen is None or entry["row"] in chosen[name]]
        for name, entries in read_entries(arguments.data).items()
    }


def read_entries(data: Path) -> dict[str, list[dict[str, Any]]]:
    """Read the annotations of each set, with the two reports of each pair."""
    found = {}
    for name, (folder, table, *columns) in SETS.items():
        need(data / table / "pairs.csv", "reference and generated reports, from Reg2RG's results")
        need(data / folder / "annotations.json", "the annotations of these pairs")
        with (data / table / "pairs.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        found[name] = [
            {**entry, **dict(zip(REPORTS, (rows[entry["row"]][column] for column in columns), strict=True))}
            for entry in read_json(data / folder / "annotations.json")
        ]
    return found


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def annotated_pair(entry: dict[str, Any]) -> Pair:
    """Return an annotated pair with the CRIMSON score of its annotation."""
    findings = {name: entry[f"{name}_findings"] for name in REPORTS}
    score = float(crimson_score(annotated_evaluation(entry)))
    return Pair({name: entry[name] for name in REPORTS}, findings, score)


def annotated_evaluation(entry: dict[str, Any]) -> CrimsonEvaluation:
    """Return the annotation of a pair as an evaluation."""
    findings = {name: entry[f"{name}_findings"] for name in REPORTS}
    matched = [(ours, theirs) for ours, theirs in entry["matches"]]
    taken = {identifier for match in matched for identifier in match}
    return CrimsonEvaluation(
        *(tuple(CrimsonFinding(f["id"], f["finding"], f["significance"]) for f in findings[name]) for name in REPORTS),
        tuple(matched),
        tuple(f["id"] for f in findings["candidate"] if f["id"] not in taken),
        tuple(f["id"] for f in findings["reference"] if f["id"] not in taken),
        tuple(
            CrimsonAttributeError(error["ref_id"], error["cand_id"], error["severity"], tuple(error["types"]))
            for error in entry["attribute_errors"]
        ),
    )


def scores(pairs: Sequence[Pair]) -> dict[str, list[float]]:
    """Score all pairs with each metric."""
    labeler, crg = RuleLabeler("ct_rate"), ReportCRG()
    references, candidates = ([pair.reports[name] for pair in pairs] for name in REPORTS)
    ours, theirs = labeler(references), labeler(candidates)
    both, total = (ours & theirs).sum(-1), ours.sum(-1) + theirs.sum(-1)
    items = [ReportPair(r, c) for r, c in zip(references, candidates, strict=True)]
    judges = {"CRIMSON (rules)": RuleJudge(), "CRIMSON (rules, profile ct)": RuleJudge(profile="ct")}
    return {
        **{name: crimson_score([*map(judge.evaluation, items)]).tolist() for name, judge in judges.items()},
        "label F1 (rules)": torch.where(total > 0, 2 * both / total.clamp(min=1), 1.0).tolist(),
        "CRG (rules)": crg.score(candidates, references).value.tolist(),
        "ROUGE-L": [rouge_l(r, c) for r, c in zip(references, candidates, strict=True)],
    }


def unscorable(pairs: Sequence[Pair]) -> int:
    """Count the pairs whose references the rules cannot read."""
    items = [ReportPair(*(pair.reports[name] for name in REPORTS)) for pair in pairs]
    return sum(isinstance(result, JudgeFailure) for result in RuleJudge().evaluate_now(CrimsonTask(), items))


def paired(report: str, annotated: Sequence[dict[str, Any]], found: Sequence[Finding]) -> list[tuple[int, int]]:
    """Pair annotated findings and found ones one to one, so that most are paired."""
    if not annotated or not found:
        return []
    fits = np.zeros((len(annotated), len(found)))
    for i, finding in enumerate(annotated):
        start = report.find(finding["quote"])
        end = start + len(finding["quote"])
        words = set(re.findall(r"[a-z]+", finding["finding"].lower()))
        for j, mention in enumerate(found):
            if start >= 0 and mention.start < end and start < mention.end:
                # Quotes may share words; the names of the findings then decide: "calcified plaques in the aorta and the
                # coronary arteries".
                own = set(re.findall(r"[a-z]+", f"{mention.text} {mention.concept}".lower().replace("_", " ")))
                fits[i, j] = 1 + 0.1 * len(words & own) / len(own)
    rows, columns = linear_sum_assignment(fits, maximize=True)
    return [(int(i), int(j)) for i, j in zip(rows, columns, strict=True) if fits[i, j]]


def stated_side(text: str) -> str | None:
    """Return the side that an annotated finding states."""
    sides = {SIDES[word] for word in re.findall(r"[a-z]+", NO_SIDE.sub("", text).lower()) if word in SIDES}
    if not sides:
        return None
    return "bilateral" if len(sides) > 1 or BOTH_SIDES.search(text) else sides.pop()


def stated_size(text: str) -> float | None:
    """Return the largest dimension in mm that an annotated finding states."""
    sizes = [
        max(map(float, NUMBER.findall(found[0]))) * (10 if found[3].lower() == "cm" else 1)
        for found in MEASURE.finditer(text)
    ]
    return max(sizes) if sizes else None


def reading(pairs: Sequence[Pair], name: str, errors: int) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Count the findings of each pair (see ``SHARES``), and list the errors."""
    counts, lines = [], []
    for number, pair in enumerate(pairs):
        report, annotated = pair.reports[name], pair.findings[name]
        found = abnormal_findings(report, extract_findings(report, open_findings=True))
        matched = paired(report, annotated, found)
        row = [len(annotated), len(found), len(matched), 0, 0, 0, 0, 0]
        for i, j in matched:
            text, mention = annotated[i]["finding"], found[j]
            side, size = stated_side(text), stated_size(text)
            level = clinical_significance(mention.concept, mention.attributes, Patient(), mention.words)
            checks = [
                (side is not None, side == mention.laterality, f"side {mention.laterality}"),
                (
                    size is not None,
                    size is not None and mention.size_mm is not None and abs(size - mention.size_mm) <= TOLERANCE_MM,
                    f"size {mention.size_mm}",
                ),
            ]
            for place, (stated, right, what) in enumerate(checks):
                row[3 + 2 * place] += stated
                row[4 + 2 * place] += stated and right
                if stated and not right:
                    lines.append(f"{number} {name} {what}: {text!r} in {annotated[i]['quote']!r}")
            row[7] += level == annotated[i]["significance"]
            if level != annotated[i]["significance"]:
                lines.append(f"{number} {name} significance {level}: {text!r} is {annotated[i]['significance']}")
        ours, theirs = {i for i, _ in matched}, {j for _, j in matched}
        lines += [
            f"{number} {name} unread: {f['finding']!r} in {f['quote']!r}"
            for i, f in enumerate(annotated)
            if i not in ours
        ]
        lines += [
            f"{number} {name} invented: {f.concept} {f.text!r} in {report[max(0, f.start - 60) : f.end + 40]!r}"
            for j, f in enumerate(found)
            if j not in theirs
        ]
        counts.append(row)
    return np.array(counts), lines[:errors]


SHARES = {"recall": (2, 0), "precision": (2, 1), "side": (4, 3), "size": (6, 5), "significance": (7, 2)}


def main() -> None:
    """Compare, print and write."""
    arguments = parse_arguments()
    result: dict[str, Any] = {"version": __version__, "judge": RuleJudge().signature, "sets": {}}
    for name, pairs in read_sets(arguments).items():
        draws = bootstrap_draws(len(pairs), arguments.resamples)
        target = np.array([pair.score for pair in pairs])
        measured = scores(pairs)
        taus = {metric: agreement_with_interval(np.array(values), target, draws) for metric, values in measured.items()}
        for metric, values in measured.items():
            if metric.startswith("CRIMSON"):
                taus[metric]["mean_error"] = float(np.abs(np.array(values) - target).mean())
        unread = unscorable(pairs)
        print(f"\n{name}: {len(pairs)} pairs, {unread} with an unread reference{'':20s} tau (95 %)")
        for metric, row in taus.items():
            error = f", mean error {row['mean_error']:.3f}" if "mean_error" in row else ""
            print(f"  {metric:36s} {row['tau']:.3f} ({row['low']:.3f} to {row['high']:.3f}){error}")
        read: dict[str, Any] = {}
        for report in REPORTS:
            counts, lines = reading(pairs, report, arguments.errors)
            read[report] = {share: share_with_interval(counts, *columns, draws) for share, columns in SHARES.items()}
            shares = ", ".join(
                f"{share} {row['value']:.3f} ({row['low']:.2f} to {row['high']:.2f}; of {row['of']})"
                for share, row in read[report].items()
            )
            print(f"  {report}: {shares}")
            print("".join(f"    {line}\n" for line in lines), end="")
        result["sets"][name] = {"pairs": len(pairs), "unread_references": unread, "kendall_tau": taus, "findings": read}
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def share_with_interval(
    counts: np.ndarray[Any, Any], part: int, whole: int, draws: np.ndarray[Any, Any]
) -> dict[str, float]:
    """Return the share of two columns' sums with its interval over pairs."""

    def share(cases: np.ndarray[Any, Any]) -> float:
        total = counts[cases, whole].sum()
        return float(counts[cases, part].sum() / total) if total else float("nan")

    return {"value": share(np.arange(len(counts))), "of": int(counts[:, whole].sum()), **interval(share, draws)}


if __name__ == "__main__":
    main()
