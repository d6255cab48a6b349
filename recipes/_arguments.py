"""Arguments of the recipes, in addition to those of TRL's trainers and models, and prompts of rows."""

import string
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from rrg_rewards.models.ct_chat.system_prompt import read_system_prompt
from rrg_rewards.rewards.deadline import REWARD_TIMEOUT, check_reward_timeout
from rrg_rewards.rewards.registry import RewardSetting, parse_reward
from rrg_rewards.schemas import get_label_schema
from rrg_rewards.utilities.names import unknown_name_message

# ruff: noqa: RUF009 (option makes a dataclass field)


ALGORITHMS = ("grpo", "rloo")


def option(default: Any, help: str) -> Any:  # noqa: A002 (as in argparse)
    """Return a dataclass field with a default (``MISSING`` for none) and the help text of its option."""
    options = {"default_factory": list} if default == [] else {"default": default}
    return field(metadata={"help": help}, **options)


@dataclass
class DataArguments:
    """Arguments that select the training and held-out rows and format their prompts."""

    dataset: str = option(MISSING, "CSV, JSONL or Parquet file, or the name of a data set on the Hub (split train).")
    input_column: str = option("findings", "Column that fills {input} in the prompt.")
    reference_column: str = option("reference", "Column of reference reports.")
    image_column: str | None = option(None, "Column of image paths, absolute or relative to the folder of the table.")
    label_columns: list[str] | None = option(None, "Columns of 0 and 1, or one column of lists; read as 'labels'.")
    label_schema: str | None = option(None, "Label schema, such as ct_rate, whose labels are the label columns.")
    system_prompt: str | None = option(
        None,
        "System message, or first line of a prompt without chat template; or the path of a .txt file of it, or of "
        "conversation.py of CT-CHAT's code.",
    )
    prompt_template: str = option("{input}", "Prompt; {input} is the input column, {NAME} is another column.")
    conversational: bool = option(True, "Format prompts with the model's chat template.")
    max_input_words: int | None = option(None, "Leave out rows whose input has more words.")
    heldout_file: str | None = option(None, "File of held-out rows, instead of a split.")
    heldout_fraction: float = option(0.1, "Fraction of rows that are held out from training.")
    heldout_seed: int = option(0, "Seed of the split.")
    heldout_rows: int = option(64, "Number of held-out rows to evaluate on; 0 for none.")

    @property
    def system_text(self) -> str | None:
        """The system prompt, read from its file if ``system_prompt`` is a path.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        path = Path(self.system_prompt or "")
        if path.suffix == ".py":
            return read_system_prompt(path)
        return path.read_text(encoding="utf-8") if path.suffix == ".txt" else self.system_prompt

    @property
    def target_column(self) -> str:
        """Column of the reports that the model learns from; rows with a blank report are left out."""
        return self.reference_column

    def __post_init__(self) -> None:
        if not 0 < self.heldout_fraction < 1:
            raise ValueError(f"heldout_fraction must lie in (0, 1), got {self.heldout_fraction}")
        if self.label_schema is not None and self.label_columns:
            raise ValueError("label_schema and label_columns both name the label columns; set one")
        if self.label_schema is not None:
            self.label_columns = list(get_label_schema(self.label_schema).labels)
        if self.image_column is not None and not self.conversational:
            raise ValueError("image_column needs conversational prompts: the chat template places the image")


@dataclass
class RewardArguments(DataArguments):
    """Arguments that all reinforcement learning recipes share."""

    rewards: list[str] = option([], "Names, or mappings with name, weight, as (logged name) and reward options.")
    heldout_batch_size: int = option(8, "Number of held-out reports that a process generates in a batch.")
    heldout_metrics: list[str] = option(
        [], "Further metrics of the held-out evaluation, in the same format as rewards; they are not trained on."
    )
    no_plugins: bool = option(
        False, "Refuse rewards and metrics by path (module:function), which run code of their own."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rewards:
            raise ValueError("rewards is empty; set at least one, as in 'rewards: [{name: crg}]'")
        settings = [*self.reward_settings(), *self.heldout_metric_settings()]
        names = [setting.logged_name for setting in settings]
        if len(set(names)) < len(names):
            raise ValueError(
                f"rewards and held-out metrics are logged as {', '.join(names)}; give each a different name by "
                "'as: NAME'"
            )

    def reward_settings(self) -> list[RewardSetting]:
        """Return the parsed rewards."""
        return [parse_reward(reward, self.reference_column) for reward in self.rewards]

    def heldout_metric_settings(self) -> list[RewardSetting]:
        """Return the parsed metrics of the held-out evaluation."""
        return [parse_reward(metric, self.reference_column) for metric in self.heldout_metrics]


@dataclass
class WatchArguments(RewardArguments):
    """Arguments of trainings in which rewards are watched for reward hacking and limited in time."""

    watch: bool = option(False, "Detect reward hacking and write reward_watch.html.")
    watch_stop: list[str] = option([], "Names of checks whose alarms stop the run, or all (default: none).")
    watch_metrics: list[str] = option([], "Metrics held out from training, in the same format as rewards.")
    watch_metric_every: int = option(1, "Compute held-out metrics every N steps.")
    watch_labeler: str = option("rules:ct_rate", "Labeler of the watch, such as rules:chexbert; empty for none.")
    watch_block_reports: int = option(64, "Number of completions that are pooled into one value.")
    watch_baseline_reports: int = option(320, "Number of first completions, which represent the initial policy.")
    watch_window_reports: int = option(320, "Number of latest completions, which are compared with the first.")
    watch_limits: list[str] = option([], "Limits of checks: CHECK.OPTION=VALUE, or CHECK=false to disable.")
    reward_timeout: float | None = option(
        REWARD_TIMEOUT,
        "Seconds after which a run ends with an error if the rewards of a step are missing in a process; null for no "
        "limit.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reward_timeout(self.reward_timeout)
        if not self.watch and (self.watch_stop or self.watch_metrics or self.watch_limits):
            raise ValueError("watch_stop, watch_metrics and watch_limits need a watch; set watch: true")
        self.watch_metric_settings()

    def watch_metric_settings(self) -> list[RewardSetting]:
        """Return the parsed held-out metrics."""
        return [parse_reward(metric, self.reference_column) for metric in self.watch_metrics]


@dataclass
class RecipeArguments(WatchArguments):
    """Arguments of GRPO and RLOO recipes."""

    algorithm: str = option("grpo", "grpo or rloo.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.algorithm not in ALGORITHMS:
            raise ValueError(unknown_name_message("algorithm", self.algorithm, ALGORITHMS))


@dataclass
class PPOArguments(RewardArguments):
    """Arguments of PPO recipes."""

    unscorable: float | None = option(None, "Reward of unscorable completions (default: raise an error).")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_column is not None:
            raise ValueError("image_column: PPO's trainer accepts text only; use grpo or rloo")


@dataclass
class SupervisedArguments(DataArguments):
    """Arguments of supervised fine-tuning recipes."""

    completion_column: str = option("", "Column of target reports (default: the reference column).")

    @property
    def target_column(self) -> str:
        """Column of the target reports."""
        return self.completion_column

    def __post_init__(self) -> None:
        super().__post_init__()
        self.completion_column = self.completion_column or self.reference_column


def prompt_placeholders(arguments: DataArguments) -> set[str]:
    """Return the names in braces in the prompt template."""
    return {key for _, key, _, _ in string.Formatter().parse(arguments.prompt_template) if key is not None}


def prompt_columns(arguments: DataArguments) -> set[str]:
    """Return the columns that the prompt template reads."""
    return {arguments.input_column if name == "input" else name for name in prompt_placeholders(arguments)}


def make_prompt(row: Mapping[str, Any], arguments: DataArguments, system: str | None) -> str | list[dict[str, str]]:
    """Return the prompt of a row: messages, or one text if prompts are not conversational.

    Args:
        row: Cells by column.
        arguments: The arguments of a recipe.
        system: System prompt, :attr:`DataArguments.system_text`.
    """
    text = arguments.prompt_template.format(**{"input": row.get(arguments.input_column), **row})
    if not arguments.conversational:
        return text if system is None else f"{system}\n{text}"
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": text}]
