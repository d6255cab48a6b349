"""Train a report generator with Lightning's ``PolicyModule``, configured by one YAML file.

``python -m rrg_rewards.recipes.policy --config FILE [--key value ...]``

``FILE`` is a YAML file, or the name of a recipe that ``rrg-rewards recipes ls`` lists. The keys are those of
:class:`rrg_rewards.recipes.policy.PolicyTraining`, of TRL's ``ModelConfig``, and of
:class:`rrg_rewards.recipes._arguments.WatchArguments`. The script reads the same tables, formats prompts in the same
way and writes the same files as :mod:`rrg_rewards.recipes.grpo`. It computes the prompt of several completions once,
which makes it faster for long prompts (``benchmarks/policy_throughput.py``).
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import LambdaCallback, ModelCheckpoint
from peft import get_peft_model
from torch.utils.data import DataLoader
from trl import get_peft_config

from rrg_rewards.callbacks import RewardWatchCallback
from rrg_rewards.data.samplers import UnpaddedDistributedSampler
from rrg_rewards.recipes._arguments import WatchArguments, option
from rrg_rewards.recipes._outputs import kept_card, write_run_file
from rrg_rewards.recipes._reinforcement import ReinforcementRun, make_watch
from rrg_rewards.recipes._script import RecipeScript
from rrg_rewards.recipes._training import load_pretrained, train_in_float32
from rrg_rewards.training import CausalLMGenerator, CTChatGenerator, PolicyDataModule, PolicyModule, PolicyOptions
from rrg_rewards.training.base import whole_weights
from rrg_rewards.training.checkpoints import is_complete
from rrg_rewards.training.policy.hf_generators import check_sampling
from rrg_rewards.utilities.files import abandoned_files, locked_folder
from rrg_rewards.utilities.processes import gather_objects, num_processes, process_index

logger = logging.getLogger(__name__)

_CHECKPOINTS = "checkpoints"


@dataclass
class PolicyTraining:
    """Arguments of ``PolicyModule``, of its generator and of Lightning's trainer."""

    output_dir: str = option(dataclasses.MISSING, "Folder of the results.")
    algorithm: str = option("grpo", "grpo, dr_grpo, rloo, scst or ppo.")
    loss_aggregation: str | None = option(None, "Aggregation of the loss (default: token_mean for grpo, as in DAPO).")
    clip_high: float | None = option(None, "Upper clipping of ratios, such as 0.28 (default: as the lower, 0.2).")
    scale: str | None = option(None, "Divisor of advantages: group, batch, none or gdpo (default: by algorithm).")
    mask_truncated: bool = option(False, "Leave completions without an end out of the loss.")
    max_draws: int | None = option(None, "Draws of a prompt until its rewards differ; then leave it out.")
    batch_size: int = option(4, "Number of prompts of a rollout, in each process.")
    num_generations: int = option(8, "Number of completions for each prompt.")
    minibatches: int = option(1, "Number of minibatches, and so of steps, of each pass over a rollout.")
    micro_batch_tokens: int = option(0, "Greatest number of tokens whose activations are kept; 0 for automatic.")
    epochs: int = option(1, "Number of passes over a rollout.")
    beta: float = option(0.0, "Weight of the divergence from the initial policy.")
    max_new_tokens: int = option(256, "Maximum length of a completion in tokens.")
    temperature: float = option(1.0, "Sampling temperature.")
    merge_adapters: bool = option(False, "Merge adapters into the weights during generation.")
    decoding: str = option("eager", "Steps of sampling: eager, graph, or auto (graph on a GPU if possible).")
    max_steps: int = option(100, "Number of optimiser steps.")
    learning_rate: float = option(1e-6, "Highest learning rate.")
    schedule: str = option("constant", "Learning rate schedule: linear, cosine or constant.")
    warmup_ratio: float = option(0.0, "Fraction of the steps in which the learning rate rises.")
    max_grad_norm: float = option(1.0, "Norm to which gradients are clipped.")
    precision: str = option("32-true", "Lightning's precision, such as bf16-mixed.")
    use_cpu: bool = option(False, "Train on CPU even if there is a GPU.")
    devices: int = option(1, "Number of processes, each with its device.")
    strategy: str = option("auto", "Lightning's strategy, such as ddp.")
    save_steps: int = option(25, "Save a checkpoint every N steps; 0 for none.")
    resume: bool = option(True, "Continue from the last checkpoint in output_dir.")
    seed: int = option(0, "Seed of the rows' order, of sampling and of new adapters.")

    # Keys of TRL's arguments that the parser reads.
    deepspeed = None

    @property
    def world_size(self) -> int:
        """Number of processes."""
        return num_processes()

    def __post_init__(self) -> None:
        self.module_options()
        check_sampling(self.max_new_tokens, self.temperature, self.decoding)

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments by name."""
        return dataclasses.asdict(self)

    def module_options(self) -> dict[str, Any]:
        """Return the options of ``PolicyModule``.

        Raises:
            ValueError: If a value is invalid, or has no effect with the algorithm.
        """
        named = {own.name for own in dataclasses.fields(PolicyOptions)}
        options = {name: value for name, value in self.to_dict().items() if name in named}
        aggregation = self.loss_aggregation or ("token_mean" if self.algorithm == "grpo" else None)
        loss = {"aggregation": aggregation, "clip_high": self.clip_high}
        options["loss"] = {name: value for name, value in loss.items() if value is not None}
        options["micro_batch_tokens"] = self.micro_batch_tokens or "auto"
        return vars(PolicyOptions(**options))


def last_checkpoint(training: PolicyTraining) -> Path | None:
    """Return the complete checkpoint with the most steps; ``None`` if there is none or the run must not be resumed."""
    written = list((Path(training.output_dir) / _CHECKPOINTS).glob("step=*.ckpt")) if training.resume else []
    for path in sorted(written, key=lambda path: int(path.stem.partition("=")[2].partition("-")[0]), reverse=True):
        if is_complete(path):
            logger.info("resuming from %s", path)
            return path
        logger.warning("%s is incomplete; looking for an earlier one", path)
    return None


class _History(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Records the logged values of each optimiser step, in the format of the Trainer of transformers."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Record the values of the step."""
        values = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.rows.append({"step": trainer.global_step, **values})

    def state_dict(self) -> dict[str, Any]:
        """Return the recorded values."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the recorded values."""
        self.rows = list(state_dict["rows"])


class _HeldoutReports(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Collects the reports of a validation, ordered by the column ``row``."""

    def __init__(self) -> None:
        self.found: dict[int, str] = {}

    @property
    def reports(self) -> list[str]:
        """The reports of the last validation."""
        return [self.found[row] for row in sorted(self.found)]

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Forget earlier reports."""
        self.found = {}

    def on_validation_batch_end(
        self,
        trainer: Trainer,  # noqa: ARG002
        pl_module: LightningModule,  # noqa: ARG002
        outputs: Mapping[str, Any],
        batch: Mapping[str, Sequence[Any]],
        *_: Any,
    ) -> None:
        """Record the reports of a batch."""
        self.found.update(zip(batch["row"], outputs["prediction"], strict=True))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Exchange reports with the other processes."""
        for part in gather_objects(self.found):
            self.found.update(part)


def make_generator(recipe: WatchArguments, training: PolicyTraining, model: Any) -> CausalLMGenerator:
    """Load the policy, with a new adapter if the arguments require one."""
    # Lightning moves the model to the device of its process.
    policy, processor = load_pretrained(model, recipe.conversational, device_map=None)
    adapter = get_peft_config(model)
    if adapter is not None:
        policy = get_peft_model(policy, adapter)
        train_in_float32(policy)
    generator = CausalLMGenerator if recipe.image_column is None else CTChatGenerator
    return generator(
        policy,
        processor,
        max_new_tokens=training.max_new_tokens,
        temperature=training.temperature,
        merge_adapters=training.merge_adapters,
        decoding=training.decoding,  # type: ignore[arg-type]  # checked by the generator
    )


def run(
    recipe: WatchArguments,
    training: PolicyTraining,
    model: Any,
    progress: Callable[[int, int], None] | None = None,
) -> PolicyModule:
    """Train and evaluate. Every process must call this function.

    Args:
        recipe: The recipe's arguments.
        training: Arguments of the training.
        model: TRL's ``ModelConfig``.
        progress: Function of the steps completed and added, which replaces Lightning's progress bars.

    Returns:
        The trained module.

    Raises:
        ValueError: If a column is missing, no row is usable, or a setting is invalid.
    """
    seed_everything(training.seed, verbose=False)
    prepared = ReinforcementRun.prepare(recipe, training.output_dir)
    module = PolicyModule(
        make_generator(recipe, training, model),
        prepared.rewards,
        weights=prepared.weights,
        **{
            **training.module_options(),
            "reference_column": recipe.reference_column,
            "reward_timeout": recipe.reward_timeout,
        },
    )
    history, reports = _History(), _HeldoutReports()
    watch = make_watch(recipe, prepared.watch_metrics, training.output_dir, RewardWatchCallback)
    trainer = _make_trainer(training, [history, reports, *([] if watch is None else [watch])], progress)
    checkpoint, collate = last_checkpoint(training), module.generator.collate
    for path in abandoned_files(Path(training.output_dir) / _CHECKPOINTS) if process_index() == 0 else ():
        logger.warning("%s was left by a run that was killed while it wrote a checkpoint; you can delete it", path)

    def train() -> None:
        rows = list(prepared.data.train)
        data = PolicyDataModule(rows, batch_size=training.batch_size, collate=collate, seed=training.seed)
        with locked_folder(training.output_dir, trainer.is_global_zero):
            trainer.fit(module, data, ckpt_path=checkpoint)
            _save(module.generator, training.output_dir)
            write_run_file(training.output_dir, "history.json", history.rows)

    def generate(rows: Any) -> list[str]:
        trainer.validate(module, _heldout_loader(rows, recipe.heldout_batch_size, collate), verbose=False)
        return reports.reports

    described = prepared.describe(training, model)
    prepared.train_and_evaluate(described, train, generate, training.algorithm.upper())
    return module


def _make_trainer(
    training: PolicyTraining, callbacks: Sequence[Any], progress: Callable[[int, int], None] | None
) -> Trainer:
    """Return Lightning's trainer."""
    others: list[Any] = []
    if progress is not None:
        others.append(
            LambdaCallback(
                on_train_start=lambda trainer, _: progress(0, trainer.max_steps - trainer.global_step),
                on_train_batch_end=lambda *_: progress(1, 0),
            )
        )
    if training.save_steps:
        folder = Path(training.output_dir) / _CHECKPOINTS
        others.append(ModelCheckpoint(folder, filename="{step}", every_n_train_steps=training.save_steps))
    return Trainer(
        accelerator="cpu" if training.use_cpu else "auto",
        devices=training.devices,
        strategy=training.strategy,
        precision=training.precision,
        max_steps=training.max_steps,
        max_epochs=-1,
        gradient_clip_val=training.max_grad_norm,
        callbacks=[*callbacks, *others],
        enable_checkpointing=bool(training.save_steps),
        enable_progress_bar=progress is None,
        enable_model_summary=False,
        logger=False,
    )


def _heldout_loader(heldout: Any, batch_size: int, collate: Callable[..., Any]) -> DataLoader[Any]:
    """Return batches of the held-out rows with their numbers, each row in one process."""
    rows = [{**row, "row": number} for number, row in enumerate(heldout)]
    return DataLoader(
        rows,  # type: ignore[arg-type]  # a sequence is a data set
        sampler=UnpaddedDistributedSampler(rows),
        batch_size=batch_size,
        collate_fn=collate,
    )


def _save(generator: CausalLMGenerator, output_dir: str) -> None:
    """Save the policy and its processor, on the main process. Every process must call this function."""
    with whole_weights(generator):
        if process_index() == 0:
            with kept_card(output_dir):
                generator.model.save_pretrained(output_dir)
                generator.processor.save_pretrained(output_dir)


_SCRIPT = RecipeScript(run, WatchArguments, lambda _: PolicyTraining, __doc__)
parse, validate, main = _SCRIPT.parse, _SCRIPT.validate, _SCRIPT.main


if __name__ == "__main__":
    main()
