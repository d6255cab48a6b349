"""Train ER²Score with each loss and weight of its paper's ablations, and compare the models.

    python benchmarks/er2score_ablations.py --backbone runs/smollm2-135m-instruct --reports reports.jsonl
    python benchmarks/er2score_ablations.py --config er2score/llama3_8b_radcliq --reports graded.jsonl  # on a GPU

Each run is the command of the recipe with one option added; the commands are printed and are in the output. The rows:

- `lam_1.0` is the published loss, and `seed_1` the same with another seed, to show the spread between equal runs;
- `lam_0.5` to `lam_3.0` change the weight of the loss of the total (Table 7);
- `total_only` and `individual_only` are the loss with one of its terms (Table 6);
- `mrscore` learns yes/no criteria, for binary accuracy (Table 3).

The models are compared on the held-out reports of the recipe, and on RadPref, whose 100 candidates have error counts by
three radiologists: Kendall's tau and Spearman's rho of totals and of each criterion (Table 1), and binary accuracy. All
intervals are bootstrap 95 % intervals over references. `minus_published` is the paired difference to `lam_1.0`. No
report of RadPref is used for training. Comparisons were not annotated there, and these criteria are left out.
"""

import argparse
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from agreement import RADPREF, RESULTS

from rrg_rewards.data import ErrorRecord, grade_by_errors, read_annotated_set
from rrg_rewards.functional import agreement_interval, human_agreement
from rrg_rewards.functional.agreement import POSITIVE_THRESHOLD
from rrg_rewards.metrics.er2score import ER2Score
from rrg_rewards.metrics.preference_accuracy import GradedRewards, annotated_totals, rows_with_totals
from rrg_rewards.models.model_card import number
from rrg_rewards.recipes import recipe_path
from rrg_rewards.schemas.scoring import ScoringSystem
from rrg_rewards.training.metrics import cli
from rrg_rewards.training.metrics.report import preference_agreement, preference_intervals
from rrg_rewards.version import __version__

PUBLISHED = "lam_1.0"
MRSCORE = "mrscore"
VARIANTS: dict[str, tuple[str, ...]] = {
    PUBLISHED: (),
    "seed_1": ("--seed_everything", "1"),
    **{f"lam_{lam}": ("--model.lam", lam) for lam in ("0.5", "0.8", "1.2", "2.0", "3.0")},
    "total_only": ("--model.individual", "false"),
    "individual_only": ("--model.total", "false"),
    MRSCORE: ("--model.scoring_system", "mrscore"),
}
RADIOLOGISTS = 3


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="er2score/smollm2_ablations", help="recipe, or a YAML file")
    parser.add_argument("--backbone", help="folder or Hub id of the backbone (default: that of the recipe)")
    parser.add_argument("--reports", help="file of all sources of the recipe (default: those of the recipe)")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="rows to run (default: all)")
    parser.add_argument("--radpref", type=Path, default=RADPREF, help="RadPref's pairs.json; omitted if missing")
    parser.add_argument("--folder", type=Path, default=Path("runs/er2score/ablations"), help="folder of the runs")
    parser.add_argument("--reuse", action="store_true", help="do not repeat runs that are finished in --folder")
    parser.add_argument("--resamples", type=int, default=1000, help="resamples of the bootstrap")
    parser.add_argument("--output", type=Path, default=RESULTS / "er2score_ablations.json")
    arguments = parser.parse_args()
    arguments.variants = arguments.variants.split(",")
    if unknown := sorted(set(arguments.variants) - VARIANTS.keys()):
        parser.error(f"--variants: {unknown[0]!r} is not among {', '.join(VARIANTS)}")
    return arguments


def write_config(arguments: argparse.Namespace) -> Path:
    """Write the recipe with the given backbone and reports, and return its path."""
    path = Path(arguments.config)
    config = yaml.safe_load((path if path.is_file() else recipe_path(arguments.config)).read_text(encoding="utf-8"))
    if arguments.backbone is not None:
        config["model"]["backbone"] = arguments.backbone
    if arguments.reports is not None:
        for source in config["data"]["sources"]:
            if "path" in source["init_args"]:
                source["init_args"]["path"] = arguments.reports
    arguments.folder.mkdir(parents=True, exist_ok=True)
    written: Path = arguments.folder / "config.yaml"
    written.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return written


def trained(name: str, config: Path, arguments: argparse.Namespace) -> tuple[GradedRewards, str]:
    """Train one variant; return the rewards of its held-out reports, and its command."""
    folder = arguments.folder / name
    options = ["--config", str(config), *VARIANTS[name], "--output_dir", str(folder)]
    command = shlex.join(["rrg-rewards", "train", "er2score", *options])
    print(command, flush=True)
    kept = folder / "rewards.pt"
    if not (arguments.reuse and kept.is_file()):
        run = cli.build("er2score", [*options, "--trainer.enable_progress_bar", "false"])
        cli.run(run)
        torch.save([torch.cat(column) for column in zip(*run.model.test_rewards.values(), strict=True)], kept)
    return GradedRewards(*torch.load(kept, weights_only=True)), command


def radpref_scores(path: Path, system: ScoringSystem) -> torch.Tensor:
    """Return the contributions of RadPref's candidates, as the mean over the radiologists; NaN if not annotated."""

    def contributions(record: ErrorRecord) -> tuple[float, ...]:
        scores = grade_by_errors(record, system).scores
        return system.contributions([float("nan") if score is None else score for score in scores])

    read = (read_annotated_set("radpref", path, rater=number) for number in range(RADIOLOGISTS))
    graded = [[contributions(record) for record in records] for records in read]
    scores = torch.tensor(graded, dtype=torch.float64).mean(0)
    # A yes/no item that also asks for comparisons is known only where it is yes, which no accuracy can be computed on.
    scores[:, scores.isnan().any(0)] = torch.nan
    return scores


def on_radpref(model: Path, path: Path, system: ScoringSystem) -> GradedRewards:
    """Score RadPref with a model; the two candidates of a reference are adjacent."""
    records = read_annotated_set("radpref", path)
    scores = ER2Score(model, device="cpu", dtype="float32").score(
        [r.candidate for r in records], [r.reference for r in records]
    )
    sub_scores = torch.stack([scores.details[name].double() for name in system.names], 1)
    rewards = sub_scores * torch.tensor(system.factors, dtype=torch.float64)
    return GradedRewards(rewards, radpref_scores(path, system), torch.arange(len(records)) // 2)


def agreement(graded: GradedRewards, system: ScoringSystem, resamples: int) -> dict[str, Any]:
    """Return the agreement of totals and criteria with the annotations, and its intervals."""
    found = {**preference_agreement(graded, system), **preference_intervals(graded, resamples)}
    for criterion, factor, *columns in zip(
        system.criteria, system.factors, graded.rewards.T, graded.contributions.T, strict=True
    ):
        known = ~columns[1].isnan()
        ours, theirs = (column[known] / factor for column in columns)
        row, units = found["criteria"][criterion.name], graded.reference[known]
        for statistic in ("kendall", "spearman", "binary"):
            given = len(ours) > 0 and not (statistic == "binary" and criterion.kind == "grade")
            ends = (
                agreement_interval(ours, theirs, statistic, units, num_resamples=resamples) if given else [math.nan] * 2
            )
            value = float(human_agreement(ours, theirs, statistic)) if given else math.nan
            row[statistic], *row[f"{statistic}_interval"] = (None if math.isnan(one) else one for one in (value, *ends))
        # What a constant answer would reach.
        positive = float((theirs >= POSITIVE_THRESHOLD).double().mean())
        row |= {"reports": len(ours), "majority": None if row["binary"] is None else max(positive, 1 - positive)}
    return found


def difference(ours: GradedRewards, theirs: GradedRewards, resamples: int) -> dict[str, dict[str, float]]:
    """Return the differences between the correlations of two models on the same reports, with intervals."""
    (first, true), (second, _) = (annotated_totals(graded.rewards, graded.contributions) for graded in (ours, theirs))
    units = ours.reference[rows_with_totals(ours.contributions)[0]]
    found = {}
    for statistic in ("kendall", "spearman"):
        value = human_agreement(first, true, statistic) - human_agreement(second, true, statistic)
        low, high = agreement_interval(first, true, statistic, units, minus=second, num_resamples=resamples)
        found[statistic] = {"value": float(value), "low": low, "high": high}
    return found


def row_of(name: str, found: Mapping[str, Any]) -> str:
    """Format the agreement of totals."""
    return "  ".join([f"{name:16s}", *(with_ends(found, statistic) for statistic in ("kendall", "spearman"))])


def criterion_row(name: str, found: Mapping[str, Any]) -> str:
    """Format the agreement of a criterion."""
    cells = [with_ends(found, statistic) for statistic in ("kendall", "spearman", "binary")]
    return "  ".join([f"  {name:24s}", *cells, f"majority {number(found['majority'])}"])


def with_ends(found: Mapping[str, Any], statistic: str) -> str:
    """Format a value with its interval."""
    return number(found[statistic], found.get(f"{statistic}_interval"))


def show(rows: Mapping[str, Mapping[str, Any]], data: str) -> None:
    """Print the totals of all variants, and the criteria of the published loss and of the yes/no items."""
    print(f"\n{data}: Kendall's tau and Spearman's rho of totals (95 %)")
    found = {name: row[data] for name, row in rows.items() if data in row}
    print("\n".join(row_of(name, row) for name, row in found.items()))
    for name in (PUBLISHED, MRSCORE):
        if name in found:
            print(f"{name}, by criterion: tau, rho, binary accuracy")
            criteria = found[name]["criteria"].items()
            print("\n".join(criterion_row(criterion, row) for criterion, row in criteria if row["reports"]))


def compared(names: Sequence[str], config: Path, arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Train all variants and return the agreement of each."""
    rows: dict[str, dict[str, Any]] = {}
    published: GradedRewards | None = None
    for name in names:
        graded, command = trained(name, config, arguments)
        report = json.loads((arguments.folder / name / "report.json").read_text(encoding="utf-8"))
        system = ScoringSystem.from_dict(report["scoring_system"])
        rows[name] = {"command": command, "held_out": agreement(graded, system, arguments.resamples)}
        published = graded if name == PUBLISHED else published
        if published is not None and name not in (PUBLISHED, MRSCORE):
            rows[name]["minus_published"] = difference(graded, published, arguments.resamples)
        if arguments.radpref.is_file():
            scored = on_radpref(arguments.folder / name / "model", arguments.radpref, system)
            rows[name]["radpref"] = agreement(scored, system, arguments.resamples)
    return rows


def main() -> None:
    """Train, compare, print and write."""
    arguments = parse_arguments()
    config = write_config(arguments)
    rows = compared(arguments.variants, config, arguments)
    for data in ("held_out", "radpref"):
        if any(data in row for row in rows.values()):
            show(rows, data)
    print("\nDifference to the published loss, held-out reports")
    for name, row in rows.items():
        for statistic, found in row.get("minus_published", {}).items():
            print(f"{name:16s} {statistic:8s} {found['value']:+.3f} ({found['low']:+.3f} to {found['high']:+.3f})")
    result = {"version": __version__, "config": arguments.config, "resamples": arguments.resamples, "variants": rows}
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
