"""Compare options of CT-FineBench on reports of a real generator: labels of the data set, and over-specified answers.

    python benchmarks/ct_finebench_options.py
    python benchmarks/ct_finebench_options.py --constants

The pairs are those of Reg2RG on CTRG (180, with RadBERT's labels of both reports) and the first pairs on CT-RATE. The
questions on CT-RATE's labelled reports (labels by hand) are counted with and without the labels. The finding engine
makes, answers and grades the questions. No judge takes part.

``--constants`` compares systems with texts that are the same for all studies, as rewards: a blank text, one statement
for each common finding, the same with a bound that every size satisfies, and the best constant text of an attack. A
random half of the references is for fitting and for the attack, and the figures are those of the other half; equal
references are in the same half. It also compares the score with the annotated pairs of chest CT by Kendall's tau.
"""

import argparse
import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from benchmark_data import SHARED, need
from crimson_ct_agreement import annotated_pair, read_entries

from rrg_rewards.attack import attack_reward
from rrg_rewards.data import read_table
from rrg_rewards.functional.agreement import human_agreement
from rrg_rewards.metrics import CTFineBench
from rrg_rewards.questions import get_question_schema, positive_findings
from rrg_rewards.questions.engine import build_items
from rrg_rewards.rewards import Reward, make_reward
from rrg_rewards.version import __version__

RESULTS = Path(__file__).resolve().parent / "results"
SCHEMA = get_question_schema("ct_rate")
NAMES = [finding.name for finding in SCHEMA.findings]
# Table, column of the references and columns of systems' reports; the first system is the honest one of an attack.
CORPORA = {
    "CTRG": ("reg2rg_ctrg/pairs.csv", "GT_whole_report", ("Pred_whole_report",)),
    "CT-RATE": ("reg2rg_ct_rate/pairs.csv", "reference", ("prediction",)),
    "IU X-Ray": ("iu_xray/systems.csv", "reference", ("sft_model", "retrieval_oracle", "fixed_normal_template")),
}
REWARDS: dict[str, dict[str, Any]] = {"f1": {}, "f1, above chance": {"chance": "dataset"}}
# Share of the references that state a finding, above which it is common.
COMMON = 0.15
# Number of shuffles of a system's reports.
SHUFFLES = 20


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the data sets")
    parser.add_argument("--pairs", type=int, default=200, help="number of pairs of CT-RATE")
    parser.add_argument("--constants", action="store_true", help="compare rewards on texts that are always the same")
    parser.add_argument("--budget", type=int, default=40_000, help="calls of the reward in an attack")
    parser.add_argument("--output", type=Path, help="JSON file (default: a file in benchmarks/results)")
    arguments = parser.parse_args()
    name = "ct_finebench_constants.json" if arguments.constants else "ct_finebench_options.json"
    arguments.output = arguments.output or RESULTS / name
    return arguments


def score(preds: list[str], target: list[str], labels: list[Any] | None = None, **options: Any) -> dict[str, Any]:
    """Return the mean score, the number of scored pairs and the mean number of questions."""
    metric = CTFineBench(**options)
    scores = metric.score(preds, target, **({} if labels is None else {"labels": labels}))
    values = scores.value[scores.scored]
    return {
        "score": round(values.mean().item(), 4),
        "scored": int(scores.scored.sum()),
        "items_per_pair": round(
            scores.details["recall_items" if options.get("mode") == "f1" else "items"].nanmean().item(), 2
        ),
    }


def questions(path: Path) -> dict[str, Any]:
    """Count the questions of labelled reports with and without their labels."""
    table = read_table(path)
    rows = list(zip(table.texts("report_text"), table.labels(NAMES), strict=True))
    count = {"reports": 0, "items": 0, "items_with_labels": 0, "positive_labels": 0, "positive_labels_with_items": 0}
    for text, labels in rows:
        if text is None or labels is None:
            continue
        positive = positive_findings(labels, SCHEMA)
        every, chosen = build_items(text), build_items(text, labels=labels)
        count["reports"] += 1
        count["items"] += len(every)
        count["items_with_labels"] += len(chosen)
        count["positive_labels"] += len(positive)
        count["positive_labels_with_items"] += len({item.finding for item in chosen})
    return count


def constant_texts(references: Sequence[str]) -> dict[str, str]:
    """Return texts of what is common in references, by their kind."""
    stated = Counter(name for report in references for name in {item.finding for item in build_items(report)})
    common = [name for name in NAMES if stated[name] > COMMON * len(references)]
    bounded = {finding.name for finding in SCHEMA.findings if any(one.unit == "length" for one in finding.attributes)}
    ends = {name: " of less than 100 mm" if name in bounded else "" for name in common}
    return {
        "blank": "Normal.",
        "common findings": " ".join(f"{name}." for name in common),
        "common findings in both lungs": " ".join(f"{name} in both lungs." for name in common),
        "common findings with a bound": " ".join(f"{name}{ends[name]}." for name in common),
    }


def mean_reward(reward: Reward, reports: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return the mean reward of reports, and its standard error."""
    values = torch.tensor(reward(list(reports), reference=list(references)), dtype=torch.float64)
    return {"mean": round(values.mean().item(), 4), "error": round(values.std().item() / math.sqrt(len(values)), 4)}


def shuffled_reward(reward: Reward, reports: Sequence[str], references: Sequence[str]) -> float:
    """Return the mean reward of reports that are given to other references."""
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(reports), generator=generator).tolist() for _ in range(SHUFFLES)]
    means = [mean_reward(reward, [reports[row] for row in order], references)["mean"] for order in orders]
    return round(sum(means) / len(means), 4)


def best_constant(reward: Reward, honest: Sequence[str], references: Sequence[str], budget: int) -> str:
    """Return the constant text that an attack on references finds."""
    result = attack_reward(
        reward, {"reference": list(references)}, honest=list(honest), against="honest", budget=budget
    )
    return max((one for one in result.families if not one.edits), key=lambda one: one.reward).text


def halves(rows: Sequence[int], targets: Sequence[str | None]) -> tuple[list[int], list[int]]:
    """Divide rows into random halves; rows with equal references are in the same half."""
    distinct = sorted({str(targets[row]) for row in rows})
    order = torch.randperm(len(distinct), generator=torch.Generator().manual_seed(0)).tolist()
    first = {distinct[place] for place in order[: len(distinct) // 2]}
    return [row for row in rows if targets[row] in first], [row for row in rows if targets[row] not in first]


def constants_of(corpus: str, data: Path, budget: int) -> dict[str, Any]:
    """Compare rewards on the constants and systems of a corpus."""
    name, reference, columns = CORPORA[corpus]
    need(data / name, "reports")
    table = read_table(data / name)
    targets = table.texts(reference)
    systems = {column: table.texts(column) for column in columns}
    rows = [row for row in range(len(targets)) if targets[row] and all(texts[row] for texts in systems.values())]
    fitted, held_out = halves(rows, targets)
    given = {column: [str(texts[row]) for row in held_out] for column, texts in systems.items()}
    training, references = ([str(targets[row]) for row in half] for half in (fitted, held_out))
    found: dict[str, Any] = {"references": [len(training), len(references)]}
    for setting, options in REWARDS.items():
        reward = make_reward("ct_finebench", **options).fit(reference=training)
        honest = [str(systems[columns[0]][row]) for row in fitted]
        texts = {**constant_texts(training), "best constant": best_constant(reward, honest, training, budget)}
        found[setting] = {
            **{kind: mean_reward(reward, [text] * len(references), references) for kind, text in texts.items()},
            **{column: mean_reward(reward, reports, references) for column, reports in given.items()},
            f"{columns[0]}, shuffled": shuffled_reward(reward, given[columns[0]], references),
            "normal reference, blank": normal_reward(reward, references),
        }
    return found


def normal_reward(reward: Reward, references: Sequence[str]) -> float | None:
    """Return the mean reward of a blank text for references without a finding; ``None`` if there is none."""
    normal = [report for report in references if not build_items(report)]
    return mean_reward(reward, ["Normal."] * len(normal), normal)["mean"] if len(normal) > 1 else None


def annotated_agreement(data: Path) -> dict[str, Any]:
    """Return Kendall's tau between each reward and the score of annotated pairs; fitted to other references."""
    found: dict[str, Any] = {}
    for name, entries in read_entries(data).items():
        path, reference, _ = CORPORA[name]
        used = {entry["reference"] for entry in entries}
        training = [text for text in read_table(data / path).texts(reference) if text and text not in used]
        scores = torch.tensor([annotated_pair(entry).score for entry in entries], dtype=torch.float64)
        found[name] = {"pairs": len(entries)}
        for setting, options in REWARDS.items():
            reward = make_reward("ct_finebench", **options).fit(reference=training)
            reports = {key: [entry[key] for entry in entries] for key in ("candidate", "reference")}
            values = torch.tensor(reward(reports["candidate"], reference=reports["reference"]), dtype=torch.float64)
            found[name][setting] = round(float(human_agreement(values, scores, "kendall")), 3)
    return found


def compare_constants(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare rewards on constant texts and systems of all corpora."""
    found = {corpus: constants_of(corpus, arguments.data, arguments.budget) for corpus in CORPORA}
    return {"version": __version__, **found, "agreement": annotated_agreement(arguments.data)}


def main() -> None:
    """Score, print and write."""
    arguments = parse_arguments()
    result = compare_constants(arguments) if arguments.constants else compare_options(arguments)
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


def compare_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare the options of the metric."""
    paths = [
        arguments.data / folder / name
        for folder, name in (
            ("ct_rate_labels", "reports.csv"),
            ("reg2rg_ctrg", "pairs.csv"),
            ("reg2rg_ct_rate", "pairs.csv"),
        )
    ]
    for path in paths:
        need(path, "reports")
    ctrg, ct_rate = read_table(paths[1]), read_table(paths[2])
    corpora = {
        "CTRG": (ctrg.texts("Pred_whole_report"), ctrg.texts("GT_whole_report")),
        "CT-RATE": (ct_rate.texts("prediction")[: arguments.pairs], ct_rate.texts("reference")[: arguments.pairs]),
    }
    labels = ctrg.labels([f"GT_{name}" for name in NAMES])
    result: dict[str, Any] = {"version": __version__, "questions of CT-RATE's labelled reports": questions(paths[0])}
    for name, (preds, target) in corpora.items():
        result[name] = {
            f"{mode}, over-specified answers {setting}": score(preds, target, mode=mode, over_specified=setting)
            for mode in ("recall", "f1")
            for setting in ("right", "partial")
        }
    result["CTRG"]["recall, findings with a positive label"] = score(*corpora["CTRG"], labels)
    return result


if __name__ == "__main__":
    main()
