"""Training of ER²Score, which learns a reward for each criterion from pairs of accepted and rejected reports."""

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rrg_rewards.functional.er2score import MarginRewardEnforcementLoss, margin_reward_enforcement_terms
from rrg_rewards.metrics.preference_accuracy import GradedRewards, PreferenceAccuracy, preference_pairs
from rrg_rewards.models.er2score.model import ER2ScoreModel
from rrg_rewards.training.base import OptimizerSettings, ScheduleName, parameter_groups
from rrg_rewards.training.metrics.base import LearnedMetricModule

_INPUTS = ("prefix_ids", "prefix_mask", "suffix_ids", "suffix_mask", "owner")


class ER2ScoreModule(LearnedMetricModule):
    r"""Trains :class:`~rrg_rewards.models.ER2ScoreModel` by margin reward enforcement on pairs of graded reports.

    Each validation logs, over all processes, ``train/loss``, ``train/individual`` and ``train/total``, the means of the
    loss terms over the pairs since the previous validation; the same losses under ``val/``; ``val/accuracy``, the
    fraction of pairs of the same reference that the predicted totals order correctly; ``val/accuracy_<criterion>`` over
    the pairs that differ in the criterion; ``val/kendall`` and ``val/spearman`` of predicted and true totals; and
    ``val/<source>/accuracy`` for each source. ``trainer.test`` logs the same values under ``test/`` and stores rewards
    and contributions by source in ``test_rewards``.

    As in the paper, the loss is the sum over the pairs of a step; it does not depend on the number of processes. The
    loss depends only on differences of rewards and therefore leaves one constant per criterion undetermined. With
    ``calibrate``, which is not part of the paper, each validation sets these constants so that the mean reward of each
    criterion equals its mean contribution. Checkpoints contain the constants. :meth:`export` adds them to the biases of
    the head, so exported sub-scores are on the scale of the scoring system.

    The paper reports neither learning rate nor schedule. Its Llama-3-8B has 6.8M trained weights, which fits two
    settings: rank 16 on ``q_proj`` and ``v_proj``, and rank 8 on ``q_proj``, ``k_proj``, ``v_proj`` and ``o_proj``
    (6,815,744 weights each, without the head).

    Args:
        backbone: Folder or Hub id of the pretrained language model.
        revision: Revision of a Hub id.
        scoring_system: Name or YAML file of a scoring system.
        num_layers: Number of decoder layers to keep, counted from the first. Default: all.
        lora: Fields of PEFT's ``LoraConfig``. Default: no adapter; all weights are trained.
        quantization: ``"4bit"`` for QLoRA, an adapter on a backbone with frozen 4-bit weights.
        backbone_dtype: Data type of the backbone's weights. ``bfloat16`` halves the memory of a frozen backbone. For
            trained weights, use ``float32`` and set ``trainer.precision`` instead.
        train_embeddings: Whether to train the token embeddings if ``lora`` is not set. They are a large fraction of the
            weights of a small model and seldom affect the result.
        gradient_checkpointing: Whether to recompute activations instead of storing them. The text that candidates of a
            reference share is then read once for each candidate.
        prompt: Text of the prompt template. Default: the template of the package.
        max_length: Maximum number of tokens of a prompt.
        lam: Weight of the loss of the total.
        c: Maximum difference of the rewards of equal scores.
        individual: Whether to minimise the loss of the criteria; ``False`` in an ablation of the paper.
        total: Whether to minimise the loss of the total; ``False`` in another ablation of the paper.
        calibrate: Whether to calibrate the rewards on the validation data.
        learning_rate: Highest learning rate.
        head_learning_rate: Highest learning rate of the newly initialised head. Default: ``learning_rate``.
        weight_decay: Weight decay. Biases and norms are not decayed.
        warmup_ratio: Fraction of the steps in which the learning rate rises.
        schedule: ``linear`` or ``cosine``, which fall to 0 at the last step, or ``constant``.
        seed: Seed of the initial weights of the head and of dropout.

    Raises:
        ValueError: If an argument is out of range, both loss terms are disabled, or ``quantization`` is set without
            ``lora``.

    Example:
        >>> ER2ScoreModule("meta-llama/Meta-Llama-3-8B", lora={"r": 16}).loss_settings["lam"]
        1.0
    """

    monitor = "accuracy"
    source_monitor = "{source}/accuracy"

    offset: Tensor

    def __init__(
        self,
        backbone: str,
        *,
        revision: str | None = None,
        scoring_system: str = "radcliq",
        num_layers: int | None = None,
        lora: dict[str, Any] | None = None,
        quantization: Literal["4bit"] | None = None,
        backbone_dtype: Literal["float32", "bfloat16"] = "float32",
        train_embeddings: bool = True,
        gradient_checkpointing: bool = False,
        prompt: str | None = None,
        max_length: int = 2048,
        lam: float = 1.0,
        c: float = 1e-2,
        individual: bool = True,
        total: bool = True,
        calibrate: bool = True,
        learning_rate: float = 1e-4,
        head_learning_rate: float | None = None,
        weight_decay: float = 0.0,
        warmup_ratio: float = 0.1,
        schedule: ScheduleName = "linear",
        seed: int = 0,
    ) -> None:
        super().__init__(OptimizerSettings(learning_rate, weight_decay, warmup_ratio, schedule, seed))
        if head_learning_rate is not None and head_learning_rate <= 0:
            raise ValueError(f"head_learning_rate must be positive, got {head_learning_rate}")
        if quantization is not None and lora is None:
            raise ValueError("4-bit weights cannot be trained: with quantization 4bit give lora, as lora: {r: 16}")
        self.backbone = backbone
        self.backbone_options = {
            "revision": revision,
            "num_layers": num_layers,
            "lora": lora,
            "quantization": quantization,
            "prompt": prompt,
            "max_length": max_length,
            "dtype": getattr(torch, backbone_dtype),
        }
        self.scoring_system = scoring_system
        self.train_embeddings = train_embeddings
        self.gradient_checkpointing = gradient_checkpointing
        self.loss_settings: dict[str, Any] = {"lam": lam, "c": c, "individual": individual, "total": total}
        # The loss checks its arguments. Call it now instead of after minutes of reading data.
        margin_reward_enforcement_terms(
            *(torch.tensor([[value]]) for value in (0.0, 0.0, 1.0, 0.0)), **self.loss_settings
        )
        self.calibrate = calibrate
        self.head_learning_rate = head_learning_rate
        self.test_rewards: dict[str, GradedRewards] = {}

    def build_model(self) -> nn.Module:
        """Build the backbone with a new head, in training mode."""
        model: Any = ER2ScoreModel.from_backbone(self.backbone, self.scoring_system, **self.backbone_options)
        if not self.train_embeddings and model.config.lora is None:
            model.get_input_embeddings().requires_grad_(False)
        if self.gradient_checkpointing:
            if model.config.lora is not None:
                # Recomputed activations pass gradients to the adapter only if the inputs require gradients.
                model.enable_input_require_grads()
            model.gradient_checkpointing_enable({"use_reentrant": False})
        trained: nn.Module = model.train()
        return trained

    def make_agreement(self) -> PreferenceAccuracy:
        """Build the metric that compares the predicted with the true order."""
        return PreferenceAccuracy(self.model.scoring_system.names)

    def loss_terms(self) -> tuple[str, ...]:
        """Return the names of the loss terms."""
        return MarginRewardEnforcementLoss._fields

    def configure_model(self) -> None:
        """Build the model and the metrics unless they exist."""
        built = self.model is not None
        super().configure_model()
        if not built:
            given, limit = self.trainer.datamodule.max_length, self.model.config.max_prompt_length
            if given > limit:
                raise ValueError(f"max_length is {given}, but the backbone takes {limit} tokens at most")
            self.register_buffer("offset", torch.zeros(len(self.model.scoring_system.names)))

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the parameter groups, with separate groups for the head if ``head_learning_rate`` is set."""
        if self.head_learning_rate is None:
            return super().parameter_groups()
        groups = []
        for module, rate in ((self.model.backbone, self.learning_rate), (self.model.head, self.head_learning_rate)):
            groups += [{**group, "lr": rate} for group in parameter_groups(module, self.weight_decay)]
        return groups

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:  # noqa: ARG002 (Lightning's)
        """Return the loss of a batch, summed over its pairs."""
        rewards, accepted, rejected = self._rewards(batch), batch["accepted"], batch["rejected"]
        terms = self._terms(rewards, batch["contributions"], accepted, rejected, "sum")
        for name, metric in self.terms["fit"].items():
            value = getattr(terms, name).detach()
            metric.update(value / len(accepted), weight=len(accepted))
        # Gradients are averaged over processes, but the loss is the sum over the pairs of all processes.
        loss: Tensor = terms.loss * self.trainer.world_size
        return loss

    def evaluate(self, batch: dict[str, Tensor], stage: str) -> tuple[Tensor, ...]:  # noqa: ARG002 (the base's)
        """Return predicted rewards, true contributions and the index of each report's reference."""
        return self._rewards(batch), batch["contributions"], batch["reference"]

    def on_validation_epoch_end(self) -> None:
        """Calibrate the rewards, and log the results of training and validation."""
        if self.calibrate and not self.trainer.sanity_checking:
            graded = self.agreement["val"].graded()
            # A criterion without annotation in the validation data has a mean of NaN and gets the constant 0.
            self.offset.copy_((graded.contributions - graded.rewards).nanmean(0).nan_to_num())
        super().on_validation_epoch_end()

    def on_test_epoch_end(self) -> None:
        """Store the calibrated rewards by source and log the results of the test."""
        metrics = zip(self.source_names, self.by_source["test"], strict=True)
        self.test_rewards = {
            name: graded._replace(rewards=graded.rewards + self.offset.double())
            for name, graded in ((name, metric.graded()) for name, metric in metrics)
        }
        super().on_test_epoch_end()

    def log_losses(self, stage: str) -> None:
        """Log the mean loss terms over all pairs of a validation or test."""
        graded = self.agreement[stage].graded()
        accepted, rejected = preference_pairs(graded.contributions, graded.reference)
        if len(accepted):
            terms = self._terms(graded.rewards, graded.contributions, accepted, rejected, "mean")
            self.log_values((f"{stage}/{name}", value) for name, value in terms._asdict().items())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Remove the frozen weights of the backbone, which may be a thousand times larger than the other weights."""
        super().on_save_checkpoint(checkpoint)
        for name in self._frozen():
            checkpoint["state_dict"].pop(name, None)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the frozen weights of the backbone, and check the others."""
        # DeepSpeed stores the weights itself.
        if "state_dict" in checkpoint:
            state = self.state_dict()
            for name in self._frozen():
                checkpoint["state_dict"].setdefault(name, state[name])
        super().on_load_checkpoint(checkpoint)

    def export(self, folder: str | Path) -> Path:
        """Write the model with the calibration in the biases of its head; call it in the main process only.

        Returns:
            The folder.
        """
        head = self.model.head
        uncalibrated = head.bias.detach().clone()
        with torch.no_grad():
            head.bias += self.offset / self.model.criterion_weights
        try:
            return super().export(folder)
        finally:
            # Restore the biases, because a second export adds the constants again.
            with torch.no_grad():
                head.bias.copy_(uncalibrated)

    def _rewards(self, batch: dict[str, Tensor]) -> Tensor:
        rewards: Tensor = self.model.forward_shared(*(batch[name] for name in _INPUTS)).rewards
        return rewards

    def _terms(
        self, rewards: Tensor, contributions: Tensor, accepted: Tensor, rejected: Tensor, reduction: Any
    ) -> MarginRewardEnforcementLoss:
        chosen = (rewards[accepted], rewards[rejected], contributions[accepted], contributions[rejected])
        return margin_reward_enforcement_terms(*chosen, **self.loss_settings, reduction=reduction)

    def _frozen(self) -> list[str]:
        """Return the names of frozen weights in the state: embeddings, or the backbone with an adapter."""
        trained = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        # Select by prefix, because a 4-bit weight has further entries in the state.
        return [
            name
            for name in self.state_dict()
            if name.startswith("model.backbone.") and name.removeprefix("model.") not in trained
        ]
