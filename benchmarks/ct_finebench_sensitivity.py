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
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.data import phantom_studies, read_table
from rrg_rewards.findings import corrupt_report, paraphrase_report
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.metrics import make_metric
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.version import __version__

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
REWRITERS = {"paraphrased": paraphrase_report, "adversarial": corrupt_report}
# Names and options of the paper's metrics in this package, by their name in the paper.
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
    named = {name: PAPER.get(name, (name, {})) for name in options}
    return {name: make_metric(known, **own, **options[name]) for name, (known, own) in named.items()}


def mean(values: Sequence[float]) -> float | None:
    """Return the mean of the values that are not NaN, or ``None`` if there are none."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else None


def sensitivity(metric: ReportMetric, reports: Sequence[str], made: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Score both versions of each report against the report; one with an unscorable version is left out."""
    scores = {
        version: metric.score([one.candidate for one in rewritten], reports) for version, rewritten in made.items()
    }
    paraphrased, adversarial = (one.value.tolist() for one in scores.values())
    rows = [
        row for row, pair in enumerate(zip(paraphrased, adversarial, strict=True)) if not any(map(math.isnan, pair))
    ]
    sign = 1 if metric.higher_is_better else -1
    entry: dict[str, Any] = {
        "paraphrased": mean([paraphrased[row] for row in rows]),
        "adversarial": mean([adversarial[row] for row in rows]),
        "paraphrase_better": mean([float(sign * (paraphrased[row] - adversarial[row]) > 0) for row in rows]),
        "higher_is_better": metric.higher_is_better,
        "scored": len(rows),
        "unscorable": len(reports) - len(rows),
    }
    parts = {
        part: {version: mean(one.details[part][rows].tolist()) for version, one in scores.items()}
        for part in scores["paraphrased"].details
    }
    return {**entry, **({"parts": parts} if parts else {}), "signature": metric.signature}


def mean_changes(rewritten: Sequence[Any]) -> dict[str, float]:
    """Return the mean number of changes of a report, by kind."""
    total: Counter[str] = Counter()
    for report in rewritten:
        total.update(report.counts)
    return {kind: round(count / len(rewritten), 2) for kind, count in sorted(total.items())}


def markdown(entries: Mapping[str, Mapping[str, Any]], reports: int, seed: int) -> str:
    """Return the table in Markdown."""
    lines = [
        f"{reports} reports, seed {seed}; means of reports.",
        "",
        "| metric | paraphrased | adversarial | paraphrase is better | scored |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, entry in entries.items():
        label = name if entry["higher_is_better"] else f"{name} (lower is better)"
        share = "-" if entry["paraphrase_better"] is None else f"{100 * entry['paraphrase_better']:.0f} %"
        cells = ["-" if (value := entry[version]) is None else f"{value:.3f}" for version in REWRITERS]
        lines.append(f"| {label} | {' | '.join(cells)} | {share} | {entry['scored']} |")
    return "\n".join(lines) + "\n"


def kept_labels(reports: Sequence[str], made: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, int]]:
    """Count the positive label cells that each version keeps, loses and adds."""
    labeler = RuleLabeler("ct_rate")
    before = labeler(reports)
    found = {}
    for version, rewritten in made.items():
        after = labeler([report.candidate for report in rewritten])
        cells = {"kept": before & after, "lost": before & ~after, "won": after & ~before}
        found[version] = {name: int(matrix.sum()) for name, matrix in cells.items()}
    return found


def main() -> None:
    """Score, print and write."""
    arguments = parse_arguments()
    metrics, seed = chosen_metrics(arguments), arguments.seed
    result: dict[str, Any] = {"version": __version__, "corpora": {}}
    lines = ["# Sensitivity of metrics to wording and to details", ""]
    for name, reports in corpora(arguments).items():
        started = time.perf_counter()
        made = {version: [rewrite(one, seed=seed) for one in reports] for version, rewrite in REWRITERS.items()}
        entries = {metric: sensitivity(scorer, reports, made) for metric, scorer in metrics.items()}
        changes = {version: mean_changes(rewritten) for version, rewritten in made.items()}
        labels, table = kept_labels(reports, made), markdown(entries, len(reports), seed)
        numbers = {"reports": len(reports), "seed": seed, "changes": changes, "metrics": entries, "labels": labels}
        result["corpora"][name] = numbers
        lines += [f"## {name}", "", table]
        print(f"{name}, {time.perf_counter() - started:.0f} s\n{table}labels: {labels}\n")
    arguments.output.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    arguments.output.with_suffix(".md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
