"""What every recipe's training shares: processes that know of each other, loading, resuming, an orderly end."""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from weakref import ref

from accelerate.utils import broadcast_object_list, is_peft_model
from transformers import AutoProcessor
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from trl import get_quantization_config
from trl.trainer.utils import RepeatSampler, create_model_from_path

import rrg_rewards.models.ct_chat  # noqa: F401  (makes CT-CHAT known to the automatic classes)
from rrg_rewards.utilities.checks import check_model_source

__all__ = [
    "ResumableSampling",
    "check_processes",
    "checkpoint_to_resume",
    "finish",
    "launch",
    "load_policy",
    "prepare_policy",
]

logger = logging.getLogger(__name__)


def check_processes(training: Any) -> None:
    """Raise if processes were launched that do not know of each other.

    Raises:
        ValueError: With both numbers, and what to do.
    """
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if training.world_size != launched:
        raise ValueError(
            f"{launched} processes were launched, but each would train alone (world size {training.world_size}); "
            "on CPU set use_cpu: true and launch with torchrun"
        )


def checkpoint_to_resume(training: Any) -> str | None:
    """Checkpoint to resume from: a path, or with ``auto`` or ``true`` the last whole one of ``output_dir``, if any.

    Raises:
        ValueError: If the last one is of another number of processes.
    """
    wanted = training.resume_from_checkpoint
    if str(wanted).lower() in ("none", "false", ""):
        return None
    if str(wanted).lower() not in ("auto", "true"):
        return str(wanted)
    # The main process looks for all: on a shared file system two processes may see different files.
    whole: list[Any] = [_whole_checkpoints(Path(training.output_dir))] if training.process_index == 0 else [None]
    broadcast_object_list(whole)
    found = [path for path, processes in whole[0] if processes == training.world_size]
    if whole[0] and not found:
        path, processes = whole[0][0]
        raise ValueError(
            f"{path} is of {processes} processes and cannot be resumed with {training.world_size}; launch as many, or "
            "set another output_dir"
        )
    logger.info("resuming from %s", found[0] if found else "nothing: there is no whole checkpoint yet")
    return found[0] if found else None


def _whole_checkpoints(folder: Path) -> list[tuple[str, int]]:
    """Checkpoints that were written to their end, since a run may be killed while it writes; the last one first.

    Returns:
        Each one's path, and how many processes have left the state of their random numbers in it.
    """
    checkpoints = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()]
    whole = []
    for path in sorted(checkpoints, key=lambda path: int(path.name.removeprefix("checkpoint-")), reverse=True):
        processes = len(list(path.glob("rng_state*.pth")))
        # The main process writes its state last.
        if processes and _is_json(path / "trainer_state.json"):
            whole.append((str(path), processes))
        else:
            logger.warning("%s is not whole; looking for one before it", path)
    return whole


def _is_json(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False


def load_policy(training: Any, model: Any) -> dict[str, Any]:
    """Load the model that training starts from, and its processor, before the trainer is made.

    A trainer that loads the model itself draws an adapter's first weights from what loading has left of the random
    numbers: other ones under ZeRO-3 than without it. A trainer that is given the model draws them from the seed.

    Args:
        training: A TRL trainer's arguments; what they say of loading is used up.
        model: TRL's ``ModelConfig``.

    Returns:
        The trainer's arguments ``model``, ``processing_class`` and ``quantization_config``.
    """
    check_model_source(model.model_name_or_path)
    quantization = get_quantization_config(model)
    distributed = str(training.distributed_state.distributed_type.value)
    options = {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **({} if quantization is None else {"quantization_config": quantization}),
        # On several processes each has its own device; the default would spread one model over all.
        **({} if distributed in ("NO", "MULTI_CPU") else {"device_map": None}),
        **(training.model_init_kwargs or {}),
    }
    # The trainer reads it once more, for the reference model where there is one.
    training.model_init_kwargs = {"revision": options["revision"]} if options["revision"] != "main" else None
    return {
        "model": create_model_from_path(model.model_name_or_path, **options),
        "processing_class": AutoProcessor.from_pretrained(
            model.model_name_or_path, revision=options["revision"], truncation_side="left", padding_side="left"
        ),
        "quantization_config": quantization,
    }


def prepare_policy(trainer: Any) -> None:
    """Put a trainer's policy where and into the types in which it can be evaluated and trained.

    Without DeepSpeed, which keeps 32-bit copies of what it trains, what is trained whole beside an adapter must be of
    32 bits itself, as the adapter is: steps smaller than the last digit of bfloat16 would be lost. Under ZeRO-2 the
    trainer moves the policy to its device only when training starts.
    """
    if trainer.is_deepspeed_enabled:
        if not is_deepspeed_zero3_enabled() and not getattr(trainer.model, "is_quantized", False):
            trainer.model.to(trainer.accelerator.device)
    elif is_peft_model(trainer.model) and not trainer.is_fsdp_enabled:
        for weights in trainer.model.parameters():
            if weights.requires_grad:
                weights.data = weights.data.float()


class _OrderByEpoch(RepeatSampler):  # type: ignore[misc]
    """TRL's order of prompts, of which each epoch's depends on the seed and the epoch alone."""

    def __init__(self, sampler: RepeatSampler, trainer: Any) -> None:
        super().__init__(
            sampler.data_source,
            mini_repeat_count=sampler.mini_repeat_count,
            batch_size=sampler.batch_size,
            repeat_count=sampler.repeat_count,
            shuffle=sampler.shuffle,
            seed=sampler.seed,
        )
        # Weakly: the trainer holds what holds the sampler.
        self.trainer: Callable[[], Any] = ref(trainer)

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(self.seed + int(self.trainer().state.epoch or 0))
        yield from super().__iter__()


class ResumableSampling:
    """Mixed into TRL's online trainers: a run resumed after its first epoch sees the prompts it would have seen.

    TRL draws each epoch's order from a generator that starts anew with the process, so that a run resumed in its third
    epoch would go through the first one's order.
    """

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        return _OrderByEpoch(super()._get_train_sampler(dataset), self)  # type: ignore[misc]


def launch(
    parse: Callable[[Sequence[str]], Sequence[Any]], run: Callable[..., Any], argv: Sequence[str] | None
) -> None:
    """Run the recipe that a command line describes: by default that of the process."""
    # Before the first trainer: each reports its use to the Hub unless told not to.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    logging.basicConfig(level=logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING)
    finish(run(*parse(sys.argv[1:] if argv is None else argv)).accelerator)


def finish(accelerator: Any) -> None:
    """End trackers and the process group of a trainer to which no reference is left.

    The wrapped model goes first: it keeps the group alive, and where the group dies with it, holding the interpreter's
    lock, gloo's threads can wait for that lock for ever.
    """
    accelerator.free_memory()
    accelerator.end_training()
