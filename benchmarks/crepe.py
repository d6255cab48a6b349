"""Compare the time of CREPE in packed batches with that of the published code, which pads each pair to 512 tokens.

    OMP_NUM_THREADS=1 python benchmarks/crepe.py
    python benchmarks/crepe.py --quick                                # a small model, one thread
    python benchmarks/crepe.py --model gihuncho/crepe-biomedbert --device cuda --pairs 100

The model is a BERT-base with random weights, unless `--model` names a CREPE model. Time does not depend on the weights.
All sides have the same weights and score the same pairs (RadPref: two candidates per reference). They are timed in
turn, so that other load affects all of them, and the median is reported. Times are wall-clock times. On a CPU the
ratios are also given in processor time, which other load hardly affects.

- `published`: one pair at a time, padded to 512 tokens, in float32.
- `float32`, `bfloat16`, `auto`: the metric, from text to score. `auto` is one of the other two, by the processor.
- `... forward`: only the encoder, on the metric's batches of tokens, without tokenizer, heads or scores.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from benchmark_data import SHARED, model_name, need, phantom_reports, write_results
from timing import Took, in_turn, machine
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer
from torch import Tensor
from transformers import AutoTokenizer, BertConfig, BertTokenizerFast

from rrg_rewards.metrics import CREPE
from rrg_rewards.models import CrepeConfig, CrepeModel
from rrg_rewards.models.pair_predictor import packed_batches
from rrg_rewards.version import __version__

DTYPES = ("float32", "bfloat16")
SIDES = (*DTYPES, "auto")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="RadPref's pairs.json")
    parser.add_argument("--model", help="folder or Hub id of a CREPE model; default: random weights")
    parser.add_argument("--tokenizer", help="tokenizer for random weights; default: the pairs' words")
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3, help="turns; the median is reported")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--token-budget", type=int, default=8192)
    parser.add_argument(
        "--quick", action="store_true", help="two layers, 6 pairs, two turns, one thread; writes only to --output"
    )
    parser.add_argument("--output", type=Path, help="file of the figures; default: benchmarks/results/crepe.json")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.pairs, arguments.repeats = 6, 2
        # Threads that wait for one another on a busy machine would take processor time.
        torch.set_num_threads(1)
    return arguments


def read_pairs(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return candidates and references: RadPref's, or pairs of phantom reports."""
    path, number = arguments.data or SHARED / "radpref" / "pairs.json", arguments.pairs
    if arguments.data is None and not path.is_file():
        target = phantom_reports(arguments, f"{path}: no such file; --data names RadPref's pairs.json", number)
        return target[1:] + target[:1], target
    need(path, "RadPref's pairs")
    cases = json.loads(path.read_text(encoding="utf-8"))
    preds = [case[f"{name}_report"] for case in cases for name in ("C1", "C2")]
    target = [case["ground_truth_report"] for case in cases for _ in range(2)]
    return preds[:number], target[:number]


def word_pieces(texts: Sequence[str]) -> BertTokenizerFast:
    """Train a tokenizer on the texts."""
    backend = Tokenizer(WordPiece(unk_token="[UNK]"))
    backend.normalizer = BertNormalizer(lowercase=True)
    backend.pre_tokenizer = BertPreTokenizer()
    backend.train_from_iterator(texts, WordPieceTrainer(vocab_size=3000, special_tokens=SPECIAL))
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return BertTokenizerFast(tokenizer_object=backend, model_max_length=512)


def make_model(arguments: argparse.Namespace, texts: Sequence[str], folder: str) -> str:
    """Return the folder or id of the given model, or write a BERT-base with random weights and return its folder."""
    if arguments.model:
        return str(arguments.model)
    tokenizer = (
        AutoTokenizer.from_pretrained(arguments.tokenizer, trust_remote_code=False)
        if arguments.tokenizer
        else word_pieces(texts)
    )
    torch.manual_seed(0)
    layers = 2 if arguments.quick else 12
    CrepeModel(CrepeConfig(BertConfig(vocab_size=30522, num_hidden_layers=layers))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@torch.no_grad()
def published(model: CrepeModel, tokenizer: Any, preds: Sequence[str], target: Sequence[str]) -> Tensor:
    """Compute the counts ``(N, C)`` as the published code does."""
    counts = []
    for candidate, reference in zip(preds, target, strict=True):
        batch = tokenizer(
            [reference], [candidate], truncation=True, max_length=512, padding="max_length", return_tensors="pt"
        )
        counts.append(model(**batch.to(model.device)).counts.clamp(min=0).cpu())
    return torch.cat(counts)


def bare_forward(metric: CREPE, preds: Sequence[str], target: Sequence[str]) -> Callable[[], None]:
    """Return a function that runs only the encoder on the metric's tokenised batches."""
    predictor = metric.predictor
    encoder = predictor._model.encoder
    device = next(encoder.parameters()).device
    unique = dict.fromkeys(zip(target, preds, strict=True))
    sequences = predictor.encoder([pair[0] for pair in unique], [pair[1] for pair in unique])
    rows = packed_batches(
        [len(sequence) for sequence in sequences], predictor.options.token_budget, predictor.batch_cost
    )
    batches = [
        {name: values.to(device) for name, values in predictor.encoder.collate([sequences[i] for i in batch]).items()}
        for batch in rows
    ]
    dtype = getattr(torch, predictor.dtype)

    @torch.no_grad()
    def run() -> None:
        for batch in batches:
            with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
                encoder(**batch).pooler_output.cpu()

    return run


def ratios(times: dict[str, Took], clock: str) -> dict[str, float]:
    """Return the ratios of the published time to the metric's, and of the metric's to that of the forward pass."""
    took = {name: getattr(each, clock) for name, each in times.items()}
    return {
        **{f"speedup_{name}_{clock}": round(took["published"] / took[name], 2) for name in SIDES},
        f"float32_over_bfloat16_{clock}": round(took["float32"] / took["bfloat16"], 2),
        **{
            f"metric_over_forward_{dtype}_{clock}": round(took[dtype] / took[f"{dtype} forward"], 3) for dtype in DTYPES
        },
    }


def counts_of(metric: CREPE, preds: Sequence[str], target: Sequence[str]) -> Tensor:
    """Return the counts ``(N, C)`` of a metric."""
    return torch.stack([*metric.score(preds, target).details.values()], dim=1)


def speed(arguments: argparse.Namespace, model: str, preds: list[str], target: list[str]) -> dict[str, Any]:
    """Measure seconds of all sides, their ratios, and the largest difference of their counts."""
    tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    plain = CrepeModel.from_pretrained(model).to(arguments.device)
    settings: dict[str, Any] = {"device": arguments.device, "token_budget": arguments.token_budget}
    metrics = {dtype: CREPE(model, dtype=dtype, **settings) for dtype in (*DTYPES, "auto")}
    expected = published(plain, tokenizer, preds, target).double()
    found = {dtype: counts_of(metric, preds, target) for dtype, metric in metrics.items()}
    sides: dict[str, Callable[[], object]] = {"published": lambda: published(plain, tokenizer, preds, target)}
    for dtype, metric in metrics.items():
        sides[dtype] = lambda metric=metric: metric.score(preds, target)  # type: ignore[misc]
        if dtype in DTYPES:
            sides[f"{dtype} forward"] = bare_forward(metric, preds, target)
    times = in_turn(sides, arguments.repeats)
    tokens = [len(tokenizer(*pair)["input_ids"]) for pair in zip(target, preds, strict=True)]
    return {
        "pairs": len(preds),
        "mean_tokens": round(statistics.mean(tokens), 1),
        **{f"ms_per_pair_{name.replace(' ', '_')}": round(1000 * t.wall / len(preds), 2) for name, t in times.items()},
        "auto": metrics["auto"].predictor.dtype,
        **ratios(times, "wall"),
        **(ratios(times, "processor") if arguments.device == "cpu" else {}),
        "largest_count": round(float(expected.max()), 3),
        **{f"max_count_error_{dtype}": float((found[dtype] - expected).abs().max()) for dtype in metrics},
        **{f"max_score_error_{dtype}": float((found[dtype].sum(1) - expected.sum(1)).abs().max()) for dtype in metrics},
    }


def main() -> None:
    """Measure, print and write the figures."""
    arguments = parse_arguments()
    preds, target = read_pairs(arguments)
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(arguments, preds + target, folder)
        figures = speed(arguments, model, preds, target)
    for name, value in figures.items():
        print(f"{name:42}{value:>14}")
    gpu = torch.cuda.get_device_name() if arguments.device.startswith("cuda") else None
    result = {
        "version": __version__,
        "model": model_name(arguments.model) if arguments.model else "BERT-base of random weights",
        "device": gpu or f"CPU, {torch.get_num_threads()} threads",
        "machine": machine(),
        "figures": figures,
    }
    write_results(result, arguments, "crepe")


if __name__ == "__main__":
    main()
