"""Compare the time of ER²Score with shared prefixes and with complete prompts, in float32, bfloat16 and compiled.

    OMP_NUM_THREADS=1 python benchmarks/er2score.py --model HuggingFaceTB/SmolLM2-135M-Instruct
    python benchmarks/er2score.py --quick                             # a small model, one thread
    python benchmarks/er2score.py --model meta-llama/Meta-Llama-3-8B --device cuda --dtypes bfloat16 --groups 8
    python benchmarks/er2score.py --size llama3_8b --device cuda --dtypes bfloat16 --groups 8

`--model` is an ER²Score model, or a language model to which a head with random weights is added. Without it, the model
has the layers of `--size` and random weights. Time does not depend on the weights. All sides have the same weights
and score the same pairs, from text to score. They are timed in turn, because other load then affects all of them, and
the median is reported.

- `apart`: a complete prompt for each candidate, in the first of `--dtypes`. Its sub-scores must equal those with a
  shared prefix within 1e-4 in float32.
- `float32`, `bfloat16`, `auto`: the metric with shared prefixes. `auto` is one of the other two, by the processor.
- `compiled`: `auto` with the backbone in `torch.compile`, after compilation, whose seconds and number of graphs are
  also printed. It has complete prompts; `apart_auto` is the same without `torch.compile`.

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
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from benchmark_data import SHARED, model_name, phantom_reports, write_results
from timing import Took, compiling, in_turn, machine
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import AutoModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rrg_rewards.metrics import ER2Score, Scores
from rrg_rewards.models import ER2ScoreConfig, ER2ScoreModel
from rrg_rewards.version import __version__

TOLERANCE = 1e-4
DTYPES = ("float32", "bfloat16", "float16", "auto")
PAPERS_MS = 40.0

SIZES: dict[str, dict[str, Any]] = {
    "smollm2_135m": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
    "llama3_8b": {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
    },
}

Groups = list[tuple[str, list[str]]]


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder or Hub id; default: random weights")
    parser.add_argument(
        "--size", choices=SIZES, default="smollm2_135m", help="without --model; llama3_8b needs one of --dtypes"
    )
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with radpref/ and ct_rate_labels/")
    parser.add_argument("--reports", nargs="+", choices=("radpref", "ct"), default=["radpref", "ct"])
    parser.add_argument("--groups", type=int, default=1, help="references per call")
    parser.add_argument("--candidates", type=int, default=8, help="candidates per reference")
    parser.add_argument("--repeats", type=int, default=3, help="turns; the median is reported")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["float32", "bfloat16", "auto"])
    parser.add_argument("--token-budget", type=int, default=8192)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two layers, 4 candidates, X-ray reports, one thread; writes only to --output",
    )
    parser.add_argument("--output", type=Path, help="file of the figures; default: benchmarks/results/er2score.json")
    arguments = parser.parse_args()
    if arguments.size == "llama3_8b" and (len(arguments.dtypes) > 1 or arguments.dtypes == ["auto"]):
        parser.error("--size llama3_8b needs one of --dtypes, not auto: all sides share the weights in memory")
    if arguments.quick:
        arguments.candidates, arguments.repeats, arguments.reports = 4, 2, ["radpref"]
        # Threads that wait for one another on a busy machine would take processor time.
        torch.set_num_threads(1)
    return arguments


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


def make_model(arguments: argparse.Namespace, texts: list[str], folder: str) -> str | ER2ScoreModel:
    """Return the folder or id of an ER²Score model, and write the model if there is only a language model, or none.

    A large model of random weights is returned itself.
    """
    name = arguments.model
    if name is not None and (Path(name) / "head.safetensors").is_file():
        return str(name)
    torch.manual_seed(0)
    if name is None:
        config = LlamaConfig(**{**SIZES[arguments.size], **({"num_hidden_layers": 2} if arguments.quick else {})})
        if arguments.size == "llama3_8b":
            return model_in_memory(config, arguments, texts)
        name = f"{folder}/backbone_of_random_weights"
        LlamaForCausalLM(config).save_pretrained(name)
        byte_pairs(texts).save_pretrained(name)
    ER2ScoreModel.from_backbone(name).save_pretrained(f"{folder}/model")
    return f"{folder}/model"


def model_in_memory(config: LlamaConfig, arguments: argparse.Namespace, texts: list[str]) -> ER2ScoreModel:
    """Return a model of random weights on the device, in the first of the types."""
    with torch.device(arguments.device):
        backbone = AutoModel.from_config(config, trust_remote_code=False, dtype=getattr(torch, arguments.dtypes[0]))
        model = ER2ScoreModel(ER2ScoreConfig(config), backbone)
    # The configuration of an ER²Score model that is not loaded names no attention.
    backbone.set_attn_implementation("sdpa")
    model.tokenizer = byte_pairs(texts)
    return model.eval().requires_grad_(False)


def byte_pairs(texts: list[str]) -> PreTrainedTokenizerFast:
    """Train a tokenizer on the texts."""
    backend = Tokenizer(BPE())
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    alphabet = ByteLevel.alphabet()
    backend.train_from_iterator(texts, BpeTrainer(vocab_size=3000, initial_alphabet=alphabet, show_progress=False))
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def compiled_metric(model: str, settings: dict[str, Any]) -> ER2Score:
    """Return the metric of a model whose backbone is compiled, without shared prefixes."""
    plain = ER2Score(model, dtype="auto", share_prefix=False, **settings)
    loaded = ER2ScoreModel.from_pretrained(model, dtype=getattr(torch, plain.predictor.dtype)).to(settings["device"])
    loaded.backbone = torch.compile(loaded.backbone, dynamic=True)
    return ER2Score(loaded.requires_grad_(False), share_prefix=False, token_budget=settings["token_budget"])


def sub_score_difference(first: Scores, second: Scores) -> float:
    """Return the largest difference of two sets of sub-scores."""
    return max(float((first.details[name] - second.details[name]).abs().max()) for name in first.details)


def measure(arguments: argparse.Namespace, model: str | ER2ScoreModel, groups: Groups) -> dict[str, Any]:
    """Measure milliseconds per sample of all sides, their ratios, and the largest differences of their scores."""
    target = [reference for reference, candidates in groups for _ in candidates]
    preds = [candidate for _, candidates in groups for candidate in candidates]
    settings: dict[str, Any] = {"device": arguments.device, "token_budget": arguments.token_budget}
    first = arguments.dtypes[0]
    metrics = {dtype: ER2Score(model, dtype=dtype, **settings) for dtype in arguments.dtypes}
    metrics["apart"] = ER2Score(model, dtype=first, share_prefix=False, **settings)
    found = {name: metric.score(preds, target) for name, metric in metrics.items()}
    error = sub_score_difference(found["apart"], found[first])
    if first == "float32" and error > TOLERANCE:
        raise SystemExit(f"sub-scores differ by {error}, more than {TOLERANCE}")
    compiled: dict[str, float] = {}
    if "auto" in metrics:
        metrics["apart_auto"] = ER2Score(model, dtype="auto", share_prefix=False, **settings)
        metrics["compiled"] = compiled_metric(str(model), settings)
        compiled = compiling(lambda: found.update(compiled=metrics["compiled"].score(preds, target)))
        found["apart_auto"] = metrics["apart_auto"].score(preds, target)
        compiled["max_difference_compiled_apart_auto"] = sub_score_difference(found["compiled"], found["apart_auto"])
    sides: dict[str, Any] = {name: partial(metric.score, preds, target) for name, metric in metrics.items()}
    times = in_turn(sides, arguments.repeats)
    prompts = metrics[first].predictor.encoder(target, preds)
    ms = {name: 1000 * took.wall / len(preds) for name, took in times.items()}
    largest = max(float(detail.abs().max()) for detail in found[first].details.values())
    return {
        "pairs": len(preds),
        "mean_prefix_tokens": round(statistics.mean(len(prompt.prefix) for prompt in prompts), 1),
        "mean_suffix_tokens": round(statistics.mean(len(prompt.suffix) for prompt in prompts), 1),
        **{f"ms_per_sample_{name}": round(value, 2) for name, value in ms.items()},
        **({"auto": metrics["auto"].predictor.dtype} if "auto" in metrics else {}),
        **ratios(times, first, "wall"),
        **(
            ratios(times, first, "processor")
            if arguments.device == "cpu"
            else {"paper_ms_over_shared_ms": round(PAPERS_MS / ms[first], 2)}
        ),
        **compiled,
        "largest_sub_score": round(largest, 3),
        "max_sub_score_error": error,
        **{
            f"max_sub_score_difference_{name}_{first}": sub_score_difference(found[name], found[first])
            for name in arguments.dtypes[1:]
        },
    }


def ratios(times: dict[str, Took], first: str, clock: str) -> dict[str, float]:
    """Return the time of one side over that of another, of those that were measured."""
    pairs = {
        "speedup": ("apart", first),
        "float32_over_bfloat16": ("float32", "bfloat16"),
        "apart_auto_over_compiled": ("apart_auto", "compiled"),
    }
    took = {name: getattr(each, clock) for name, each in times.items()}
    return {
        f"{name}_{clock}": round(took[slow] / took[fast], 2)
        for name, (slow, fast) in pairs.items()
        if slow in took and fast in took
    }


def main() -> None:
    """Measure, print and write the figures."""
    arguments = parse_arguments()
    groups = {reports: read_groups(arguments, reports) for reports in arguments.reports}
    texts = [text for found in groups.values() for reference, candidates in found for text in (reference, *candidates)]
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(arguments, texts, folder)
        figures = {reports: measure(arguments, model, found) for reports, found in groups.items()}
    for reports, values in figures.items():
        for name, value in values.items():
            print(f"{reports:10}{name:46}{value:>14}")
    gpu = torch.cuda.get_device_name() if arguments.device.startswith("cuda") else None
    result = {
        "version": __version__,
        "model": model_name(arguments.model) if arguments.model else f"{arguments.size} of random weights",
        "dtypes": arguments.dtypes,
        "device": gpu or f"CPU, {torch.get_num_threads()} threads",
        "machine": machine(),
        "figures": figures,
    }
    write_results(result, arguments, "er2score")


if __name__ == "__main__":
    main()
