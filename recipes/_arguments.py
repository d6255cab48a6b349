"""Arguments of the reinforcement-learning recipes, from a YAML file, the command line, or both."""

import argparse
import contextlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from rrg_rewards.recipes._catalog import recipe_path
from rrg_rewards.recipes._processes import start_deepspeed_on_cpu, with_configured_state
from rrg_rewards.recipes._rewards import RewardSetting, parse_reward
from rrg_rewards.schemas import get_label_schema
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message

# Before its names are imported: where it is missing, this says which extra installs it.
require("trl", extra="trl")

from transformers.hf_argparser import string_to_bool  # noqa: E402
from trl import GRPOConfig, ModelConfig, RLOOConfig, TrlParser  # noqa: E402

__all__ = ["ALGORITHMS", "DataArguments", "RecipeArguments", "parse", "validate"]

ALGORITHMS: dict[str, Any] = {"grpo": GRPOConfig, "rloo": RLOOConfig}


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
class RecipeArguments(DataArguments):
    """What a recipe of reinforcement learning sets besides the trainer's and the model's own arguments."""

    rewards: list[str] = field(
        default_factory=list,
        metadata={"help": "Rewards: names or mappings of name, weight, as (logged name) and the reward's options."},
    )
    algorithm: str = field(default="grpo", metadata={"help": "grpo or rloo."})
    heldout_batch_size: int = field(default=8, metadata={"help": "Held-out rows generated at once on a process."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.algorithm not in ALGORITHMS:
            raise ValueError(unknown_name_message("algorithm", self.algorithm, ALGORITHMS))
        if not self.rewards:
            raise ValueError("rewards is empty; set at least one, as in 'rewards: [{name: crg}]'")
        names = [setting.logged_name for setting in self.reward_settings()]
        if len(set(names)) < len(names):
            raise ValueError(f"rewards are logged as {', '.join(names)}; tell them apart by 'as: NAME'")

    def reward_settings(self) -> list[RewardSetting]:
        """The rewards, parsed and checked."""
        return [parse_reward(reward, self.reference_column) for reward in self.rewards]


def parse(argv: Sequence[str]) -> tuple[RecipeArguments, Any, Any]:
    """Parse a command line with ``--config``; what the command line sets takes precedence.

    With ``use_cpu`` and ``deepspeed`` both set, this process joins the run's group of processes.

    Args:
        argv: The command line; ``--config`` takes a YAML file, or the name of a recipe that comes with the package.

    Returns:
        The recipe's, the trainer's and the model's arguments.

    Raises:
        ValueError: For an unknown key, or a value that its owner rejects.
        ModuleNotFoundError: If ``deepspeed`` is set and DeepSpeed is not installed, naming the pip command.
    """
    argv = _with_config_file(argv)
    chosen = _chosen(argv)
    if chosen.get("deepspeed") and string_to_bool(chosen.get("use_cpu", False)):
        start_deepspeed_on_cpu()
        argv = [*argv, "--accelerator_config", with_configured_state(chosen.get("accelerator_config"))]
    return _parse(argv)


def _chosen(argv: Sequence[str]) -> dict[str, Any]:
    """The YAML file's keys, and those few of the command line that must be known before it is parsed."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config")
    first.add_argument("--algorithm")
    first.add_argument("--deepspeed")
    first.add_argument("--use_cpu", "--use-cpu", nargs="?", const=True)
    first.add_argument("--accelerator_config", "--accelerator-config")
    known, _ = first.parse_known_args(argv)
    config = {} if known.config is None else _read(Path(known.config))
    return {**config, **{key: value for key, value in vars(known).items() if value is not None and key != "config"}}


def _parse(argv: Sequence[str]) -> tuple[RecipeArguments, Any, Any]:
    chosen = _chosen(argv)
    algorithm = chosen.get("algorithm", "grpo")
    if algorithm not in ALGORITHMS:
        raise ValueError(unknown_name_message("algorithm", algorithm, ALGORITHMS))
    classes = (RecipeArguments, ALGORITHMS[algorithm], ModelConfig)
    _check_keys(chosen, classes)
    if chosen.get("deepspeed"):
        require("deepspeed", extra="deepspeed")
    recipe, training, model = TrlParser(classes).parse_args_and_config(argv)
    if training.reward_weights is not None:
        raise ValueError("reward_weights: give each reward its own 'weight' in place of it")
    if not model.model_name_or_path:
        raise ValueError("model_name_or_path: no model is set")
    if training.deepspeed:
        _check_zero3_saves(training.hf_deepspeed_config)
    return recipe, training, model


def _check_zero3_saves(settings: Any) -> None:
    key = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
    if settings.is_zero3() and not settings.get_value(key):
        raise ValueError(f"deepspeed: set {key} to true, or a run under ZeRO-3 ends without weights in output_dir")


def _with_config_file(argv: Sequence[str]) -> list[str]:
    """The command line with the file of a recipe in place of its name."""
    argv = list(argv)
    if "--config" in argv[:-1]:
        place = argv.index("--config") + 1
        if not Path(argv[place]).is_file():
            try:
                argv[place] = str(recipe_path(argv[place]))
            except ValueError as error:
                raise ValueError(f"--config {argv[place]}: no such file, and {error}") from error
    return argv


def validate(path: Path) -> None:
    """Parse a recipe as a run would, and leave the environment as it was.

    Raises:
        ValueError: Naming the key that is wrong.
    """
    message = io.StringIO()
    with _same_environment(), contextlib.redirect_stderr(message):
        try:
            # Not parse: what is only checked joins no group of processes.
            recipe, _, _ = _parse(["--config", str(path)])
        except SystemExit as error:
            raise ValueError(message.getvalue().strip().splitlines()[-1]) from error
    for setting in recipe.reward_settings():
        # Makes no model: backends load at their first use.
        setting.make()


def _read(path: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} must hold a mapping of keys to values")
    return config


def _check_keys(config: Mapping[str, Any], classes: Sequence[Any]) -> None:
    # Not the fields' own types: a parser that was made before has replaced them.
    known = {name: kind for cls in classes for name, kind in get_type_hints(cls).items()}
    for key, value in config.items():
        if key == "env":
            continue
        if key not in known:
            raise ValueError(unknown_name_message("key", key, known))
        # argparse converts texts only: a list where a number belongs would pass.
        if isinstance(value, list | dict) and not any(kind in str(known[key]) for kind in ("list", "dict")):
            raise ValueError(f"{key} must be {known[key]}, got {json.dumps(value)}")


@contextlib.contextmanager
def _same_environment() -> Iterator[None]:
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
