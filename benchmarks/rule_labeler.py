"""Compare the reports per second of the rule labeler, of a RoBERTa-base encoder and of ``str.split`` on one core.

    python benchmarks/rule_labeler.py
    python benchmarks/rule_labeler.py --reports reports.csv --text-column text
    python benchmarks/rule_labeler.py --quick

The encoder has random weights and the size of CT-CLIP's text classifier; time does not depend on the weights. A report
has about 1.4 tokens per word, at most 512, and batches contain reports of similar length. "Cold" runs have an empty
cache. "Warm" runs label the same reports again. Splitting the reports at whitespace is a lower bound for any labeler of
text; it is compared by processor time.
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path

import torch
from benchmark_data import read_reports
from timing import machine, seconds

from rrg_rewards.findings.reading.engine import engine_of
from rrg_rewards.findings.reading.lexicon import shipped_lexicon
from rrg_rewards.findings.reading.sentences import report_units
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.version import __version__

ROOT = Path(__file__).resolve().parent.parent
TOKENS_PER_WORD = 1.4
MAX_TOKENS = 512
VOCABULARY = 50_265


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=Path, help="CSV file with a column of reports")
    parser.add_argument("--text-column", default="report_text")
    parser.add_argument("--repeats", type=int, default=5, help="number of runs of the rules; the fastest is reported")
    parser.add_argument("--encoder-reports", type=int, default=24, help="reports for the encoder, evenly spaced")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="the rules and split only; writes no file")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "rule_labeler.json")
    return parser.parse_args()


def fresh_labeler() -> RuleLabeler:
    """Make a labeler with empty caches."""
    engine_of.cache_clear()
    shipped_lexicon.cache_clear()
    return RuleLabeler("ct_rate")


def time_rules(reports: list[str], repeats: int) -> tuple[float, float, float]:
    """Measure the fewest seconds for all reports, cold and warm, and the cold processor time relative to ``split``."""
    cold, warm, split = [], [], []
    for _ in range(repeats):
        labeler = fresh_labeler()
        cold.append(seconds(lambda labeler=labeler: labeler(reports)))
        warm.append(seconds(lambda labeler=labeler: labeler(reports)))
        split.append(seconds(lambda: [report.split() for report in reports]))
    ratio = min(taken.processor for taken in cold) / min(taken.processor for taken in split)
    return min(taken.wall for taken in cold), min(taken.wall for taken in warm), ratio


def time_encoder(reports: list[str], batch_size: int) -> float:
    """Measure seconds of the encoder's forward pass over all reports."""
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
        return seconds(run).wall


def main() -> None:
    """Measure both sides, print their figures and write them."""
    arguments = parse_arguments()
    torch.set_num_threads(1)
    reports = read_reports(arguments, "reports", arguments.text_column)
    *taken, split_ratio = time_rules(reports, arguments.repeats)
    cold, warm = (len(reports) / wall for wall in taken)
    words = sum(len(report.split()) for report in reports) / len(reports)
    figures: dict[str, float] = {
        "reports": len(reports),
        "mean_words": round(words, 1),
        "fresh_units": len({unit for report in reports for unit in report_units(report)}),
        "rules_cold_reports_per_second": round(cold),
        "rules_cold_words_per_second": round(cold * words),
        "rules_warm_reports_per_second": round(warm),
        "cold_time_relative_to_split": round(split_ratio, 1),
    }
    if not arguments.quick:
        sample = reports[:: max(1, len(reports) // arguments.encoder_reports)][: arguments.encoder_reports]
        encoder = len(sample) / time_encoder(sample, arguments.batch_size)
        figures |= {
            "encoder_reports": len(sample),
            "encoder_reports_per_second": round(encoder, 2),
            "ratio_cold": round(cold / encoder),
            "ratio_warm": round(warm / encoder),
        }
    for name, value in figures.items():
        print(f"{name:32}{value:>12}")
    if arguments.quick:
        return
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    libraries = {"torch": torch.__version__, "transformers": version("transformers"), "rrg_rewards": __version__}
    described = {**machine(), "cores_used": 1, **libraries}
    arguments.output.write_text(json.dumps({"machine": described, "figures": figures}, indent=2) + "\n")
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
