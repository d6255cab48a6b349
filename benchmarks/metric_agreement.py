"""Compare metrics with radiologists' preferences on RadPref by `rrg-rewards agreement`.

    python benchmarks/metric_agreement.py
    python benchmarks/metric_agreement.py --radpref PAIRS.json --metrics crimson,crg,rouge --baseline crimson

The script writes the cases of RadPref as a table, in which each row has two candidates and the mean difference of their
ratings, and runs the command on it. It prints the command's tables and writes its JSON. CRIMSON's lexicon
was revised on these pairs.
"""

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from agreement import RADPREF, RESULTS, read_preferences
from benchmark_data import need

from rrg_rewards.cli.main import main as rrg_rewards
from rrg_rewards.data import write_json

SUFFIXES = ("_1", "_2")


def write_table(source: Path, table: Path) -> None:
    """Write the cases as JSON lines."""
    with table.open("w", encoding="utf-8") as file:
        for case in read_preferences(source):
            candidates = {f"prediction{suffix}": text for suffix, text in zip(SUFFIXES, case.candidates, strict=True)}
            preference = sum(case.ratings) / len(case.ratings)
            row = {"reference": case.reference, **candidates, **case.context, "preference": preference}
            file.write(json.dumps(row) + "\n")


def main() -> int:
    """Write the table, run the command and write its result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--radpref", type=Path, default=RADPREF, help="RadPref's pairs.json")
    parser.add_argument("--metrics", default="crimson,crg,rouge,bleu", help="metrics to compare")
    parser.add_argument("--baseline", default="crimson", help="metric that the others are compared with")
    parser.add_argument("--labeler", default="rules:chexbert", help="labeler of crg (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULTS / "metric_agreement.json")
    arguments = parser.parse_args()
    need(arguments.radpref, "RadPref by CRIMSON's authors, with radiologists' ratings")
    with TemporaryDirectory() as folder:
        table, result = Path(folder) / "radpref.jsonl", Path(folder) / "result.json"
        write_table(arguments.radpref, table)
        options = ["--metrics", arguments.metrics, "--baseline", arguments.baseline, "--labeler", arguments.labeler]
        options += ["--candidates", ",".join(SUFFIXES)]
        context = ["--context", "age=age", "--context", "indication=indication"]
        files = ["--json", str(result), "--overwrite"]
        code = rrg_rewards(["agreement", str(table), "--human", "preference", *options, *context, *files])
        if code == 0:
            # The table's folder is temporary.
            found = {**json.loads(result.read_text(encoding="utf-8")), "table": arguments.radpref.name}
            write_json(found, arguments.output, overwrite=True)
        return code


if __name__ == "__main__":
    sys.exit(main())
