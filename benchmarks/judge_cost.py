"""Count the tokens of each judge prompt, and measure what a server's prefix cache saves.

    python benchmarks/judge_cost.py --tokenizer FOLDER
    python benchmarks/judge_cost.py --price-input X --price-cached X --price-output X
    python benchmarks/judge_cost.py --server http://localhost:8000/v1 --server-model NAME
    python benchmarks/judge_cost.py --vllm PYTHON MODEL_FOLDER

**Prompts.** Each prompt of the package is built for real reports: RadPref (two candidates of a reference) and CT-RATE
(the generated report of the reference and those of the following references, as candidates). Columns: mean tokens of a
prompt; of these the prefix that all prompts have in common, and the one that the prompts of a reference have in common;
the part that a prefix cache without a limit of size takes from earlier requests, in the order in which the package
sends them; and the greatest number of tokens of an answer. Amounts of money are for 1,000 requests, with answers of the
greatest length. Without ``--tokenizer`` four characters count as a token. The prompts of ``crimson-score`` are left out
if that package is not installed.

**Server.** ``OpenAIJudge`` sends one task for pairs of CT-RATE, in its own order (pairs of a reference together) and in
a random order. Each run has another first line in its prompts, so that it finds nothing of earlier runs in the cache.
Answers are short and are not requested again, so that a model with random weights is enough. ``--vllm`` starts vLLM on
this machine without a prefix cache, with one, and with one of few tokens; the runs on the three take turns, and the
figures are those of the fastest run.
"""

import argparse
import csv
import importlib.util
import signal
import statistics
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from agreement import read_preferences
from benchmark_data import SHARED, model_name, need, write_results
from judge_server import compared, external_server, printed, vllm_servers
from timing import machine

from rrg_rewards.judges import JudgeTask, ReportPair
from rrg_rewards.judges.base import Message, in_request_order
from rrg_rewards.judges.server.requests import ServerSettings
from rrg_rewards.judges.server.usage import CHARACTERS_PER_TOKEN, token_cost
from rrg_rewards.judges.tasks.counting import CountingTask
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.judges.tasks.finebench import AnswerPairs, AnswersTask, GradesTask, ItemsTask, Questions
from rrg_rewards.judges.tasks.grading import GradingItem, GradingTask, quality_tiers
from rrg_rewards.labelers import JudgeLabeler
from rrg_rewards.questions import get_question_schema
from rrg_rewards.questions.engine import answer_items, build_items
from rrg_rewards.recipes import recipe_path
from rrg_rewards.version import __version__

# A conversation as a sequence whose beginnings can be compared: token ids, or characters.
Encoder = Callable[[list[Message]], Sequence[Any]]


class Reference(NamedTuple):
    """A reference report with its candidates and the patient's context."""

    text: str
    candidates: tuple[str, ...]
    context: dict[str, str] = {}  # noqa: RUF012 (never changed)

    def pairs(self) -> list[ReportPair]:
        """Return a pair for each candidate."""
        return [ReportPair(self.text, candidate, tuple(self.context.items())) for candidate in self.candidates]


class Prompt(NamedTuple):
    """A prompt with the items of its requests.

    Args:
        name: Name of the prompt.
        request: What a request is made for.
        task: The task.
        items: The items.
        most_tokens: Greatest number of tokens of an answer; ``None`` without a limit.
    """

    name: str
    request: str
    task: JudgeTask[Any, Any]
    items: list[Any]
    most_tokens: int | None


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of radpref and reg2rg_ct_rate")
    parser.add_argument("--references", type=int, default=50, help="references of each set whose prompts are counted")
    parser.add_argument("--candidates", type=int, default=4, help="candidates of a reference of CT-RATE")
    parser.add_argument("--tokenizer", type=Path, metavar="FOLDER", help="tokenizer of transformers")
    parser.add_argument("--price-input", type=float, help="price of a million prompt tokens")
    parser.add_argument("--price-cached", type=float, help="price of a million prompt tokens from the prefix cache")
    parser.add_argument("--price-output", type=float, help="price of a million tokens of answers")
    server = parser.add_mutually_exclusive_group()
    server.add_argument("--server", metavar="URL", help="OpenAI-compatible server on this machine")
    server.add_argument("--vllm", nargs=2, metavar=("PYTHON", "MODEL_FOLDER"), help="Python with vLLM, and a model")
    parser.add_argument("--server-model", metavar="NAME", help="name of the model on the server")
    parser.add_argument("--task", choices=("counting", "crimson"), default="counting", help="task that is sent")
    parser.add_argument("--server-references", type=int, default=8, help="references whose pairs are sent")
    parser.add_argument("--max-tokens", type=int, default=16, help="tokens of an answer of the server")
    parser.add_argument("--concurrency", type=int, default=4, help="requests at the same time")
    parser.add_argument("--repeats", type=int, default=2, help="runs on each server and order")
    parser.add_argument("--few-tokens", type=int, default=4096, help="tokens of vLLM's small cache")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="8 references, 3 for the server, one run, no small cache; writes only to --output",
    )
    parser.add_argument("--output", type=Path, help="file of the figures; default: benchmarks/results/judge_cost.json")
    arguments = parser.parse_args()
    if bool(arguments.server) != bool(arguments.server_model):
        parser.error("--server and --server-model belong together")
    if (arguments.price_input is None) != (arguments.price_output is None):
        parser.error("--price-input and --price-output belong together")
    if arguments.price_cached is not None and arguments.price_input is None:
        parser.error("--price-cached needs --price-input and --price-output")
    if arguments.quick:
        arguments.references = min(arguments.references, 8)
        arguments.server_references, arguments.repeats, arguments.few_tokens = 3, 1, 0
    return arguments


def read_references(arguments: argparse.Namespace) -> dict[str, list[Reference]]:
    """Read the references of both sets with their candidates."""
    pairs, table = arguments.data / "radpref" / "pairs.json", arguments.data / "reg2rg_ct_rate" / "pairs.csv"
    need(pairs, "cases of RadPref")
    need(table, "reference and generated reports of CT-RATE, from Reg2RG's results")
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {
        "RadPref": [Reference(case.reference, case.candidates, case.context) for case in read_preferences(pairs)],
        "CT-RATE": [
            Reference(
                row["reference"],
                tuple(islice(dict.fromkeys(one["prediction"] for one in rows[number:] + rows), arguments.candidates)),
            )
            for number, row in enumerate(rows[: arguments.references])
        ],
    }
    return {name: references[: arguments.references] for name, references in found.items()}


def default_limit() -> int | None:
    """Return the greatest number of tokens of an answer without a setting."""
    return ServerSettings("model").max_tokens


def recipe_limit(recipe: str) -> int | None:
    """Return the greatest number of tokens of an answer in a judge's recipe."""
    settings = yaml.safe_load(recipe_path(recipe).read_text(encoding="utf-8"))
    limit: int | None = settings.get("max_tokens", default_limit())
    return limit


def report_prompts(references: list[Reference]) -> Iterator[Prompt]:
    """Return the prompts that reports of any kind have."""
    pairs, limit = [pair for reference in references for pair in reference.pairs()], default_limit()
    for prompt in ("own", "guidelines"):
        yield Prompt(f"CRIMSON {prompt}", "pair", CrimsonTask(prompt), pairs, limit)
    if importlib.util.find_spec("CRIMSON"):
        recipes = {"crimson-score": "crimson_medgemma_vllm", "crimson-score-guidelines": "crimson_gpt5_2"}
        for published, recipe in recipes.items():
            task: JudgeTask[Any, Any] = CrimsonTask(published)  # type: ignore[arg-type]
            yield Prompt(f"CRIMSON {published}", "pair", task, pairs, recipe_limit(f"judges/{recipe}"))
    yield Prompt("error counts", "pair", CountingTask(), pairs, limit)
    for name in ("radcliq", "mrscore"):
        grading = GradingTask(name)
        tiers = quality_tiers(grading.system)
        items = [GradingItem(reference.text, tier) for reference in references for tier in tiers]
        yield Prompt(f"ER2Score {name}", "reference and tier", grading, items, limit)


def ct_prompts(references: list[Reference]) -> Iterator[Prompt]:
    """Return the prompts of labels and questions on chest CT. The finding engine makes the questions and answers."""
    limit, schema = default_limit(), get_question_schema("ct_rate")
    reports = list(dict.fromkeys(candidate for reference in references for candidate in reference.candidates))
    yield Prompt("labels ct_rate", "report", JudgeLabeler("ct_rate", "openai:any").task, reports, limit)
    texts = [reference.text for reference in references]
    yield Prompt("CT-FineBench questions", "reference", ItemsTask(schema), texts, limit)
    asked, graded = [], []
    for reference in references:
        items = tuple(build_items(reference.text))
        for candidate in reference.candidates if items else ():
            asked.append(Questions(candidate, items))
            answers = zip(items, answer_items(candidate, items), strict=True)
            stated = [(item, answer) for item, answer in answers if answer and item.answer_type != "existence"]
            if stated:
                graded.append(AnswerPairs(*map(tuple, zip(*stated, strict=True))))  # type: ignore[arg-type]
    yield Prompt("CT-FineBench answers", "pair with questions", AnswersTask(), asked, limit)
    yield Prompt("CT-FineBench grades", "pair with answers", GradesTask(), graded, limit)


def make_encoder(folder: Path | None) -> tuple[Encoder, int]:
    """Return a function that encodes a conversation, and the number of its elements in a token."""
    if folder is None:
        return lambda messages: "".join(message["content"] for message in messages), CHARACTERS_PER_TOKEN
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if tokenizer.chat_template is None:
        return lambda messages: tokenizer("\n\n".join(message["content"] for message in messages)).input_ids, 1
    return lambda messages: tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False), 1


def common_length(sequences: Iterable[Any]) -> int:
    """Return the length of the longest beginning that all sequences have.

    Example:
        >>> common_length([[1, 2, 3], [1, 2, 4]])
        2
    """
    # Whatever the least and the greatest begin with, those between them begin with as well.
    ordered = sorted(sequences)
    first, last = ordered[0], ordered[-1]
    return next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))


def count(prompt: Prompt, encode: Encoder, per_token: int) -> dict[str, Any]:
    """Count the tokens of a prompt's requests."""
    items = in_request_order(prompt.task, dict.fromkeys(prompt.items))
    encoded = [encode(prompt.task.messages(item)) for item in items]
    groups: dict[Hashable, list[Sequence[Any]]] = {}
    for item, sequence in zip(items, encoded, strict=True):
        groups.setdefault(prompt.task.shared_part(item), []).append(sequence)
    # None means that requests share no more than the instructions.
    groups.pop(None, None)
    of_reference = [common_length(group) for group in groups.values() if len(group) > 1]
    taken = [common_length(two) for two in pairwise(encoded)]
    mean = statistics.mean(map(len, encoded)) / per_token
    cached = sum(taken) / len(encoded) / per_token
    return {
        "request": prompt.request,
        "requests": len(encoded),
        "prompt_tokens": round(mean, 1),
        "shared_by_all": round(common_length(encoded) / per_token, 1),
        "shared_by_reference": round(statistics.mean(of_reference) / per_token, 1) if of_reference else None,
        "cacheable_tokens": round(cached, 1),
        "cacheable_share": round(cached / mean, 3),
        "most_answer_tokens": prompt.most_tokens,
        "prompt_tokens_per_1000": round(1000 * mean),
        "most_answer_tokens_per_1000": None if prompt.most_tokens is None else 1000 * prompt.most_tokens,
    }


def money(row: dict[str, Any], arguments: argparse.Namespace) -> dict[str, float | None]:
    """Return the cost of 1,000 requests; nothing without prices."""
    if arguments.price_input is None:
        return {}
    price = arguments.price_input, arguments.price_output
    tokens, cached = row["prompt_tokens_per_1000"], round(1000 * row["cacheable_tokens"])
    most = row["most_answer_tokens_per_1000"]
    amounts = {"prompts": token_cost(tokens, 0, 0, price)}
    if arguments.price_cached is not None:
        amounts["prompts_cached"] = token_cost(tokens, 0, cached, price, arguments.price_cached)
    return {
        **{f"cost_{name}": round(amount, 4) for name, amount in amounts.items()},
        "cost_most_answers": None if most is None else round(token_cost(0, most, 0, price), 4),
    }


def print_prompts(rows: dict[str, dict[str, Any]]) -> None:
    """Print the table of one set."""
    for name, row in rows.items():
        shown = {key: "-" if value is None else value for key, value in row.items()}
        costs = "".join(f"  {key.replace('_', ' ')} {value}" for key, value in shown.items() if key.startswith("cost"))
        print(
            f"  {name:32}{shown['prompt_tokens']:>8} tokens; shared by all {shown['shared_by_all']:>7}, by reference "
            f"{shown['shared_by_reference']:>7}; cacheable {row['cacheable_share']:.0%}; answer at most "
            f"{shown['most_answer_tokens']:>5}; 1,000 requests {row['prompt_tokens_per_1000']:>10,}{costs}  "
            f"({row['requests']} of: {row['request']})"
        )


def count_prompts(arguments: argparse.Namespace, sets: dict[str, list[Reference]]) -> dict[str, Any]:
    """Count the tokens of all prompts, and print them."""
    encode, per_token = make_encoder(arguments.tokenizer)
    counted_with = f"{CHARACTERS_PER_TOKEN} characters a token"
    if arguments.tokenizer is not None:
        counted_with = f"the tokenizer {model_name(arguments.tokenizer)}"
    print(f"tokens counted with {counted_with}")
    if not importlib.util.find_spec("CRIMSON"):
        print("crimson-score is not installed; its prompts are left out")
    figures: dict[str, Any] = {}
    for name, references in sets.items():
        prompts = [*report_prompts(references), *(ct_prompts(references) if name == "CT-RATE" else ())]
        figures[name] = {prompt.name: count(prompt, encode, per_token) for prompt in prompts}
        for row in figures[name].values():
            row.update(money(row, arguments))
        print(f"{name}, {len(references)} references, {len(references[0].candidates)} candidates each")
        print_prompts(figures[name])
    return {"counted_with": counted_with, "sets": figures}


def measure_server(arguments: argparse.Namespace, references: list[Reference]) -> dict[str, Any]:
    """Send the pairs of some references to the servers, and print the figures."""
    pairs = [pair for reference in references[: arguments.server_references] for pair in reference.pairs()]
    if arguments.server:
        servers = external_server(arguments.server, arguments.server_model)
    else:
        servers = vllm_servers(*arguments.vllm, arguments.few_tokens)
    limits = {"max_tokens": arguments.max_tokens, "concurrency": arguments.concurrency}
    with servers as sides:
        figures = compared(sides, arguments.task, pairs, arguments.repeats, limits)
    printed(figures)
    described = {"references": arguments.server_references, "pairs": len(pairs), "task": arguments.task, **limits}
    model = model_name(arguments.server_model or arguments.vllm[1])
    return {**described, "repeats": arguments.repeats, "model": model, **figures}


def main() -> None:
    """Count, measure, print and write."""
    arguments = parse_arguments()
    # End the servers also if this process is terminated.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sets = read_references(arguments)
    result: dict[str, Any] = {"machine": machine(), "rrg_rewards": __version__}
    result["prompts"] = count_prompts(arguments, sets)
    if arguments.server or arguments.vllm:
        result["server"] = measure_server(arguments, sets["CT-RATE"])
    write_results(result, arguments, "judge_cost")


if __name__ == "__main__":
    main()
