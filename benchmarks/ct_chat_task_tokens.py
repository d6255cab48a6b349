"""Compare the embeddings that CT-CHAT's task tokens can have where a checkpoint does not store them.

    python -m rrg_rewards.recipes.smollm2.prepare --output smollm2
    python benchmarks/ct_chat_task_tokens.py --model smollm2

`rrg-rewards convert ct-chat` gives them the mean of the base model's embeddings; in the published training they are
random. The script appends the four task tokens to a language model that was not trained with them, in both ways, and
ends the prompt with <report_generation>. It measures the negative log-likelihood of real reports (nats per token)
beside the same prompt without a task token. Random embeddings are drawn with several seeds. The model is no CT-CHAT:
the figures say how much a new token disturbs a language model, and not how well the published weights describe volumes.
"""

import argparse
import json
from pathlib import Path

import torch
from benchmark_data import read_reports
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from rrg_rewards.functional.bootstrap import bootstrap_interval
from rrg_rewards.models.ct_chat.processor import ADDED_TOKENS
from rrg_rewards.version import __version__

RESULTS = Path(__file__).resolve().parent / "results"
PROMPT = "Write the report of this chest CT."
TASK_TOKENS = len(ADDED_TOKENS) - 1
MAX_TOKENS = 256


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of a language model")
    parser.add_argument("--reports", type=Path, help="CSV file with the column report_text; default: CT-RATE's")
    parser.add_argument("--number", type=int, default=40, help="number of reports")
    parser.add_argument("--seeds", type=int, default=5, help="draws of random embeddings")
    parser.add_argument("--output", type=Path, default=RESULTS / "ct_chat_task_tokens.json")
    return parser.parse_args()


def set_rows(model: PreTrainedModel, rows: int, seed: int | None) -> None:
    """Give the appended tokens the mean of the other embeddings, or random ones with a seed."""
    tables = {id(table): table for table in (model.get_input_embeddings().weight, model.get_output_embeddings().weight)}
    draw = torch.Generator().manual_seed(seed or 0)
    with torch.no_grad():
        for table in tables.values():
            table[rows:] = table[:rows].mean(0)
            if seed is not None:
                new = torch.randn(table[rows:].shape, generator=draw)
                table[rows:] = new * model.config.initializer_range


@torch.inference_mode()
def losses(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, reports: list[str], task_token: int | None
) -> Tensor:
    """Return the mean negative log-likelihood per token of each report, shape (N,)."""
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": PROMPT}], tokenize=False)
    start, end = (tokenizer(part, add_special_tokens=False).input_ids for part in prompt.rsplit(PROMPT, 1))
    begin = start + tokenizer(PROMPT, add_special_tokens=False).input_ids + ([] if task_token is None else [task_token])
    begin += end + tokenizer("<|im_start|>assistant\n", add_special_tokens=False).input_ids
    found = []
    for report in reports:
        target = tokenizer(report, add_special_tokens=False).input_ids[:MAX_TOKENS]
        logits = model(torch.tensor([begin + target])).logits[0, len(begin) - 1 : -1]
        found.append(cross_entropy(logits.double(), torch.tensor(target)))
    return torch.stack(found)


def summary(values: Tensor, without: Tensor) -> dict[str, float]:
    """Return a mean, and its difference from the prompt without a task token with a bootstrap interval over reports."""
    change = values - without
    low, high = bootstrap_interval(torch.mean, [change])
    return {"mean": values.mean().item(), "change": change.mean().item(), "low": low, "high": high}


def main() -> None:
    """Compare, print and write."""
    arguments = parse_arguments()
    reports = read_reports(arguments, "reports", "report_text")[: arguments.number]
    tokenizer = AutoTokenizer.from_pretrained(arguments.model, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32, trust_remote_code=False).eval()
    rows = model.get_input_embeddings().weight.shape[0]
    without = losses(model, tokenizer, reports, None)
    model.resize_token_embeddings(rows + TASK_TOKENS, mean_resizing=False)
    token = rows + TASK_TOKENS - 1
    result = {"without": {"mean": without.mean().item()}}
    for name, seed in [("mean", None), *((f"random, seed {seed}", seed) for seed in range(1, arguments.seeds + 1))]:
        set_rows(model, rows, seed)
        result[name] = summary(losses(model, tokenizer, reports, token), without)
        print(f"{name:16s} {result[name]}", flush=True)
    norms = model.get_input_embeddings().weight[:rows].norm(dim=1)
    content = {
        "version": __version__,
        "model": arguments.model.name,
        "reports": len(reports),
        "norm_of_embeddings": norms.mean().item(),
        "initializer_range": model.config.initializer_range,
        "nats_per_token": result,
    }
    arguments.output.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
