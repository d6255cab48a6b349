"""Run the ablations of CREPE's paper (Section 5) on a small encoder, and compare them.

    python benchmarks/crepe_ablations.py --encoder runs/crepe/minilm
    python benchmarks/crepe_ablations.py --encoder ENCODER --reports REPORTS.jsonl --seeds 3 --work runs/crepe/ablations

Each variant is a run of the recipe `crepe/ablations` with the options that the script prints. The first reports of the
file are the training data of all variants. To save time, the encoder consists of the first three layers of the given
one. The ablation of the encoder uses all its layers, and three layers with random weights. Kendall's tau is computed
between predicted and true total counts on

- held-out reports of the same file with injected errors, whose counts are exact, and
- RadPref, with the radiologists' mean counts of errors A to D. The predictions include E and F for all variants,
  because one or two heads do not separate them.

A value is the mean over seeds, with a bootstrap 95 % interval over references. The difference from the paper's setting
(six heads, MSE + BCE) is computed on the same draws. The interval contains the variation of references, but not that of
seeds; the taus of single seeds are in the output. A run that was interrupted continues with the next model.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from agreement import RADPREF, RESULTS, SHARED, Array, bootstrap_draws
from benchmark_data import need

from rrg_rewards.cli.main import main as run_command
from rrg_rewards.data import ErrorRecord, read_annotated_set
from rrg_rewards.functional.correlation import kendall_tau
from rrg_rewards.metrics.crepe import CREPE
from rrg_rewards.training import ReportErrors
from rrg_rewards.training.metrics.splits import report_key
from rrg_rewards.version import __version__

BASE = "6 heads, MSE + BCE"
VARIANTS: Mapping[str, Sequence[str]] = {
    BASE: (),
    "1 head": ("--model.heads", "total"),
    "2 heads": ("--model.heads", "significance"),
    "MSE only": ("--model.presence_loss_weight", "0"),
    "Poisson only": ("--model.presence_loss_weight", "0", "--model.use_poisson_loss", "true"),
    "encoder: all layers": ("--model.encoder", "whole"),
    "encoder: random weights": ("--model.encoder", "random"),
}
# The paper's Table 4, on ReXVal without copies.
PAPER = {BASE: 0.753, "1 head": 0.723, "2 heads": 0.730, "MSE only": 0.718, "Poisson only": 0.738}
LAYERS = 3
MAX_WORDS = 25
# Candidates of a reference, which are adjacent.
CANDIDATES = {"held_out": 1, "radpref": 2}


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", type=Path, required=True, help="folder of the encoder")
    parser.add_argument("--reports", type=Path, default=SHARED / "iu_xray" / "train_reports.jsonl")
    parser.add_argument("--radpref", type=Path, default=RADPREF, help="RadPref's pairs.json")
    parser.add_argument("--train-reports", type=int, default=300, help="reports for training, from the start")
    parser.add_argument("--test-reports", type=int, default=400, help="reports after them for the comparison")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--resamples", type=int, default=1000, help="resamples of the bootstrap")
    parser.add_argument("--work", type=Path, default=Path("runs/crepe/ablations"), help="folder of encoders and scores")
    parser.add_argument("--output", type=Path, default=RESULTS / "crepe_ablations.json")
    return parser.parse_args()


def make_encoders(encoder: Path, work: Path) -> None:
    """Write the encoders of the variants with their tokenizer."""
    from transformers import AutoModel, AutoTokenizer

    for name in ("whole", "first", "random"):
        if (work / name).is_dir():
            continue
        model = AutoModel.from_pretrained(encoder, trust_remote_code=False)
        if name != "whole":
            model.encoder.layer = model.encoder.layer[:LAYERS]
            model.config.num_hidden_layers = LAYERS
        if name == "random":
            torch.manual_seed(0)
            model = AutoModel.from_config(model.config, trust_remote_code=False)
        model.save_pretrained(work / name)
        AutoTokenizer.from_pretrained(encoder, trust_remote_code=False).save_pretrained(work / name)


def split_reports(arguments: argparse.Namespace) -> tuple[Path, list[ErrorRecord]]:
    """Write the training reports to a file, and return other reports with injected errors, one candidate for each."""
    lines = arguments.reports.read_text(encoding="utf-8").splitlines(keepends=True)
    ends = arguments.train_reports, arguments.train_reports + arguments.test_reports
    train, held_out = arguments.work / "train.jsonl", arguments.work / "held_out.jsonl"
    train.write_text("".join(lines[: ends[0]]), encoding="utf-8")
    held_out.write_text("".join(lines[ends[0] : ends[1]]), encoding="utf-8")
    known = {report_key(json.loads(line)["report"]) for line in lines[: ends[0]]}
    records = {
        report_key(record.reference): record for record in ReportErrors(str(held_out), max_words=MAX_WORDS).read()
    }
    return train, [record for key, record in records.items() if key not in known]


def train_model(options: Sequence[str], seed: int, arguments: argparse.Namespace, reports: Path) -> Path:
    """Train one variant, and return the folder of its model."""
    # A folder of its own, because a loaded model is identified by its folder.
    run = Path(tempfile.mkdtemp(dir=arguments.work))
    changed = dict(zip(options[::2], options[1::2], strict=True))
    changed["--model.encoder"] = str(arguments.work / changed.get("--model.encoder", "first"))
    short = {"path": str(reports), "max_words": MAX_WORDS, "name": "reports"}
    parts = {"path": str(reports), "sentences": 1, "name": "parts"}
    sources = [{"class_path": "ReportErrors", "init_args": given} for given in (short, parts)]
    changed |= {"--output_dir": str(run), "--seed_everything": str(seed), "--data.sources": json.dumps(sources)}
    command = ["train", "crepe", "--config", "crepe/ablations", *(part for pair in changed.items() for part in pair)]
    if run_command(command):
        raise SystemExit(f"training failed: rrg-rewards {' '.join(command)}")
    return run / "model"


def predicted_totals(model: Path, records: Sequence[ErrorRecord]) -> list[float]:
    """Return the sums of predicted counts."""
    metric = CREPE(model, device="cpu", dtype="float32")
    values: list[float] = metric.score([r.candidate for r in records], [r.reference for r in records]).value.tolist()
    return values


def drawn_taus(scores: Array, totals: Array, draws: Array) -> Array:
    """Return Kendall's tau of drawn references. The records of a reference are adjacent."""
    size = len(totals) // draws.shape[1]
    rows = (draws[:, :, None] * size + np.arange(size)).reshape(len(draws), -1)
    return np.array([tau(scores[drawn], totals[drawn]) for drawn in rows])


def tau(scores: Array, totals: Array) -> float:
    """Return Kendall's tau-b."""
    return float(kendall_tau(torch.from_numpy(scores), torch.from_numpy(totals)))


def compared(scores: Mapping[str, Sequence[Sequence[float]]], totals: Array, draws: Array) -> dict[str, Any]:
    """Return tau of each variant, and its difference from the paper's setting, with intervals."""
    by_seed = {name: [np.asarray(values, dtype=np.float64) for values in runs] for name, runs in scores.items()}
    drawn = {name: np.mean([drawn_taus(s, totals, draws) for s in runs], axis=0) for name, runs in by_seed.items()}
    table: dict[str, Any] = {}
    for name, runs in by_seed.items():
        taus = [tau(values, totals) for values in runs]
        table[name] = {"tau": float(np.mean(taus)), **ends(drawn[name]), "seeds": taus}
        if name != BASE:
            difference = table[name]["tau"] - table[BASE]["tau"]
            table[name]["difference"] = {"value": difference, **ends(drawn[name] - drawn[BASE])}
    return table


def ends(values: Array) -> dict[str, float]:
    """Return the 95 % interval of bootstrapped values."""
    low, high = np.nanquantile(values, (0.025, 0.975))
    return {"low": float(low), "high": float(high)}


def main() -> None:
    """Train what is missing, compare, print and write."""
    arguments = parse_arguments()
    need(arguments.reports, "reports, JSON lines with the key report")
    need(arguments.radpref, "RadPref by CRIMSON's authors, with radiologists' ratings")
    arguments.work.mkdir(parents=True, exist_ok=True)
    make_encoders(arguments.encoder, arguments.work)
    reports, held_out = split_reports(arguments)
    sets = {"held_out": held_out, "radpref": read_annotated_set("radpref", arguments.radpref)}
    path = arguments.work / "scores.json"
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for seed in range(arguments.seeds):
        for name, options in VARIANTS.items():
            if f"{name}, seed {seed}" not in known:
                print(f"{name}, seed {seed}: {' '.join(options) or 'no further options'}", flush=True)
                model = train_model(options, seed, arguments, reports)
                known[f"{name}, seed {seed}"] = {kind: predicted_totals(model, rows) for kind, rows in sets.items()}
                shutil.rmtree(model.parent)
                path.write_text(json.dumps(known), encoding="utf-8")
    result: dict[str, Any] = {"version": __version__, "seeds": arguments.seeds, "paper_rexval": PAPER}
    for kind, records in sets.items():
        totals = np.array([record.total for record in records])
        scores = {name: [known[f"{name}, seed {seed}"][kind] for seed in range(arguments.seeds)] for name in VARIANTS}
        draws = bootstrap_draws(len(records) // CANDIDATES[kind], arguments.resamples)
        result[kind] = {"pairs": len(records), "kendall_tau": compared(scores, totals, draws)}
        print(f"\n{kind}: tau of {len(records)} pairs, mean of {arguments.seeds} seeds (95 %)")
        for name, row in result[kind]["kendall_tau"].items():
            print(f"{name:24s} {row['tau']:.3f} ({row['low']:.3f} to {row['high']:.3f})")
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
