"""Compare metrics with radiologists' preferences on RadPref by `rrg-rewards agreement`.

    python benchmarks/metric_agreement.py
    python benchmarks/metric_agreement.py --radpref PAIRS.json --metrics crimson,crg,rouge --baseline crimson

The script runs the command on both candidates of each case, prints its tables and writes its JSON. CRIMSON's lexicon
was revised on these pairs.
"""

import argparse
import json
import sys
from pathlib import Path

from agreement import CANDIDATES, RADPREF, RESULTS
from benchmark_data import need

from rrg_rewards.cli.main import main as rrg_rewards
from rrg_rewards.data import write_json


def main() -> int:
    """Run the command and write its result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--radpref", type=Path, default=RADPREF, help="RadPref's pairs.json")
    parser.add_argument("--metrics", default="crimson,crg,rouge,bleu", help="metrics to compare")
    parser.add_argument("--baseline", default="crimson", help="metric that the others are compared with")
    parser.add_argument("--labeler", default="rules:chexbert", help="labeler of crg (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULTS / "metric_agreement.json")
    arguments = parser.parse_args()
    need(arguments.radpref, "RadPref by CRIMSON's authors, with radiologists' ratings")
    pairs = ["--dataset", "radpref", "--candidates", ",".join(CANDIDATES)]
    options = ["--metrics", arguments.metrics, "--baseline", arguments.baseline, "--labeler", arguments.labeler]
    context = ["--context", "age=PatientAge", "--context", "indication=Indication"]
    files = ["--json", str(arguments.output), "--overwrite"]
    code = rrg_rewards(["agreement", str(arguments.radpref), *pairs, *options, *context, *files])
    if code == 0:
        # The path is that of this machine.
        found = {**json.loads(arguments.output.read_text(encoding="utf-8")), "table": arguments.radpref.name}
        write_json(found, arguments.output, overwrite=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
