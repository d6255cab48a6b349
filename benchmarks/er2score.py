"""Compare the time of ER²Score with a shared prefix and with a complete prompt for each candidate.

    OMP_NUM_THREADS=1 python benchmarks/er2score.py --model HuggingFaceTB/SmolLM2-135M-Instruct
    python benchmarks/er2score.py --model meta-llama/Meta-Llama-3-8B --device cuda --dtype bfloat16 --groups 8

`--model` is an ER²Score model, or a language model to which a head with random weights is added. Time does not depend
on the weights. Both sides have the same weights and score the same pairs, from text to score. They are timed in turn,
because other load then affects both, and the median is reported. Their sub-scores must be equal within 1e-4 in float32.
A group is a reference with `--candidates` candidates, as in GRPO. `radpref` uses chest X-ray reports of RadPref, with
candidates of the same and of other references. `ct` uses chest CT reports of CT-RATE, which are longer; of nine
consecutive reports, the one of median length is the reference. The paper reports 40 ms per sample for Llama-3-8B on a
GPU.
"""

import argparse
import csv
import json
import statistics
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from benchmark_data import phantom_reports
from timing import in_turn

from rrg_rewards.metrics import ER2Score
from rrg_rewards.models import ER2ScoreModel
from rrg_rewards.version import __version__

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
TOLERANCE = 1e-4
PAPERS_MS = 40.0

Groups = list[tuple[str, list[str]]]


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with radpref/ and ct_rate_labels/")
    parser.add_argument("--reports", nargs="+", choices=("radpref", "ct"), default=["radpref", "ct"])
    parser.add_argument("--groups", type=int, default=1, help="references per call")
    parser.add_argument("--candidates", type=int, default=8, help="candidates per reference")
    parser.add_argument("--repeats", type=int, default=3, help="turns; the median is reported")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--token-budget", type=int, default=8192)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "er2score.json")
    return parser.parse_args()


def read_groups(arguments: argparse.Namespace, reports: str) -> Groups:
    """Read references with their candidates, all different."""
    number, size = arguments.groups, arguments.candidates
    path = arguments.data / ("radpref/pairs.json" if reports == "radpref" else "ct_rate_labels/reports.csv")
    if not path.is_file():
        texts = phantom_reports(arguments, f"{path}: no such file; --data names its folder", number * (size + 1))
        starts = range(0, len(texts), size + 1)
        return [(texts[start], texts[start + 1 : start + size + 1]) for start in starts]
    if reports == "radpref":
        cases = json.loads((arguments.data / "radpref" / "pairs.json").read_text(encoding="utf-8"))
        candidates = [case[f"{name}_report"] for case in cases for name in ("C1", "C2")]
        references = [case["ground_truth_report"] for case in cases[:: size // 2 or 1]]
    else:
        with (arguments.data / "ct_rate_labels" / "reports.csv").open(encoding="utf-8") as file:
            texts = [row["report_text"] for row in islice(csv.DictReader(file), number * (size + 1))]
        groups = [sorted(texts[start : start + size + 1], key=len) for start in range(0, len(texts), size + 1)]
        references = [reports.pop(size // 2) for reports in groups]
        candidates = [text for reports in groups for text in reports]
    return [(references[group], candidates[group * size : (group + 1) * size]) for group in range(number)]


def make_model(name: str, folder: str) -> str:
    """Return the folder or id of an ER²Score model, and write the model if the name is that of a language model."""
    if (Path(name) / "head.safetensors").is_file():
        return name
    torch.manual_seed(0)
    ER2ScoreModel.from_backbone(name).save_pretrained(folder)
    return folder


def measure(arguments: argparse.Namespace, model: str, groups: Groups) -> dict[str, Any]:
    """Measure milliseconds per sample of both sides, their ratio, and the largest difference of their scores."""
    target = [reference for reference, candidates in groups for _ in candidates]
    preds = [candidate for _, candidates in groups for candidate in candidates]
    settings = {"device": arguments.device, "dtype": arguments.dtype, "token_budget": arguments.token_budget}
    shared, apart = (ER2Score(model, share_prefix=share, **settings) for share in (True, False))
    found, expected = (metric.score(preds, target) for metric in (shared, apart))
    error = max(float((found.details[name] - expected.details[name]).abs().max()) for name in found.details)
    if arguments.dtype == "float32" and error > TOLERANCE:
        raise SystemExit(f"sub-scores differ by {error}, more than {TOLERANCE}")
    times = in_turn(
        {"shared": lambda: shared.score(preds, target), "apart": lambda: apart.score(preds, target)}, arguments.repeats
    )
    prompts = shared.predictor.encoder(target, preds)
    return {
        "pairs": len(preds),
        "mean_prefix_tokens": round(statistics.mean(len(prompt.prefix) for prompt in prompts), 1),
        "mean_suffix_tokens": round(statistics.mean(len(prompt.suffix) for prompt in prompts), 1),
        **{f"ms_per_sample_{name}": round(1000 * took.wall / len(preds), 2) for name, took in times.items()},
        "speedup_wall": round(times["apart"].wall / times["shared"].wall, 2),
        **(
            {"speedup_processor": round(times["apart"].processor / times["shared"].processor, 2)}
            if arguments.device == "cpu"
            else {"paper_ms_over_shared_ms": round(PAPERS_MS * len(preds) / (1000 * times["shared"].wall), 2)}
        ),
        "largest_sub_score": round(max(float(detail.abs().max()) for detail in expected.details.values()), 3),
        "max_sub_score_error": error,
    }


def main() -> None:
    """Measure, print and write the figures."""
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(arguments.model, folder)
        figures = {reports: measure(arguments, model, read_groups(arguments, reports)) for reports in arguments.reports}
    for reports, values in figures.items():
        for name, value in values.items():
            print(f"{reports:10}{name:30}{value:>14}")
    gpu = torch.cuda.get_device_name() if arguments.device.startswith("cuda") else None
    result = {
        "version": __version__,
        "model": Path(arguments.model).name,
        "dtype": arguments.dtype,
        "device": gpu or f"CPU, {torch.get_num_threads()} threads",
        "figures": figures,
    }
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
