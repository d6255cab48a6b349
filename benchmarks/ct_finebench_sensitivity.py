"""Score paraphrased reports and reports with wrong details with several metrics, as in CT-FineBench's Table 3.

    python benchmarks/ct_finebench_sensitivity.py --encoder runs/crepe/minilm --crepe runs/crepe/minilm_phantom/model

There are three corpora: phantom studies in both styles, whose findings are known, and the first reports of CT-RATE's
labelled sample. Both versions of a report are made by rules (corrupt_report and paraphrase_report in
rrg_rewards.findings), whose word lists differ from those of the metrics. All reports are used; those that a metric
cannot score (CT-FineBench: reports without a finding of the schema) are counted. BLEU-2, ROUGE-L and BERTScore are
computed by torchmetrics. BERTScore needs --encoder, and CREPE needs --crepe; otherwise their rows are omitted.

The script also counts the positive labels (18 per report, by rules) that each version preserves. Both versions should
preserve all labels, because they must not change which findings exist.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rrg_rewards.analysis import PairColumns, Sensitivity, SensitivitySettings, measure_sensitivity
from rrg_rewards.data import Table, phantom_studies, read_table
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.metrics import make_metric
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.version import __version__

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
VERSIONS = ("paraphrased", "adversarial")
# The paper's names of metrics, with their names and options here.
PAPER = {"bleu2": ("bleu", {"n_gram": 2}), "rougeL": ("rouge", {"variant": "rougeL"})}


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", type=Path, help="folder of the encoder for BERTScore")
    parser.add_argument("--crepe", type=Path, help="folder of a CREPE model")
    shared = ROOT.parent / "shared" / "data" / "ct_rate_labels" / "reports.csv"
    parser.add_argument("--reports", type=Path, default=shared, help="CSV with a column report_text")
    parser.add_argument("--number", type=int, default=200, help="reports of each corpus")
    parser.add_argument("--seed", type=int, default=0, help="seed of the versions")
    parser.add_argument(
        "--output", type=Path, default=RESULTS / "ct_finebench_sensitivity", help="path of the output without extension"
    )
    return parser.parse_args()


def corpora(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Return the reports of each corpus."""
    number = arguments.number
    texts = [text for text in read_table(arguments.reports).texts("report_text") if text is not None]
    return {
        "phantom full": [study.report for study in phantom_studies(number, seed=0, style="full")],
        "phantom compact": [study.report for study in phantom_studies(number, seed=0, style="compact")],
        "CT-RATE": texts[:number],
    }


def chosen_metrics(arguments: argparse.Namespace) -> dict[str, ReportMetric]:
    """Return the metrics of the table."""
    options: dict[str, dict[str, Any]] = {"bleu2": {}, "rougeL": {}}
    if arguments.encoder is not None:
        options["bertscore"] = {"model": str(arguments.encoder)}
    if arguments.crepe is not None:
        options["crepe"] = {"model": str(arguments.crepe), "dtype": "float32"}
    options |= {"crimson": {}, "ct_finebench": {}}
    made = {}
    for name, chosen in options.items():
        known, own = PAPER.get(name, (name, {}))
        made[name] = make_metric(known, **own, **chosen)
    return made


def entries(found: Sensitivity) -> dict[str, dict[str, Any]]:
    """Return the mean score of each version by each metric, and the share of reports whose paraphrase scores better."""
    result = {}
    for one in found.comparison.all_reports.metrics:
        first, second = (one.report_values[version] for version in VERSIONS)
        sign = -1 if one.higher_is_better is False else 1
        result[one.metric] = {
            **{system.system: system.value for system in one.systems[1:]},
            "paraphrase_better": float((sign * (first - second) > 0).double().mean()),
            "scored": len(one.rows),
            "unscorable": one.left_out,
            "signature": one.signature,
        }
    return result


def markdown(metrics: dict[str, dict[str, Any]]) -> str:
    """Return the table of one corpus."""
    lines = ["| metric | paraphrased | adversarial | paraphrase is better | scored |", "|---|---:|---:|---:|---:|"]
    for name, entry in metrics.items():
        means = " | ".join(f"{entry[version]:.3f}" for version in VERSIONS)
        lines.append(f"| {name} | {means} | {100 * entry['paraphrase_better']:.0f} % | {entry['scored']} |")
    return "\n".join(lines) + "\n"


def kept_labels(made: Table) -> dict[str, dict[str, int]]:
    """Count the positive label cells that each version keeps, loses and adds."""
    labeler = RuleLabeler("ct_rate")
    before = labeler(made.texts("report"))
    found = {}
    for version in VERSIONS:
        after = labeler(made.texts(version))
        cells = {"kept": before & after, "lost": before & ~after, "won": after & ~before}
        found[version] = {name: int(matrix.sum()) for name, matrix in cells.items()}
    return found


def main() -> None:
    """Score, print and write."""
    arguments = parse_arguments()
    metrics = chosen_metrics(arguments)
    result: dict[str, Any] = {"version": __version__, "corpora": {}}
    lines = ["# Sensitivity of metrics to wording and to details", ""]
    for name, reports in corpora(arguments).items():
        started = time.perf_counter()
        settings = SensitivitySettings(changes=VERSIONS, seed=arguments.seed, bootstrap=0, permutations=0)
        columns = PairColumns(reference_column="report")
        found = measure_sensitivity(Table({"report": reports}), metrics, columns=columns, settings=settings)
        scores, labels = entries(found), kept_labels(found.table)
        result["corpora"][name] = {"reports": len(reports), "metrics": scores, "labels": labels}
        lines += [f"## {name}", "", markdown(scores)]
        print(f"{name}, {time.perf_counter() - started:.0f} s\n{markdown(scores)}labels: {labels}\n")
    arguments.output.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    arguments.output.with_suffix(".md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
