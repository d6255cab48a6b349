"""Train a local judge for CRIMSON on evaluations of another judge, configured by one YAML file.

``python -m rrg_rewards.recipes.crimson.distill --config FILE [--key value ...]``

The data set is a file that ``rrg-rewards judge label`` wrote. The prompt of a row is that of
``CrimsonTask(task_prompt, task_checks)``, and the completion is the evaluation in the form of this prompt. The keys of
``FILE`` are those of TRL's ``SFTConfig`` and ``ModelConfig``, and of :class:`DistillationArguments`.

The script writes to ``output_dir`` the model (with ``use_peft`` its adapter, which ``rrg-rewards convert lora``
merges), ``run.json`` (resolved configuration, versions, rows) and ``history.json`` (the trainer's log).
"""

import logging
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset
from trl import SFTConfig

from rrg_rewards.data.tables.table import TableError
from rrg_rewards.judges.base import AnswerError
from rrg_rewards.judges.evaluations import EvaluatedPair, read_evaluations
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.recipes._data import RecipeData
from rrg_rewards.recipes._script import RecipeScript
from rrg_rewards.recipes._training import check_processes
from rrg_rewards.recipes.sft import fine_tune

logger = logging.getLogger(__name__)

_UNANSWERABLE = "the prompt's form cannot contain the evaluation"


@dataclass
class DistillationArguments:
    """Arguments that select the evaluations and the prompt."""

    dataset: str = field(metadata={"help": "JSON lines file of rrg-rewards judge label."})
    heldout_file: str | None = field(
        default=None, metadata={"help": "File of held-out evaluations, whose loss eval_strategy computes."}
    )
    task_prompt: str = field(
        default="own",
        metadata={"help": "Prompt of CrimsonTask: own, guidelines, crimson-score or crimson-score-guidelines."},
    )
    task_checks: str | None = field(
        default=None,
        metadata={
            "help": "Checks of CrimsonTask, strict or published; evaluations that they reject are left out. Default: "
            "published for the prompts of crimson-score, else strict."
        },
    )
    max_rows: int | None = field(default=None, metadata={"help": "Train on this number of rows, drawn at random."})
    rows_seed: int = field(default=0, metadata={"help": "Seed of the draw of rows."})

    def __post_init__(self) -> None:
        self.task()

    def task(self) -> CrimsonTask:
        """Return the task that the judge is trained on."""
        return CrimsonTask(self.task_prompt, self.task_checks)  # type: ignore[arg-type]


def load_examples(path: str, task: CrimsonTask, dropped: Counter[str]) -> list[dict[str, Any]]:
    """Read evaluations, and return a prompt and a completion for each.

    A row is left out, and its reason counted in ``dropped``, if the form of the answer cannot contain its evaluation,
    or if the task would reject the answer: the judge must not learn answers that are failures.

    Raises:
        TableError: If no row is usable.
    """
    examples = []
    rows = read_evaluations(path)
    for row in rows:
        answer = task.answer(row.evaluation)
        reason = _UNANSWERABLE if answer is None else _rejection(task, row, answer)
        if reason is not None:
            dropped[reason] += 1
            continue
        examples.append({"prompt": task.messages(row.pair), "completion": [{"role": "assistant", "content": answer}]})
    if not examples:
        raise TableError(f"{path}: no usable row among {len(rows)}; left out: {dict(dropped)}")
    return examples


def _rejection(task: CrimsonTask, row: EvaluatedPair, answer: str) -> str | None:
    """Return why a judge with this prompt would fail with this answer, or ``None``."""
    if (refusal := task.refusal(row.pair)) is not None:
        return f"not sent: {refusal.kind}"
    try:
        task.parse(row.pair, answer)
    except AnswerError as error:
        return f"rejected answer: {error.kind}"
    return None


def _load(recipe: DistillationArguments) -> RecipeData:
    task, dropped = recipe.task(), Counter[str]()
    train = load_examples(recipe.dataset, task, dropped)
    if recipe.max_rows is not None and recipe.max_rows < len(train):
        train = random.Random(recipe.rows_seed).sample(train, recipe.max_rows)
    heldout = [] if recipe.heldout_file is None else load_examples(recipe.heldout_file, task, dropped)
    logger.info("%d rows to train on, %d held out; left out: %s", len(train), len(heldout), dict(dropped))
    return RecipeData(Dataset.from_list(train), Dataset.from_list(heldout), dict(dropped))


def run(recipe: DistillationArguments, training: Any, model: Any) -> Any:
    """Train. Every process must call this function.

    Args:
        recipe: The recipe's arguments.
        training: TRL's ``SFTConfig``.
        model: TRL's ``ModelConfig``.

    Returns:
        The trainer, after training.

    Raises:
        ValueError: If no row is usable, or the processes do not form one group.
    """
    check_processes(training)
    return fine_tune(recipe, training, model, _load(recipe))


_SCRIPT = RecipeScript(run, DistillationArguments, lambda _: SFTConfig, __doc__)
parse, validate, main = _SCRIPT.parse, _SCRIPT.validate, _SCRIPT.main


if __name__ == "__main__":
    main()
