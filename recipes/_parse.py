"""A recipe's arguments, from a YAML file, the command line, or both."""

import argparse
import contextlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from rrg_rewards.recipes._arguments import PPOArguments, RecipeArguments, RewardArguments, SupervisedArguments
from rrg_rewards.recipes._catalog import recipe_path
from rrg_rewards.recipes._processes import start_deepspeed_on_cpu, with_configured_state
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message

# Before its names are imported: where it is missing, this says which extra installs it.
require("trl", extra="trl")

from transformers.hf_argparser import string_to_bool  # noqa: E402
from trl import GRPOConfig, ModelConfig, RLOOConfig, SFTConfig, TrlParser  # noqa: E402

from rrg_rewards.recipes._watch import make_watch, make_watch_metrics  # noqa: E402

__all__ = [
    "command_line",
    "parse",
    "parse_ppo",
    "parse_supervised",
    "validate",
    "validate_ppo",
    "validate_supervised",
]

_ALGORITHMS = {"grpo": GRPOConfig, "rloo": RLOOConfig}
# The classes of a recipe's and of its trainer's arguments, by what the recipe says.
_ClassesOf = Callable[[Mapping[str, Any]], tuple[type, type]]


def command_line(options: Mapping[str, Any]) -> list[str]:
    """Options as a command line that :func:`parse` takes.

    Example:
        >>> command_line({"config": "ct_chat/mini_sft", "max_steps": 3})
        ['--config', 'ct_chat/mini_sft', '--max_steps', '3']
    """
    return [part for name, value in options.items() for part in (f"--{name}", str(value))]


def parse(argv: Sequence[str]) -> tuple[RecipeArguments, Any, Any]:
    """Parse a command line of reinforcement learning; what it sets takes precedence over its ``--config``.

    With ``use_cpu`` and ``deepspeed`` both set, this process joins the run's group of processes.

    Args:
        argv: The command line; ``--config`` takes a YAML file, or the name of a recipe that comes with the package.

    Returns:
        The recipe's, the trainer's and the model's arguments.

    Raises:
        ValueError: For an unknown key, or a value that its owner rejects.
        ModuleNotFoundError: If ``deepspeed`` is set and DeepSpeed is not installed, naming the pip command.
    """
    return _join_and_parse(argv, _reinforced)


def parse_supervised(argv: Sequence[str]) -> tuple[SupervisedArguments, Any, Any]:
    """Parse a command line of supervised fine-tuning, as :func:`parse`."""
    return _join_and_parse(argv, _supervised)


def parse_ppo(argv: Sequence[str]) -> tuple[PPOArguments, Any, Any]:
    """Parse a command line of PPO, as :func:`parse`.

    Raises:
        ModuleNotFoundError: If TRL has no PPO, naming the pip command.
    """
    return _join_and_parse(argv, _ppo)


def validate(path: Path) -> None:
    """Parse a recipe as a run would, and leave the environment as it was.

    Raises:
        ValueError: Naming the key that is wrong.
    """
    recipe = _parse_only(path, _reinforced)
    _make_rewards(recipe)
    make_watch(recipe, make_watch_metrics(recipe), None)


def validate_ppo(path: Path) -> None:
    """Parse a recipe of PPO, as :func:`validate`.

    Where TRL has no PPO, its trainer's keys are not known: what is the recipe's own is checked, and its rewards.
    """
    if _has_ppo():
        _make_rewards(_parse_only(path, _ppo))
        return
    own = {field.name for field in fields(PPOArguments)}
    _make_rewards(PPOArguments(**{key: value for key, value in _read(path).items() if key in own}))


def _make_rewards(recipe: RewardArguments) -> None:
    for setting in recipe.reward_settings():
        # Makes no model: backends load at their first use.
        setting.make()


def validate_supervised(path: Path) -> None:
    """Parse a recipe of supervised fine-tuning, as :func:`validate`."""
    _parse_only(path, _supervised)


def _reinforced(chosen: Mapping[str, Any]) -> tuple[type, type]:
    algorithm = chosen.get("algorithm", "grpo")
    if algorithm not in _ALGORITHMS:
        raise ValueError(unknown_name_message("algorithm", algorithm, _ALGORITHMS))
    if "reward_weights" in chosen:
        raise ValueError("reward_weights: give each reward its own 'weight' in place of it")
    return RecipeArguments, _ALGORITHMS[algorithm]


def _has_ppo() -> bool:
    # TRL 1.13 removed it.
    return find_spec("trl.experimental.ppo") is not None


def _ppo(chosen: Mapping[str, Any]) -> tuple[type, type]:  # noqa: ARG001
    if not _has_ppo():
        raise ModuleNotFoundError(
            "this version of TRL has no PPO, which 1.12 was the last to have: python -m pip install "
            "'rrg-rewards[ppo]', in an environment of its own, or train with GRPO or RLOO"
        )
    return PPOArguments, import_module("trl.experimental.ppo").PPOConfig


def _supervised(chosen: Mapping[str, Any]) -> tuple[type, type]:  # noqa: ARG001
    return SupervisedArguments, SFTConfig


def _join_and_parse(argv: Sequence[str], classes_of: _ClassesOf) -> tuple[Any, Any, Any]:
    argv = _with_config_file(argv)
    chosen = _chosen(argv)
    if chosen.get("deepspeed") and string_to_bool(chosen.get("use_cpu", False)):
        start_deepspeed_on_cpu()
        argv = [*argv, "--accelerator_config", with_configured_state(chosen.get("accelerator_config"))]
    return _parse(argv, classes_of)


def _parse_only(path: Path, classes_of: _ClassesOf) -> Any:
    """The recipe's own arguments; what is only checked joins no group of processes."""
    message = io.StringIO()
    with _same_environment(), contextlib.redirect_stderr(message):
        try:
            # On the CPU: a recipe for GPUs must be checkable where there is none.
            return _parse(["--config", str(path), "--use_cpu", "true"], classes_of)[0]
        except SystemExit as error:
            raise ValueError(message.getvalue().strip().splitlines()[-1]) from error


def _chosen(argv: Sequence[str]) -> dict[str, Any]:
    """The YAML file's keys, and those few of the command line that must be known before it is parsed."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config")
    first.add_argument("--algorithm")
    first.add_argument("--reward_weights", "--reward-weights", nargs="*")
    first.add_argument("--deepspeed")
    first.add_argument("--use_cpu", "--use-cpu", nargs="?", const=True)
    first.add_argument("--accelerator_config", "--accelerator-config")
    known, _ = first.parse_known_args(argv)
    config = {} if known.config is None else _read(Path(known.config))
    return {**config, **{key: value for key, value in vars(known).items() if value is not None and key != "config"}}


def _parse(argv: Sequence[str], classes_of: _ClassesOf) -> tuple[Any, Any, Any]:
    chosen = _chosen(argv)
    classes = (*classes_of(chosen), ModelConfig)
    _check_keys(chosen, classes)
    if deepspeed := chosen.get("deepspeed"):
        require("deepspeed", extra="deepspeed")
        if isinstance(deepspeed, str) and deepspeed.endswith(".json") and not Path(deepspeed).is_file():
            raise ValueError(f"deepspeed: {deepspeed}: no such file")
    recipe, training, model = TrlParser(classes, allow_abbrev=False).parse_args_and_config(argv)
    if not model.model_name_or_path:
        raise ValueError("model_name_or_path: no model is set")
    # TRL's versions differ in whose argument it is.
    if any(getattr(arguments, "trust_remote_code", False) for arguments in (training, model)):
        raise ValueError("trust_remote_code: code that comes with a model is never executed here")
    if training.deepspeed:
        _check_zero3_saves(training.hf_deepspeed_config)
    return recipe, training, model


def _check_zero3_saves(settings: Any) -> None:
    key = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
    if settings.is_zero3() and not settings.get_value(key):
        raise ValueError(f"deepspeed: set {key} to true, or a run under ZeRO-3 ends without weights in output_dir")


def _with_config_file(argv: Sequence[str]) -> list[str]:
    """The command line with the file of a recipe in place of its name."""
    argv = [part for item in argv for part in (item.split("=", 1) if item.startswith("--config=") else [item])]
    if "--config" in argv[:-1]:
        place = argv.index("--config") + 1
        if not Path(argv[place]).is_file():
            try:
                argv[place] = str(recipe_path(argv[place]))
            except ValueError as error:
                raise ValueError(f"--config {argv[place]}: no such file, and {error}") from error
    return argv


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
