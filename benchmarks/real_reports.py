"""Summarise the changes of impressions of held-out CT reports by reinforcement learning, for one or several runs.

python benchmarks/real_reports.py --run NAME=FOLDER [--run NAME=FOLDER ...] [--base FOLDER]

FOLDER is the output of ``rrg_rewards.recipes.policy`` with the recipe ``smollm2/impression_policy`` or a variant. The
script writes, for each run, its configuration, curves and held-out evaluation without report text, a figure of the
curves, and a table of the changes of all runs. Intervals are paired bootstrap intervals over held-out reports, 95 %.
A control scores the reports against the references of other studies: what rises there, too, needs no findings.
``--base`` names the model before its warm start. The mean nats per token that it gives to the reports, without their
prompts, say whether the language of a policy remains that of the model: their exponential is the perplexity.
"""

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from transformers import AutoModelForCausalLM, AutoTokenizer

from rrg_rewards.data import write_json
from rrg_rewards.findings import read_findings
from rrg_rewards.functional import bootstrap_interval
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.rewards import make_reward

RESULTS = Path(__file__).parent / "results" / "real_reports"
# Rows of the table: name, metric of evaluation.json, statistic.
TABLE = (
    ("total reward", "total", "score"),
    ("CRG, macro", "crg", "crg"),
    ("CRG, micro", "crg", "crg_micro"),
    ("precision of labels", "crg", "precision"),
    ("recall of labels", "crg", "recall"),
    ("CRG, macro, labels by hand", "crg_hand", "crg"),
    ("CRG, micro, labels by hand", "crg_hand", "crg_micro"),
    ("CT-FineBench, F1", "ct_finebench", "score"),
    ("CT-FineBench, recall of existence", "ct_finebench", "recall_existence"),
    ("CT-FineBench, recall of attributes", "ct_finebench", "recall_attributes"),
    ("CT-FineBench, recall of locations", "ct_finebench", "recall_location"),
    ("CRIMSON by rules (held out)", "crimson", "score"),
    ("ROUGE-L (held out)", "rouge", "score"),
    ("words", "crimson", "words"),
    ("share of reports with nothing found", "texts", "nothing_found"),
    ("share of function words", "texts", "function_words"),
    ("share of words that no held-out prompt or impression contains", "texts", "unknown_words"),
    ("share of words that the rules do not read", "texts", "unread_words"),
    ("share of distinct texts", "texts", "distinct"),
    ("nats per token under the base model", "texts", "nats"),
    ("references of other studies: CRG reward", "texts", "other_studies/crg"),
    ("references of other studies: CT-FineBench, F1", "texts", "other_studies/ct_finebench"),
    ("references of other studies: CRIMSON", "texts", "other_studies/crimson"),
    ("references of other studies: ROUGE-L", "texts", "other_studies/rouge"),
)
CONTROLS: dict[str, dict[str, Any]] = {
    "crg": {"average": "macro"},
    "ct_finebench": {"mode": "f1"},
    "crimson": {"judge": "rules"},
    "rouge": {},
}
EXCHANGES = 20
# The first six that a history has are drawn.
CURVES = (
    "reward",
    "total/crg",
    "total/ct_finebench",
    "crg/recall",
    "total/recommended/crimson/credit",
    "total/recommended/crimson/false_findings",
    "completions/mean_length",
    "entropy",
    "kl",
)
FUNCTION_WORDS = frozenset(["a", "and", "are", "in", "is", "of", "that", "the", "to", "was", "were", "which", "with"])
# Keys of the configuration that name files of the machine.
PATHS = ("model_name_or_path", "dataset", "output_dir", "heldout_file")


def read(folder: Path, name: str) -> Any:
    """Read a file of a run."""
    return json.loads((folder / name).read_text(encoding="utf-8"))


def words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return re.findall(r"[a-z]+", text.lower())


class BaseModel:
    """The model before the warm start, which says how usual a text is."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)

    @torch.inference_mode()
    def __call__(self, text: str) -> float:
        """Return the mean nats of the tokens of a text after the first, or NaN for a text of fewer than two."""
        tokens = self.tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
        return float(self.model(input_ids=tokens, labels=tokens).loss) if tokens.shape[1] > 1 else math.nan


def properties(rows: Sequence[Mapping[str, Any]], base: BaseModel | None) -> dict[str, torch.Tensor]:
    """Return properties of the text of each report."""
    texts = [row["report"] for row in rows]
    reports = list(map(words, texts))
    known = {word for row in rows for part in ("prompt", "impression") for word in words(str(row[part]))}
    counted = {
        "unknown_words": [[word not in known for word in report] for report in reports],
        "function_words": [[word in FUNCTION_WORDS for word in report] for report in reports],
    }
    shares = {name: [sum(marks) / max(1, len(marks)) for marks in values] for name, values in counted.items()}
    times, readings = Counter(texts), list(map(read_findings, texts))
    shares["unread_words"] = [reading.num_unread / max(1, reading.num_words) for reading in readings]
    shares["distinct"] = [1 / times[text] for text in texts]
    shares["nothing_found"] = [float(not any(labels)) for labels in RuleLabeler("ct_rate")(texts).tolist()]
    shares["nats"] = [base(text) if base else math.nan for text in texts]
    return {name: torch.tensor(values).double() for name, values in shares.items()}


def scores_of_others(rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """Return the mean scores of each report against the references of ``EXCHANGES`` other studies.

    CRG has the prior of these references, so that every constant text earns -1.
    """
    reports, references = [row["report"] for row in rows], [row["impression"] for row in rows]
    generator = torch.Generator().manual_seed(0)
    shifts = (torch.randperm(len(rows) - 1, generator=generator)[:EXCHANGES] + 1).tolist()
    found = {}
    for name, options in CONTROLS.items():
        reward = make_reward(name, reference_column="reference", **options).fit(reference=references)
        values = [reward(completions=reports, reference=references[n:] + references[:n]) for n in shifts]
        scores = torch.tensor([[math.nan if x is None else x for x in row] for row in values])
        found[f"other_studies/{name}"] = scores.double().nanmean(0)
    return found


def mean(values: torch.Tensor) -> dict[str, float]:
    """Return the mean of the known values with its interval."""
    known = values[~values.isnan()]
    low, high = bootstrap_interval(torch.mean, [known]) if len(known) else (math.nan, math.nan)
    return {"estimate": float(known.mean()), "low": low, "high": high}


def text_results(folder: Path, base: BaseModel | None) -> dict[str, dict[str, dict[str, float]]]:
    """Return the means of the properties and of the control before and after, and of their change."""
    found = {}
    for stage in ("before", "after"):
        lines = (folder / f"heldout_{stage}.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        found[stage] = properties(rows, base) | scores_of_others(rows)
    found["change"] = {name: found["after"][name] - found["before"][name] for name in found["before"]}
    found["references"] = properties([{**row, "report": row["impression"]} for row in rows], base)
    return {stage: {name: mean(value) for name, value in values.items()} for stage, values in found.items()}


def summary(folder: Path, base: BaseModel | None) -> dict[str, Any]:
    """Return the results of a run without report text."""
    run, evaluation = read(folder, "run.json"), read(folder, "evaluation.json")
    config = {key: value for key, value in run["config"].items() if key not in PATHS}
    texts = text_results(folder, base)
    stages = {stage: {**evaluation.get(stage, {}), "texts": found} for stage, found in texts.items()}
    kept = ("step", *CURVES)
    history = [{name: row[name] for name in kept if name in row} for row in read(folder, "history.json")]
    return {**run, "config": config, "evaluation": stages, "history": history}


def cell(value: Mapping[str, float]) -> str:
    """Return an estimate with its interval."""
    return f"{value['estimate']:.3f} ({value['low']:.3f} to {value['high']:.3f})"


def table(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a Markdown table of the changes of all runs, each after the results of the model from which it starts."""
    columns: dict[str, Mapping[str, Any]] = {}
    before = None
    for name, run in runs.items():
        evaluation = run["evaluation"]
        if evaluation["before"] != before:
            before = evaluation["before"]
            columns[f"before {name}"] = before
        columns[name] = evaluation["change"]
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for name, metric, statistic in TABLE:
        if not all(statistic in stage.get(metric, ()) for stage in columns.values()):
            continue
        lines.append(f"| {name} | " + " | ".join(cell(stage[metric][statistic]) for stage in columns.values()) + " |")
    return "\n".join(lines)


def plot(history: Sequence[Mapping[str, float]], path: Path, window: int = 20) -> None:
    """Plot the curves of a run, with their mean over the last steps."""
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    names = [name for name in CURVES if any(name in row for row in history)]
    for axes, name in zip(figure.subplots(2, 3).flat, names, strict=False):
        points = [(row["step"], row[name]) for row in history if name in row]
        steps, values = zip(*points, strict=True)
        means = [sum(values[max(0, i - window + 1) : i + 1]) / min(i + 1, window) for i in range(len(values))]
        axes.plot(steps, values, color="0.8", linewidth=0.8)
        axes.plot(steps, means)
        axes.set(title=name, xlabel="step")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Write the results of all runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="append", required=True, metavar="NAME=FOLDER", help="name and folder of a run")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder to write")
    parser.add_argument("--base", type=Path, metavar="FOLDER", help="model before its warm start")
    arguments = parser.parse_args()
    base = BaseModel(arguments.base) if arguments.base else None
    runs = {}
    for item in arguments.run:
        name, _, folder = item.partition("=")
        runs[name] = summary(Path(folder), base)
        arguments.output.mkdir(parents=True, exist_ok=True)
        write_json(runs[name], arguments.output / f"{name}.json", overwrite=True)
        plot(runs[name]["history"], arguments.output / f"{name}.png")
    print(table(runs))


if __name__ == "__main__":
    main()
