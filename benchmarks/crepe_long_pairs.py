"""Compare truncation with division into chunks, on pairs of CT reports that exceed CREPE's 512 tokens.

    python benchmarks/crepe_long_pairs.py --tokenizer FOLDER_OR_ID

The references are real chest-CT reports. A candidate is the same report with its sentences in another order and every
fifth sentence omitted. No model is needed. The script counts the tokens that each method keeps. The finding engine
counts missed and invented findings of the whole pair and of the kept text, summed over chunks. If matching sentences
are in different chunks, the engine counts an error that does not exist. If truncation drops text, the engine misses
errors or counts false ones.
"""

import argparse
import json
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from benchmark_data import read_reports
from transformers import AutoTokenizer

from rrg_rewards.metrics import CRIMSON
from rrg_rewards.models.crepe.encoding import PairEncoder, TokenizedPair
from rrg_rewards.version import __version__

ROOT = Path(__file__).resolve().parent.parent
SPECIAL_TOKENS = 3


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="CSV file of reports")
    parser.add_argument("--tokenizer", required=True, help="folder or Hub id of a BERT tokenizer")
    parser.add_argument("--column", default="report_text")
    parser.add_argument("--reports", type=int, default=200)
    parser.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "crepe_long_pairs.json")
    return parser.parse_args()


def reworked(report: str, seed: int) -> str:
    """Return a report with shuffled sentences, without every fifth sentence."""
    sentences = [sentence for sentence in report.replace("\n", " ").split(". ") if sentence.strip()]
    random.Random(seed).shuffle(sentences)
    return ". ".join(sentence for index, sentence in enumerate(sentences) if index % 5)


def texts(tokenizer: Any, pair: TokenizedPair) -> tuple[str, str]:
    """Decode the reference and the candidate of a sequence."""
    sides: tuple[list[int], list[int]] = ([], [])
    for token, side in zip(pair.input_ids, pair.token_type_ids, strict=True):
        sides[side].append(token)
    reference, candidate = (tokenizer.decode(ids, skip_special_tokens=True) for ids in sides)
    return reference, candidate


def errors(pairs: Sequence[Sequence[tuple[str, str]]]) -> torch.Tensor:
    """Count missed and invented findings ``(N,)``, summed over the parts of each pair."""
    # A chunk without a reference sentence is compared with a report without findings.
    flat = [(reference or "normal", candidate) for parts in pairs for reference, candidate in parts]
    details = CRIMSON().score([pair[1] for pair in flat], [pair[0] for pair in flat]).details
    each = details["missing_findings"] + details["false_findings"]
    owners = torch.tensor([row for row, parts in enumerate(pairs) for _ in parts])
    return torch.zeros(len(pairs), dtype=torch.float64).index_add_(0, owners, each.double())


def main() -> None:
    """Measure, print and write the figures."""
    arguments = parse_arguments()
    target = read_reports(arguments, "data", arguments.column)[: arguments.reports]
    preds = [reworked(report, seed) for seed, report in enumerate(target)]
    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer, trust_remote_code=False)
    whole = PairEncoder(tokenizer, 1_000_000)(target, preds)
    long = [row for row, (pair,) in enumerate(whole) if len(pair) > arguments.max_length]
    told = errors([[texts(tokenizer, whole[row][0])] for row in long])
    figures: dict[str, float] = {
        "pairs": len(target),
        "mean_tokens": round(statistics.mean(len(pair) for (pair,) in whole), 1),
        "pairs_over_the_limit": len(long),
        "errors_of_whole_pairs": round(float(told.mean()), 2),
    }
    chosen = [target[row] for row in long], [preds[row] for row in long]
    for rule in ("truncate", "chunks"):
        encoded = PairEncoder(tokenizer, arguments.max_length, rule)(*chosen)
        read = sum(len(chunk) - SPECIAL_TOKENS for chunks in encoded for chunk in chunks)
        lost = sum(chunk.num_cut for chunks in encoded for chunk in chunks)
        seen = errors([[texts(tokenizer, chunk) for chunk in chunks] for chunks in encoded])
        figures[f"{rule}_share_of_tokens_read"] = round(read / (read + lost), 3)
        figures[f"{rule}_sequences_per_pair"] = round(sum(map(len, encoded)) / len(encoded), 2)
        figures[f"{rule}_errors"] = round(float(seen.mean()), 2)
        figures[f"{rule}_mean_difference_of_errors"] = round(float((seen - told).abs().mean()), 2)
    same = PairEncoder(tokenizer, arguments.max_length, "chunks")(chosen[0], chosen[0])
    of_equals = errors([[texts(tokenizer, chunk) for chunk in chunks] for chunks in same])
    figures["chunks_errors_of_equal_reports"] = round(float(of_equals.mean()), 2)
    for name, value in figures.items():
        print(f"{name:40}{value:>10}")
    arguments.output.write_text(
        json.dumps({"version": __version__, "figures": figures}, indent=2) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
