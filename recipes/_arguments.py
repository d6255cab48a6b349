"""Arguments of the recipes, besides those of TRL's trainers and models."""

from dataclasses import dataclass, field

from rrg_rewards.recipes._rewards import RewardSetting, parse_reward
from rrg_rewards.schemas import get_label_schema
from rrg_rewards.utilities.names import unknown_name_message

__all__ = [
    "ALGORITHMS",
    "DataArguments",
    "PPOArguments",
    "RecipeArguments",
    "RewardArguments",
    "SupervisedArguments",
    "WatchArguments",
]

ALGORITHMS = ("grpo", "rloo")


@dataclass
class DataArguments:
    """Which rows a recipe trains on and which it holds out, and how they become prompts."""

    dataset: str = field(metadata={"help": "CSV, JSONL or Parquet file, or the name of a data set on the Hub."})
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration of a data set on the Hub."})
    dataset_split: str = field(default="train", metadata={"help": "Split of a data set on the Hub."})
    input_column: str = field(default="findings", metadata={"help": "Column that the prompt is made of."})
    reference_column: str = field(default="reference", metadata={"help": "Column of reference reports."})
    image_column: str | None = field(
        default=None, metadata={"help": "Column of image paths, which may be relative to the table's folder."}
    )
    label_columns: list[str] | None = field(
        default=None, metadata={"help": "0/1 columns, or one column of lists, gathered into the column 'labels'."}
    )
    label_schema: str | None = field(
        default=None, metadata={"help": "Label schema whose label names are the label columns, such as ct_rate."}
    )
    system_prompt: str | None = field(default=None, metadata={"help": "System message, or head of a plain prompt."})
    prompt_template: str = field(
        default="{input}", metadata={"help": "Prompt, with {input} for the input column and any other {column}."}
    )
    conversational: bool = field(default=True, metadata={"help": "Prompt by the model's chat template."})
    max_input_words: int | None = field(default=None, metadata={"help": "Leave out rows with longer inputs."})
    heldout_file: str | None = field(default=None, metadata={"help": "File of held-out rows, in place of a split."})
    heldout_fraction: float = field(default=0.1, metadata={"help": "Fraction of rows held out from training."})
    heldout_seed: int = field(default=0, metadata={"help": "Seed of the split."})
    heldout_rows: int = field(default=64, metadata={"help": "Held-out rows to evaluate on; 0 for none."})

    @property
    def target_column(self) -> str:
        """Column of the reports that are learned from; rows where it is blank are left out."""
        return self.reference_column

    def __post_init__(self) -> None:
        if not 0 < self.heldout_fraction < 1:
            raise ValueError(f"heldout_fraction must lie in (0, 1), got {self.heldout_fraction}")
        if self.label_schema is not None and self.label_columns:
            raise ValueError("label_schema and label_columns both name the label columns; set one")
        if self.label_schema is not None:
            self.label_columns = list(get_label_schema(self.label_schema).labels)
        if self.image_column is not None and not self.conversational:
            raise ValueError("image_column needs conversational prompts: the chat template says where the image stands")


@dataclass
class RewardArguments(DataArguments):
    """What every recipe of reinforcement learning sets besides the trainer's and the model's own arguments."""

    rewards: list[str] = field(
        default_factory=list,
        metadata={"help": "Rewards: names or mappings of name, weight, as (logged name) and the reward's options."},
    )
    heldout_batch_size: int = field(default=8, metadata={"help": "Held-out rows generated at once on a process."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rewards:
            raise ValueError("rewards is empty; set at least one, as in 'rewards: [{name: crg}]'")
        names = [setting.logged_name for setting in self.reward_settings()]
        if len(set(names)) < len(names):
            raise ValueError(f"rewards are logged as {', '.join(names)}; tell them apart by 'as: NAME'")

    def reward_settings(self) -> list[RewardSetting]:
        """The rewards, parsed and checked."""
        return [parse_reward(reward, self.reference_column) for reward in self.rewards]


@dataclass
class WatchArguments(RewardArguments):
    """Whether and how a recipe watches for reward hacking."""

    watch: bool = field(default=False, metadata={"help": "Watch for reward hacking; writes reward_watch.html."})
    watch_stop: list[str] = field(
        default_factory=list, metadata={"help": "Checks whose alarms stop the run, or all; default: none."}
    )
    watch_metrics: list[str] = field(
        default_factory=list, metadata={"help": "Held-out metrics, as rewards are given; they are never trained."}
    )
    watch_metric_every: int = field(default=1, metadata={"help": "Score held-out metrics on every so many steps."})
    watch_labeler: str = field(
        default="rules:ct_rate", metadata={"help": "Labeler of the watch, as rules:chexbert; empty for none."}
    )
    watch_block_reports: int = field(default=64, metadata={"help": "Completions that are pooled into one number."})
    watch_baseline_reports: int = field(default=320, metadata={"help": "First completions: the starting policy."})
    watch_window_reports: int = field(default=320, metadata={"help": "Last completions, compared with the first."})
    watch_limits: list[str] = field(
        default_factory=list, metadata={"help": "Limits of checks: CHECK.OPTION=VALUE, or CHECK=false for none."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.watch and (self.watch_stop or self.watch_metrics or self.watch_limits):
            raise ValueError("watch_stop, watch_metrics and watch_limits are of a watch; set watch: true")
        self.watch_metric_settings()

    def watch_metric_settings(self) -> list[RewardSetting]:
        """The held-out metrics, parsed and checked."""
        return [parse_reward(metric, self.reference_column) for metric in self.watch_metrics]


@dataclass
class RecipeArguments(WatchArguments):
    """What a recipe of GRPO or RLOO sets besides the trainer's and the model's own arguments."""

    algorithm: str = field(default="grpo", metadata={"help": "grpo or rloo."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.algorithm not in ALGORITHMS:
            raise ValueError(unknown_name_message("algorithm", self.algorithm, ALGORITHMS))


@dataclass
class PPOArguments(RewardArguments):
    """What a recipe of PPO sets besides the trainer's and the model's own arguments."""

    unscorable: float | None = field(
        default=None, metadata={"help": "Reward of completions that cannot be scored; default: they end the run."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_column is not None:
            raise ValueError("image_column: PPO's trainer takes text alone; use grpo or rloo")


@dataclass
class SupervisedArguments(DataArguments):
    """What a recipe of supervised fine-tuning sets besides the trainer's and the model's own arguments."""

    completion_column: str = field(
        default="", metadata={"help": "Column of what to write; default: the reference column."}
    )

    @property
    def target_column(self) -> str:
        """Column of what is imitated."""
        return self.completion_column

    def __post_init__(self) -> None:
        super().__post_init__()
        self.completion_column = self.completion_column or self.reference_column
