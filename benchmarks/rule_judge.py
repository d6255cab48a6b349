"""Compare the report pairs per second of CRIMSON by rules and of ROUGE-L on one core.

    python benchmarks/rule_judge.py
    python benchmarks/rule_judge.py --sets CT-RATE --repeats 9
    python benchmarks/rule_judge.py --quick

The sets are the 600 chest CT pairs of CT-RATE, the 180 of CTRG, and the chest X-ray pairs of RadPref (references with
two candidates each, age and indication). A set whose table does not exist is skipped. Runs with "new sentences" read
each different sentence once. In the "cold" ones all words are new, too: a lexicon looks up each word when it first
meets it. With "known words" the lexicon has met all words, as after the first steps of reinforcement learning. "Warm"
runs score the same pairs again: the findings of the references and of each sentence of the candidates are remembered,
as with a policy that repeats its sentences. All include all steps from text to score. "Reading" is the part of a cold
run that extracts the findings of the texts. ROUGE-L is computed by torchmetrics, one pair at a time. The runs take
turns, and the fastest of each kind counts. Times are processor times, because other work on the machine changes them
less than the wall clock.
"""

import argparse
import csv
import gc
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from timing import seconds
from torchmetrics.functional.text import rouge_score

from rrg_rewards.findings.reading.engine import FindingEngine, engine_of, get_engine
from rrg_rewards.findings.reading.lexicon import shipped_lexicon
from rrg_rewards.findings.reading.sentences import report_units, split_unit
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.version import __version__

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
# Name of a set: its table, and the columns of the reference and the candidate.
CT_TABLES = {
    "CT-RATE": ("reg2rg_ct_rate", "reference", "prediction"),
    "CTRG": ("reg2rg_ctrg", "GT_whole_report", "Pred_whole_report"),
}
XRAY = "RadPref"
QUICK_PAIRS = 60


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the tables")
    parser.add_argument("--sets", nargs="+", choices=(*CT_TABLES, XRAY), default=(*CT_TABLES, XRAY))
    parser.add_argument("--repeats", type=int, default=5, help="number of runs; the fastest is reported")
    parser.add_argument("--quick", action="store_true", help="at most 60 pairs of each set; writes no file")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "rule_judge.json")
    return parser.parse_args()


def load_pairs(name: str, data: Path) -> tuple[list[str], list[str], dict[str, list[Any]]] | None:
    """Return the candidates, the references and the context columns of a set; ``None`` if its table is missing."""
    if name == XRAY:
        path = data / "radpref" / "pairs.json"
        if not path.is_file():
            return None
        cases = json.loads(path.read_text(encoding="utf-8"))
        preds = [case[f"{candidate}_report"] for case in cases for candidate in ("C1", "C2")]
        target, age, indication = (
            [case[key] for case in cases for _ in range(2)]
            for key in ("ground_truth_report", "PatientAge", "Indication")
        )
        return preds, target, {"age": age, "indication": indication}
    folder, reference, candidate = CT_TABLES[name]
    path = data / folder / "pairs.csv"
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row[candidate] for row in rows], [row[reference] for row in rows], {}


def fresh_engine(known_words: bool = False) -> FindingEngine:
    """Make the engine that CRIMSON reads with, without remembered sentences, and with known words only if requested."""
    engine_of.cache_clear()
    if not known_words:
        shipped_lexicon.cache_clear()
    engine = get_engine("chest", open_findings=True)
    # The engine before this one is no work of the run that follows.
    gc.collect()
    return engine


def measure(
    preds: Sequence[str], target: Sequence[str], context: Mapping[str, Sequence[Any]], repeats: int
) -> dict[str, float]:
    """Return the figures of one set."""
    metric = CRIMSON()
    texts = list(dict.fromkeys((*preds, *target)))
    fresh = {sentence for text in texts for unit in report_units(text) for _, sentence in split_unit(unit)}
    cold, known, warm, rouge, reading = [], [], [], [], []
    for _ in range(repeats):
        engine = fresh_engine()
        reading.append(seconds(lambda engine=engine: list(map(engine.extract, texts))).processor)
        fresh_engine()
        cold.append(seconds(lambda: metric.score(preds, target, **context)).processor)
        fresh_engine(known_words=True)
        known.append(seconds(lambda: metric.score(preds, target, **context)).processor)
        warm.append(seconds(lambda: metric.score(preds, target, **context)).processor)
        rouge.append(
            seconds(
                lambda: [rouge_score(p, t, rouge_keys="rougeL") for p, t in zip(preds, target, strict=True)]
            ).processor
        )
    words = sum(len(text.split()) for text in (*preds, *target)) / len(preds)
    return {
        "pairs": len(preds),
        "mean_words_per_pair": round(words, 1),
        "fresh_sentences": len(fresh),
        "reading_words_per_second": round(sum(len(text.split()) for text in texts) / min(reading)),
        "reading_fresh_sentences_per_second": round(len(fresh) / min(reading)),
        "crimson_cold_pairs_per_second": round(len(preds) / min(cold)),
        "crimson_known_words_pairs_per_second": round(len(preds) / min(known)),
        "crimson_warm_pairs_per_second": round(len(preds) / min(warm)),
        "rouge_l_pairs_per_second": round(len(preds) / min(rouge)),
        "ratio_cold": round(min(rouge) / min(cold), 2),
        "ratio_known_words": round(min(rouge) / min(known), 2),
        "ratio_warm": round(min(rouge) / min(warm), 2),
    }


def main() -> None:
    """Measure all sides, print their figures and write them."""
    arguments = parse_arguments()
    torch.set_num_threads(1)
    figures = {}
    for name in arguments.sets:
        pairs = load_pairs(name, arguments.data)
        if pairs is None:
            continue
        preds, target, context = pairs
        pairs_used = slice(QUICK_PAIRS if arguments.quick else None)
        context = {column: values[pairs_used] for column, values in context.items()}
        figures[name] = measure(preds[pairs_used], target[pairs_used], context, arguments.repeats)
        print(name)
        for figure, value in figures[name].items():
            print(f"  {figure:40}{value:>12}")
    if arguments.quick:
        return
    result = {"version": __version__, "metric": CRIMSON().signature, "figures": figures}
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
