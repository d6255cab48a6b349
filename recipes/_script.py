"""Scripts of recipes: arguments from a YAML file and the command line, their check, and the run."""

import argparse
import contextlib
import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, get_type_hints

from rrg_rewards.data.tables.table import TableError
from rrg_rewards.recipes._arguments import RewardArguments, WatchArguments
from rrg_rewards.recipes._catalog import recipe_path
from rrg_rewards.utilities.checkpoints import CheckpointError
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.plugins import refuse_paths
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.utilities.texts import printable
from rrg_rewards.utilities.yaml_files import read_user_yaml

# Before the imports from TRL: if TRL is missing, this error names the extra that installs it.
require("trl", extra="trl")

import torch  # noqa: E402
from accelerate import PartialState  # noqa: E402
from transformers.hf_argparser import string_to_bool  # noqa: E402
from trl import ModelConfig, TrlParser  # noqa: E402

from rrg_rewards.recipes._reinforcement import make_watch, make_watch_metrics  # noqa: E402

# Environment variables that a launcher would set for a single process; port 0 selects any free port.
_SINGLE_PROCESS = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}


def _start_deepspeed_on_cpu() -> None:
    """Join a gloo process group under DeepSpeed; call this function before the training arguments are constructed.

    On CPU, the training arguments would otherwise start plain data-parallel processes and ignore ``deepspeed``. With
    :func:`_with_configured_state` they keep the existing process group. Without a launcher the group has one process.

    Raises:
        ModuleNotFoundError: If DeepSpeed is not installed; the message contains the pip command.
    """
    # Set before the import, because DeepSpeed selects its accelerator when it is imported.
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    deepspeed = require("deepspeed", extra="deepspeed")
    # Otherwise DeepSpeed spends over a minute compiling a shared-memory collective that gloo does not need.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if "LOCAL_RANK" not in os.environ:
        os.environ.update(_SINGLE_PROCESS)
    # PartialState reads these variables. `cpu=True` would disable DeepSpeed, which accelerate supports on GPUs only.
    temporary = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_TORCH_DEVICE": "cpu"}
    os.environ.update(temporary)
    try:
        PartialState(backend="gloo")
    finally:
        for name in temporary:
            del os.environ[name]


def _with_configured_state(accelerator_config: Mapping[str, Any] | str | None) -> str:
    """Return an ``accelerator_config`` as JSON that makes the trainer use the existing process group.

    Args:
        accelerator_config: Other settings: a mapping, JSON, or the path of a JSON file.

    Example:
        >>> _with_configured_state({"even_batches": False})
        '{"even_batches": false, "use_configured_state": true}'
    """
    if isinstance(accelerator_config, str):
        is_json = accelerator_config.lstrip().startswith("{")
        return _with_configured_state(
            json.loads(accelerator_config if is_json else Path(accelerator_config).read_text())
        )
    return json.dumps({**(accelerator_config or {}), "use_configured_state": True})


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    pass


@dataclass(frozen=True)
class RecipeScript:
    """A training script whose runs are described by YAML files.

    Args:
        run: Runs a recipe with the recipe's, the trainer's and the model's arguments.
        arguments: Class of the arguments that the script adds to those of TRL.
        trainer_arguments: Function that returns the class of the trainer's arguments for the keys of a recipe.
        description: Text before the options in the script's help.
    """

    run: Callable[..., Any]
    arguments: type
    trainer_arguments: Callable[[Mapping[str, Any]], type]
    description: str | None = None

    def main(self, argv: Sequence[str] | Mapping[str, Any] | None = None) -> None:
        """Run the recipe that a command line describes, that of the process by default, and end its processes.

        A mistake in the command line, the recipe's keys or the data ends the process with one line instead of a
        traceback.
        """
        trainer = self._start(sys.argv[1:] if argv is None else argv)
        accelerator = getattr(trainer, "accelerator", None)
        engine = getattr(getattr(trainer, "vllm_generation", None), "llm", None)
        # The accelerator's process group must outlive the model, which the trainer refers to.
        del trainer
        if accelerator is not None:
            finish(accelerator, engine)
        elif torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def _start(self, argv: Sequence[str] | Mapping[str, Any]) -> Any:
        # Set before a trainer is constructed, because trainers report their use to the Hub by default.
        for name in ("HF_HUB_DISABLE_TELEMETRY", "VLLM_NO_USAGE_STATS"):
            os.environ.setdefault(name, "1")
        logging.basicConfig(level=logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING)
        try:
            parsed = self.parse(argv)
        except (ValueError, OSError, ImportError) as error:
            _exit(str(error), 2)
        try:
            return self.run(*parsed)
        except FileNotFoundError as error:
            _exit(f"{error}; see the header of this recipe for how to make it", 1)
        except (TableError, CheckpointError, SettingError) as error:
            _exit(str(error), 1)

    def parse(self, argv: Sequence[str] | Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """Parse a command line. Its options override the keys of the file that ``--config`` names.

        If ``use_cpu`` and ``deepspeed`` are both set, this process joins the process group of the run.

        Args:
            argv: Command line, or its options by name. ``--config`` is a YAML file or the name of a recipe of this
                package.

        Returns:
            The recipe's, the trainer's and the model's arguments.

        Raises:
            ValueError: If a key is unknown or a value is invalid.
            ModuleNotFoundError: If a package is missing that the recipe needs; the message contains the pip command.
        """
        if isinstance(argv, Mapping):
            argv = [part for name, value in argv.items() for part in (f"--{name}", str(value))]
        argv = _with_config_file(argv)
        keys = _keys(argv)
        if keys.get("deepspeed") and string_to_bool(keys.get("use_cpu", False)):
            _start_deepspeed_on_cpu()
            argv = [*argv, "--accelerator_config", _with_configured_state(keys.get("accelerator_config"))]
        return self._parse(argv)

    def validate(self, path: Path) -> None:
        """Check the keys, values and rewards of a recipe, without joining a process group or changing the environment.

        Raises:
            ValueError: If a key is unknown or a value is invalid.
        """
        with _same_environment():
            # With use_cpu, a recipe for GPUs can be checked on a machine without a GPU.
            recipe = self._parse(["--config", str(path), "--use_cpu", "true"])[0]
            check_rewards(recipe)

    def _parse(self, argv: Sequence[str]) -> tuple[Any, Any, Any]:
        keys = _keys(argv)
        classes = (self.arguments, self.trainer_arguments(keys), ModelConfig)
        _check_keys(keys, classes)
        if deepspeed := keys.get("deepspeed"):
            require("deepspeed", extra="deepspeed")
            if isinstance(deepspeed, str) and deepspeed.endswith(".json") and not Path(deepspeed).is_file():
                raise ValueError(f"deepspeed: {deepspeed}: no such file")
        options = {"description": self.description, "formatter_class": _HelpFormatter, "allow_abbrev": False}
        recipe, training, model = _parsed(TrlParser(classes, **options), argv)
        # After the recipe's own variables (env) are set.
        if getattr(recipe, "no_plugins", False):
            refuse_paths()
        if not model.model_name_or_path:
            raise ValueError("model_name_or_path: no model is set")
        # The class that has this argument depends on the version of TRL.
        init_kwargs = getattr(training, "model_init_kwargs", None) or {}
        if init_kwargs.get("trust_remote_code") or any(
            getattr(arguments, "trust_remote_code", False) for arguments in (training, model)
        ):
            raise ValueError("trust_remote_code: code that comes with a model is never executed here")
        if training.deepspeed:
            _check_zero3_saves(training.hf_deepspeed_config)
        _check_vllm(recipe, training)
        return recipe, training, model


def check_rewards(recipe: Any) -> None:
    """Check the options of a recipe's rewards and watch by constructing them, without loading a model.

    Raises:
        ValueError: If an option is unknown or out of range.
    """
    if isinstance(recipe, RewardArguments):
        for setting in (*recipe.reward_settings(), *recipe.heldout_metric_settings()):
            setting.make()
    if isinstance(recipe, WatchArguments):
        make_watch(recipe, make_watch_metrics(recipe), None)


def _keys(argv: Sequence[str]) -> dict[str, Any]:
    """Return the keys of the YAML file with those of the options of a command line, whose values are texts."""
    keys: dict[str, Any] = {}
    name = ""
    for part in argv:
        if part.startswith("--"):
            name, equals, value = part[2:].partition("=")
            name = name.replace("-", "_")
            keys[name] = value if equals else True
        elif keys.get(name) is True:
            keys[name] = part
    config = keys.pop("config", None)
    return keys if config is None else {**read_user_yaml(config), **keys}


def _check_zero3_saves(settings: Any) -> None:
    key = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
    if settings.is_zero3() and not settings.get_value(key):
        raise ValueError(f"deepspeed: set {key} to true, or a run under ZeRO-3 ends without weights in output_dir")


def _check_vllm(recipe: Any, training: Any) -> None:
    # Arguments of supervised training have no such key.
    if getattr(training, "use_vllm", False) and training.vllm_mode == "server" and recipe.image_column is not None:
        raise ValueError(
            "vllm_mode: TRL sends a server images only, not the files of image_column; set vllm_mode: colocate"
        )


def _with_config_file(argv: Sequence[str]) -> list[str]:
    """Return the command line with a recipe's name replaced by the path of its file."""
    argv = [part for item in argv for part in (item.split("=", 1) if item.startswith("--config=") else [item])]
    if "--config" in argv[:-1]:
        index = argv.index("--config") + 1
        if not Path(argv[index]).is_file():
            try:
                argv[index] = str(recipe_path(argv[index]))
            except ValueError as error:
                raise ValueError(f"--config {argv[index]}: no such file, and {error}") from error
    return argv


def _check_keys(keys: Mapping[str, Any], classes: Sequence[Any]) -> None:
    # Field.type is not used here, because an earlier parser may have replaced it.
    known = {"env": dict, "help": bool} | {name: kind for cls in classes for name, kind in get_type_hints(cls).items()}
    for key, value in keys.items():
        if key not in known and key.removeprefix("no_") not in known:
            raise ValueError(unknown_name_message("key", key, known))
        # argparse converts only strings, and would accept a list instead of a number.
        if isinstance(value, list | dict) and not any(kind in str(known.get(key)) for kind in ("list", "dict")):
            raise ValueError(f"{key} must be {known[key]}, got {json.dumps(value)}")


def _parsed(parser: TrlParser, argv: Sequence[str]) -> tuple[Any, ...]:
    """Parse a command line; an error is the last line that the parser prints, without the usage of 200 options."""
    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message):
            parsed: tuple[Any, ...] = parser.parse_args_and_config(argv)
            return parsed
    except SystemExit as stop:
        if not stop.code:
            raise
        # Without the name of the program.
        raise ValueError(message.getvalue().strip().splitlines()[-1].rpartition(": error: ")[2]) from stop


@contextlib.contextmanager
def _same_environment() -> Iterator[None]:
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _exit(error: str, code: int) -> NoReturn:
    if os.environ.get("RANK", "0") == "0":
        sys.stderr.write(printable(f"{Path(sys.argv[0]).stem}: error: {error}\n"))
    sys.exit(code)


def finish(accelerator: Any, engine: Any = None) -> None:
    """End the trackers, the vLLM engine and the process group of a trainer that is no longer referenced.

    The wrapped model is freed first, because it refers to the process group. Otherwise the group could be destroyed
    together with the model while the interpreter lock is held, and gloo's threads could wait for that lock forever. The
    engine is shut down before the process group, because it destroys subgroups of it.

    Args:
        accelerator: The trainer's accelerator.
        engine: The trainer's ``vllm.LLM`` in this process, if it generates with vLLM.
    """
    accelerator.free_memory()
    if engine is not None:
        engine.llm_engine.engine_core.shutdown()
    accelerator.end_training()
