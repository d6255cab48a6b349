"""Reports a second: the rule labeler against the forward pass of a BERT-sized labeler, on one core.

    python benchmarks/rule_labeler.py
    python benchmarks/rule_labeler.py --reports reports.csv --text-column text

The other side is a RoBERTa-base encoder with random weights, the size of CT-CLIP's text classifier: weights do not
change the time. Reports become ids of about 1.4 tokens a word, capped at 512, in batches of similar length. "Cold"
labels each report for the first time, with the engine's memory empty; "warm" labels them again.
"""

import argparse
import csv
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch

from rrg_rewards.findings.extract import get_engine
from rrg_rewards.findings.vocabulary import load_lexicon
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.version import __version__

ROOT = Path(__file__).resolve().parent.parent
SHARED_REPORTS = ROOT.parent / "shared" / "data" / "ct_rate_labels" / "reports.csv"
TOKENS_PER_WORD = 1.4
MAX_TOKENS = 512
VOCABULARY = 50_265


def parse_arguments() -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=Path, default=SHARED_REPORTS, help="CSV file with a column of reports")
    parser.add_argument("--text-column", default="report_text")
    parser.add_argument("--repeats", type=int, default=5, help="the fastest of so many runs of the rules counts")
    parser.add_argument("--encoder-reports", type=int, default=24, help="reports for the encoder, evenly spaced")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "rule_labeler.json")
    return parser.parse_args()


def seconds(run: Callable[[], object]) -> float:
    """Wall-clock seconds of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def fresh_labeler() -> RuleLabeler:
    """A labeler whose engine has met neither sentence nor word."""
    get_engine.cache_clear()
    load_lexicon.cache_clear()
    return RuleLabeler("ct_rate")


def time_rules(reports: list[str], repeats: int) -> tuple[float, float]:
    """Fewest seconds for all reports, cold and warm."""
    cold, warm = [], []
    for _ in range(repeats):
        labeler = fresh_labeler()
        cold.append(seconds(lambda labeler=labeler: labeler(reports)))
        warm.append(seconds(lambda labeler=labeler: labeler(reports)))
    return min(cold), min(warm)


def time_encoder(reports: list[str], batch_size: int) -> float:
    """Seconds for the encoder's forward pass over all reports."""
    from transformers import RobertaConfig, RobertaModel

    # Two positions are taken by RoBERTa's padding offset.
    model = RobertaModel(RobertaConfig(vocab_size=VOCABULARY, max_position_embeddings=MAX_TOKENS + 2)).eval()
    lengths = sorted(min(MAX_TOKENS, round(len(report.split()) * TOKENS_PER_WORD) + 2) for report in reports)
    generator = torch.Generator().manual_seed(0)

    def run() -> None:
        for start in range(0, len(lengths), batch_size):
            batch = lengths[start : start + batch_size]
            # Id 1 is padding; the ids' values do not change the time.
            ids = torch.randint(2, VOCABULARY, (len(batch), max(batch)), generator=generator)
            mask = torch.arange(max(batch))[None, :] < torch.tensor(batch)[:, None]
            model(input_ids=ids.masked_fill(~mask, 1), attention_mask=mask.long())

    with torch.inference_mode():
        model(input_ids=torch.full((1, 16), 5))
        return seconds(run)


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    import transformers

    names = [line for line in _cpu_info() if line.startswith("model name")]
    return {
        "cpu": names[0].split(":", 1)[1].strip() if names else platform.processor() or platform.machine(),
        "cores_used": 1,
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "rrg_rewards": __version__,
    }


def _cpu_info() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.is_file() else []


def main() -> None:
    """Measure both sides, print their figures and write them."""
    arguments = parse_arguments()
    torch.set_num_threads(1)
    with arguments.reports.open(newline="", encoding="utf-8") as file:
        reports = [row[arguments.text_column] for row in csv.DictReader(file)]
    cold, warm = (len(reports) / taken for taken in time_rules(reports, arguments.repeats))
    sample = reports[:: max(1, len(reports) // arguments.encoder_reports)][: arguments.encoder_reports]
    encoder = len(sample) / time_encoder(sample, arguments.batch_size)
    figures = {
        "reports": len(reports),
        "mean_words": round(sum(len(report.split()) for report in reports) / len(reports), 1),
        "rules_cold_reports_per_second": round(cold),
        "rules_warm_reports_per_second": round(warm),
        "encoder_reports": len(sample),
        "encoder_reports_per_second": round(encoder, 2),
        "ratio_cold": round(cold / encoder),
        "ratio_warm": round(warm / encoder),
    }
    for name, value in figures.items():
        print(f"{name:32}{value:>12}")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=2) + "\n")
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
