"""Steps that all training scripts share: process checks, loading, training, complete checkpoints and resuming."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import ref

import torch
from accelerate.utils import broadcast_object_list, is_peft_model
from transformers import AutoProcessor, TrainerCallback
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import get_peft_config, get_quantization_config
from trl.trainer.utils import RepeatSampler, create_model_from_path

import rrg_rewards.models.ct_chat.model  # noqa: F401  (makes CT-CHAT known to the automatic classes)
from rrg_rewards.models.ct_chat.system_prompt import MISSING_SYSTEM_PROMPT
from rrg_rewards.recipes._outputs import kept_card, write_run_file
from rrg_rewards.utilities.checkpoints import check_optimizer_state
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.files import locked_folder
from rrg_rewards.utilities.processes import any_process
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.utilities.signals import handled_signals

logger = logging.getLogger(__name__)

# File in a checkpoint whose parts have all been written.
_COMPLETE = "complete"


class SaveOnTermination(TrainerCallback):  # type: ignore[misc]
    """After SIGTERM or SIGHUP, save a checkpoint at the end of the step and exit with code 143 or 129.

    Add this callback last: the process exits in ``on_save``, in which other callbacks complete the checkpoint. The
    processes of a run agree at each step, because the signal reaches them at different times.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._ends = False

    def receive(self, number: int, *_: Any) -> None:
        """Handle a signal. Further signals change nothing: a launcher and the system may both send one."""
        self.received = self.received or number

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Request a checkpoint if a process has received the signal."""
        self._ends = any_process(self.received is not None, args.device)
        if self._ends:
            control.should_save = True
            control.should_evaluate = False

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Exit after the requested checkpoint.

        Raises:
            SystemExit: If a process had received the signal at the end of the step.
        """
        if self._ends:
            # As a shell reports the end of a process by a signal.
            sys.exit(128 + (self.received or signal.SIGTERM))


@contextmanager
def saved_on_termination(trainer: Any) -> Iterator[None]:
    """Let SIGTERM or SIGHUP end the training inside the block with a checkpoint.

    Only a main thread can handle signals.

    Args:
        trainer: A ``transformers.Trainer`` with all its other callbacks.
    """
    callback = SaveOnTermination()
    trainer.add_callback(callback)
    try:
        with handled_signals(callback.receive):
            yield
    finally:
        trainer.remove_callback(callback)


def check_processes(training: Any) -> None:
    """Check that the launched processes form one group. On CPU, give their device a name that checkpoints load to.

    Raises:
        ValueError: If each process would train alone.
    """
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if training.world_size != launched:
        raise ValueError(
            f"{launched} processes were launched, but each would train alone (world size {training.world_size}); "
            "on CPU set use_cpu: true and launch with torchrun"
        )
    if training.device.type == "cpu":
        # accelerate numbers the CPUs of several processes, and a resumed trainer loads its optimizer to this device,
        # but torch.load accepts no number.
        training.distributed_state.device = vars(training)["_setup_devices"] = torch.device("cpu")


def _load_policy(training: Any, model: Any, is_conversational: bool) -> dict[str, Any]:
    """Load the initial model and its processor before the trainer is constructed.

    If the trainer loaded the model, the initial weights of an adapter would depend on the random numbers that loading
    consumes, and these differ under ZeRO-3. If the trainer receives a loaded model, they depend only on the seed.

    Args:
        training: Arguments of a TRL trainer; ``model_init_kwargs`` is applied here and then reset.
        model: TRL's ``ModelConfig``.
        is_conversational: Whether prompts are messages.

    Returns:
        Values for the trainer's arguments ``model``, ``processing_class`` and ``quantization_config``.
    """
    distributed = str(training.distributed_state.distributed_type.value)
    options = {
        # With several processes, the default device map would distribute one model over all devices.
        **({} if distributed in ("NO", "MULTI_CPU") else {"device_map": None}),
        **(training.model_init_kwargs or {}),
    }
    revision = options.get("revision", model.model_revision)
    # The trainer reads these options again if it loads a reference model.
    training.model_init_kwargs = {"revision": revision} if revision != "main" else None
    # TRL's supervised trainer reads a template from a file.
    needs_template = is_conversational and not getattr(training, "chat_template_path", None)
    policy, processor = load_pretrained(model, needs_template, **options)
    return {"model": policy, "processing_class": processor, "quantization_config": get_quantization_config(model)}


def load_pretrained(model: Any, needs_template: bool, **options: Any) -> tuple[Any, Any]:
    """Load a model and its processor.

    Args:
        model: TRL's ``ModelConfig``.
        needs_template: Whether prompts need a chat template.
        options: Options of ``from_pretrained`` that replace those of ``model``.

    Raises:
        SettingError: If the model has no chat template that prompts need.
    """
    check_model_source(model.model_name_or_path, "model_name_or_path")
    quantization = get_quantization_config(model)
    options = {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **({} if quantization is None else {"quantization_config": quantization}),
        **options,
        "trust_remote_code": False,
    }
    processor = AutoProcessor.from_pretrained(
        model.model_name_or_path,
        revision=options["revision"],
        truncation_side="left",
        padding_side="left",
        trust_remote_code=False,
    )
    if needs_template:
        check_chat_template(processor, model.model_name_or_path)
    return create_model_from_path(model.model_name_or_path, **options), processor


def check_chat_template(processor: Any, name: str) -> None:
    """Raise if a model that gets messages has no chat template.

    Raises:
        SettingError: If it has none.
    """
    if not getattr(processor, "chat_template", None):
        text = (
            f"the tokenizer of {name} has no chat template; take a model that has one, or set chat_template_path (sft, "
            "distill) or conversational: false (all but distill)"
        )
        raise SettingError("model_name_or_path", text)


def prepare_policy(trainer: Any) -> None:
    """Prepare a trainer's policy for held-out evaluation and training.

    Under ZeRO-2 the trainer moves the policy to its device only when training starts, but the evaluation before
    training needs it there. Without DeepSpeed, all trained weights are converted to 32 bits, because small updates are
    lost in bfloat16. This matters for modules that are trained together with an adapter. DeepSpeed keeps 32-bit copies.
    """
    if trainer.is_deepspeed_enabled:
        if not is_deepspeed_zero3_enabled() and not getattr(trainer.model, "is_quantized", False):
            trainer.model.to(trainer.accelerator.device)
    elif is_peft_model(trainer.model) and not trainer.is_fsdp_enabled:
        train_in_float32(trainer.model)


def train_in_float32(model: Any) -> None:
    """Convert the trained weights of a model with adapters to 32 bits."""
    for weights in model.parameters():
        if weights.requires_grad:
            weights.data = weights.data.float()


def make_trainer(cls: type, training: Any, model: Any, train: Any, heldout: Any, **options: Any) -> Any:
    """Load the policy and construct a TRL trainer for it.

    Args:
        cls: Class of the trainer.
        training: The trainer's arguments.
        model: TRL's ``ModelConfig``.
        train: Rows to train on.
        heldout: Rows that the trainer evaluates on if ``eval_strategy`` is set.
        options: Other arguments of the trainer.
    """
    if training.save_total_limit:
        # Transformers deletes former checkpoints before the callbacks have completed the new one.
        training.save_total_limit = max(training.save_total_limit, 2)
    trainer = cls(
        **_load_policy(training, model, not isinstance(train[0]["prompt"], str)),
        args=training,
        train_dataset=train,
        eval_dataset=heldout if training.eval_strategy != "no" else None,
        peft_config=get_peft_config(model),
        **options,
    )
    write_no_card(trainer)
    prepare_policy(trainer)
    _check_system_prompt(trainer.model.config, train)
    return trainer


def write_no_card(trainer: Any) -> None:
    """Disable TRL's model card, which each checkpoint would write over a card of the user."""
    trainer.create_model_card = lambda *_, **__: None


def _check_system_prompt(config: Any, rows: Any) -> None:
    """Warn if a model that was trained with a system prompt gets none."""
    prompt = rows[0]["prompt"]
    if getattr(config, "uses_system_prompt", False) and isinstance(prompt, list) and prompt[0]["role"] != "system":
        logger.warning(MISSING_SYSTEM_PROMPT)


def train_and_save(trainer: Any, checkpoint: str | None) -> None:
    """Train, and save the model and ``history.json``.

    SIGTERM or SIGHUP ends the training with a checkpoint.

    Args:
        trainer: A ``transformers.Trainer``.
        checkpoint: The checkpoint to resume from, as ``checkpoint_to_resume`` returns it.

    Raises:
        CheckpointError: If the optimiser of ``checkpoint`` does not belong to the run.
        SettingError: If another process trains in ``output_dir``.
        SystemExit: With code 143 after SIGTERM, and 129 after SIGHUP.
    """
    trainer.add_callback(_MarkComplete(trainer))
    folder = trainer.args.output_dir
    with locked_folder(folder, trainer.is_world_process_zero()):
        with saved_on_termination(trainer):
            trainer.train(resume_from_checkpoint=checkpoint)
        with kept_card(folder):
            trainer.save_model(folder)
        write_run_file(folder, "history.json", trainer.state.log_history)


class _OrderByEpoch(RepeatSampler):  # type: ignore[misc]
    """TRL's sampler of prompts, with an order that depends only on the seed and the epoch."""

    def __init__(self, sampler: RepeatSampler, trainer: Any) -> None:
        super().__init__(
            sampler.data_source,
            mini_repeat_count=sampler.mini_repeat_count,
            batch_size=sampler.batch_size,
            repeat_count=sampler.repeat_count,
            shuffle=sampler.shuffle,
            seed=sampler.seed,
        )
        # A weak reference, because the trainer refers to the sampler.
        self.trainer: Callable[[], Any] = ref(trainer)

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(self.seed + int(self.trainer().state.epoch or 0))
        yield from super().__iter__()


class ResumableSampling:
    """Mixin for TRL's online trainers that preserves the order of prompts when a run is resumed after its first epoch.

    TRL's random generator restarts with the process, therefore a run resumed in its third epoch would repeat the order
    of the first epoch.
    """

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        return _OrderByEpoch(super()._get_train_sampler(dataset), self)  # type: ignore[misc]


class CheckedOptimizer:
    """Mixin for trainers of transformers that checks the optimiser of a checkpoint before a run resumes from it."""

    def _load_optimizer_and_scheduler(self: Any, checkpoint: Any) -> None:
        file = None if checkpoint is None else Path(checkpoint) / "optimizer.pt"
        # DeepSpeed and FSDP have files and checks of their own.
        if file is not None and file.is_file() and not (self.is_deepspeed_enabled or self.is_fsdp_enabled):
            saved = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
            check_optimizer_state(saved, self.optimizer.param_groups, str(file))
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]


class _MarkComplete(TrainerCallback):  # type: ignore[misc]
    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Mark the checkpoint when all processes and callbacks have written their parts."""
        self.trainer.accelerator.wait_for_everyone()
        if args.should_save:
            (Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}" / _COMPLETE).touch()


def checkpoint_to_resume(training: Any) -> str | None:
    """Return the checkpoint to resume from, or ``None`` to start a new run.

    ``resume_from_checkpoint`` is a path, or ``auto`` or ``true`` for the last complete checkpoint in ``output_dir``.

    Raises:
        ValueError: If the complete checkpoints were written by a different number of processes.
    """
    wanted = training.resume_from_checkpoint
    if str(wanted).lower() in ("none", "false", ""):
        return None
    if str(wanted).lower() not in ("auto", "true"):
        return str(wanted)
    # Only the main process searches, because processes may see different files on a shared file system.
    complete: list[Any] = [_whole_checkpoints(Path(training.output_dir))] if training.process_index == 0 else [None]
    broadcast_object_list(complete)
    usable = [path for path, processes in complete[0] if processes == training.world_size]
    if complete[0] and not usable:
        path, processes = complete[0][0]
        raise ValueError(
            f"{path} was written by {processes} processes and cannot be resumed with {training.world_size}; launch "
            f"{processes} processes, or set another output_dir"
        )
    logger.info("resuming from %s", usable[0] if usable else "nothing: there is no complete checkpoint yet")
    return usable[0] if usable else None


def _whole_checkpoints(folder: Path) -> list[tuple[str, int]]:
    """Return the path and number of processes of each complete checkpoint, most recent first."""
    steps = {path: path.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-") for path in folder.glob("checkpoint-*")}
    whole = []
    for path in sorted((path for path, step in steps.items() if step.isdecimal()), key=lambda path: -int(steps[path])):
        if (path / _COMPLETE).exists():
            whole.append((str(path), len(list(path.glob("rng_state*.pth")))))
        else:
            logger.warning("%s is incomplete; looking for an earlier one", path)
    return whole
