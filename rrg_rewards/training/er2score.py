"""Training of ER²Score: rewards by criterion, by the margins between an accepted and a rejected report."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric

from rrg_rewards.functional.er2score import MarginRewardEnforcementLoss, margin_reward_enforcement_terms
from rrg_rewards.metrics.reward_agreement import GradedRewards, RewardAgreement, preference_pairs
from rrg_rewards.models.er2score import ER2ScoreModel
from rrg_rewards.training.base import LearnedMetricModule, ScheduleName, parameter_groups

__all__ = ["ER2ScoreModule"]

_INPUTS = ("prefix_ids", "prefix_mask", "suffix_ids", "suffix_mask", "owner")
_TERMS = MarginRewardEnforcementLoss._fields


class ER2ScoreModule(LearnedMetricModule):
    r"""Trains :class:`~rrg_rewards.models.ER2ScoreModel` by margin reward enforcement on pairs of graded reports.

    Logged at each validation, over all processes: ``train/loss``, ``train/individual`` and ``train/total``, means of
    the loss' terms over the pairs since the last one; the same under ``val/``; ``val/accuracy``, the share of pairs of
    a reference that the predicted totals order rightly, ``val/accuracy_<criterion>`` over the pairs that differ in the
    criterion, ``val/kendall`` and ``val/spearman`` of predicted and true totals, and ``val/<source>/accuracy`` for
    each source. In ``trainer.test`` the same under ``test/``, and ``test_rewards`` holds rewards and contributions by
    source.

    Minimised is the sum over a step's pairs, as published, whatever the number of processes. The loss sees differences
    only, so that rewards are right up to a constant a criterion. With ``calibrate``, which is not the paper's, each
    validation finds the constants that make a criterion's mean reward its mean contribution; they are kept with the
    checkpoint, and :meth:`export` adds them to the head's biases: sub-scores are then on their own scale.

    The paper names neither learning rate nor schedule. With ``lora`` its Llama-3 trains 6.8M weights, which is what
    rank 16 on ``q_proj`` and ``v_proj`` gives.

    Args:
        backbone: Folder or Hub id of the language model that training starts from.
        revision: Revision of a Hub id.
        scoring_system: Name of a scoring system, or the path of its YAML file.
        num_layers: Decoder layers to keep, the first ones; default: all.
        lora: Fields of PEFT's ``LoraConfig``; default: all weights are trained.
        quantization: ``"4bit"`` for QLoRA: the backbone is frozen in 4 bits under the adapter.
        backbone_dtype: Type in which the backbone's weights are kept. ``bfloat16`` halves the memory of a frozen one;
            what is trained is better kept in ``float32`` and computed in ``trainer.precision``.
        train_embeddings: Train the token embeddings, too, where there is no ``lora``. They are a good part of a small
            model's weights, and seldom matter.
        gradient_checkpointing: Compute activations again in place of keeping them. What candidates of a reference have
            in common is then read once for each of them.
        prompt: Text of the prompt's template; default: the package's.
        max_length: Tokens of a prompt at most.
        lam: Weight of the total's loss.
        c: How far apart rewards may be where scores are equal.
        individual: Whether the criteria's loss is minimised; without it, the paper's ablation.
        total: Whether the total's loss is minimised; without it, the paper's other ablation.
        calibrate: Whether to set the head's biases by the validation.
        learning_rate: Highest learning rate.
        head_learning_rate: Highest learning rate of the head, which starts from random weights; default: the same.
        weight_decay: Decay of weights; biases and norms have none.
        warmup_ratio: Share of the steps over which the learning rate rises.
        schedule: ``linear`` or ``cosine``, which fall to 0 at the last step, or ``constant``.
        seed: Seed of the head's first weights and of dropout.

    Raises:
        ValueError: If a number is out of range, both terms of the loss are off, or 4-bit weights come without ``lora``.

    Example:
        >>> ER2ScoreModule("meta-llama/Meta-Llama-3-8B", lora={"r": 16}).loss_settings["lam"]
        1.0
    """

    # Metrics by stage, and by stage and source.
    terms: Any
    agreement: Any
    by_source: Any
    offset: Tensor

    def __init__(
        self,
        backbone: str,
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
        super().__init__(learning_rate, weight_decay, warmup_ratio, schedule, seed)
        if head_learning_rate is not None and head_learning_rate <= 0:
            raise ValueError(f"head_learning_rate must be positive, got {head_learning_rate}")
        if quantization is not None and lora is None:
            raise ValueError("4-bit weights cannot be trained: with quantization 4bit give lora, as lora: {r: 16}")
        self.loss_settings: dict[str, Any] = {"lam": lam, "c": c, "individual": individual, "total": total}
        # By the loss itself, now and not after minutes of reading data.
        margin_reward_enforcement_terms(
            *(torch.tensor([[value]]) for value in (0.0, 0.0, 1.0, 0.0)), **self.loss_settings
        )
        self.backbone = backbone
        self.backbone_settings: dict[str, Any] = {
            "scoring_system": scoring_system,
            "revision": revision,
            "num_layers": num_layers,
            "lora": lora,
            "quantization": quantization,
            "prompt": prompt,
            "max_length": max_length,
            "dtype": getattr(torch, backbone_dtype),
        }
        self.train_embeddings = train_embeddings
        self.gradient_checkpointing = gradient_checkpointing
        self.calibrate = calibrate
        self.head_learning_rate = head_learning_rate
        self.test_rewards: dict[str, GradedRewards] = {}

    def build_model(self) -> nn.Module:
        """The backbone with a new head, its dropout at work."""
        model: Any = ER2ScoreModel.from_backbone(self.backbone, **self.backbone_settings)
        if not self.train_embeddings and model.config.lora is None:
            model.get_input_embeddings().requires_grad_(False)
        if self.gradient_checkpointing:
            if model.config.lora is not None:
                # Else nothing that is computed again would lead to the adapter.
                model.enable_input_require_grads()
            model.gradient_checkpointing_enable({"use_reentrant": False})
        trained: nn.Module = model.train()
        return trained

    def configure_model(self) -> None:
        """Make the model and the metrics, once."""
        built = self.model is not None
        super().configure_model()
        if not built:
            data, limit = self.trainer.datamodule, self.model.config.max_prompt_length
            if data.max_length > limit:
                raise ValueError(f"max_length is {data.max_length}, but the backbone takes {limit} tokens at most")
            names = self.model.scoring_system.names
            self.source_names = data.source_names
            self.register_buffer("offset", torch.zeros(len(names)))
            self.terms = nn.ModuleDict({name: MeanMetric() for name in _TERMS})
            self.agreement = nn.ModuleDict({stage: RewardAgreement(names) for stage in ("val", "test")})
            self.by_source = nn.ModuleDict(
                {stage: nn.ModuleList(RewardAgreement(names) for _ in self.source_names) for stage in ("val", "test")}
            )

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The head in groups of its own, where it has a learning rate of its own."""
        if self.head_learning_rate is None:
            return super().parameter_groups()
        groups = []
        for module, rate in ((self.model.backbone, self.learning_rate), (self.model.head, self.head_learning_rate)):
            groups += [{**group, "lr": rate} for group in parameter_groups(module, self.weight_decay)]
        return groups

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:  # noqa: ARG002 (Lightning's)
        """The loss of a batch of pairs, summed."""
        rewards, accepted, rejected = self._rewards(batch), batch["accepted"], batch["rejected"]
        terms = self._terms(rewards, batch["contributions"], accepted, rejected, "sum")
        for name, metric in self.terms.items():
            value = getattr(terms, name).detach()
            metric.update(value / len(accepted), weight=len(accepted))
        # Gradients are averaged over processes; each has a share of the pairs that are summed.
        loss: Tensor = terms.loss * self.trainer.world_size
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:  # noqa: ARG002 (Lightning's)
        """Add a batch of reports to what is logged of a validation."""
        self._evaluate(batch, "val")

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:  # noqa: ARG002 (Lightning's)
        """Add a batch of reports to what is logged of a test."""
        self._evaluate(batch, "test")

    def on_validation_epoch_end(self) -> None:
        """Find the constants, and log what was learned and validated since the last time."""
        if self.trainer.sanity_checking:
            self._reset("val")
            return
        for name, metric in self.terms.items():
            self.log(f"train/{name}", metric, metric_attribute=f"terms.{name}")
        if self.calibrate:
            graded = self.agreement["val"].graded()
            # NaN where no report of the validation is annotated: left as it is.
            self.offset.copy_((graded.contributions - graded.rewards).nanmean(0).nan_to_num())
        self._log_stage("val")

    def on_test_epoch_end(self) -> None:
        """Keep the rewards, and log what was tested."""
        metrics = zip(self.source_names, self.by_source["test"], strict=True)
        self.test_rewards = {
            name: graded._replace(rewards=graded.rewards + self.offset.double())
            for name, graded in ((name, metric.graded()) for name, metric in metrics)
        }
        self._log_stage("test")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Leave frozen weights out: they are where training started from, and may be a thousand times the adapter."""
        for name in self._frozen():
            checkpoint["state_dict"].pop(name, None)

    def on_load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Take frozen weights from where training started."""
        state = self.state_dict()
        for name in self._frozen():
            checkpoint["state_dict"].setdefault(name, state[name])

    def export(self, folder: str | Path) -> Path:
        """Write the model with the constants of the calibration in its head's biases; the main process alone calls it.

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
            # The module goes on as it was trained: exporting twice must not shift twice.
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

    def _evaluate(self, batch: dict[str, Tensor], stage: str) -> None:
        reports = (self._rewards(batch), batch["contributions"], batch["reference"])
        self.agreement[stage].update(*reports)
        for place, metric in enumerate(self.by_source[stage]):
            chosen = batch["source"] == place
            metric.update(*(values[chosen] for values in reports))

    def _log_stage(self, stage: str) -> None:
        agreement = self.agreement[stage]
        graded = agreement.graded()
        accepted, rejected = preference_pairs(graded.contributions, graded.reference)
        if len(accepted):
            terms = self._terms(graded.rewards, graded.contributions, accepted, rejected, "mean")
            self.log_values((f"{stage}/{name}", getattr(terms, name)) for name in _TERMS)
        # The object and not its value: Lightning calls compute, which reduces the states, and resets it.
        self.log(f"{stage}/accuracy", agreement, prog_bar=True, metric_attribute=f"agreement.{stage}")
        self.log_values((f"{stage}/{name}", value) for name, value in agreement.statistics().items())
        for place, (name, metric) in enumerate(zip(self.source_names, self.by_source[stage], strict=True)):
            self.log(f"{stage}/{name}/accuracy", metric, metric_attribute=f"by_source.{stage}.{place}")

    def _frozen(self) -> list[str]:
        """Names of the state's frozen weights: those of the backbone under an adapter, and embeddings."""
        trained = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        # A 4-bit weight has further entries by its name; so all of a backbone that is not trained.
        return [
            name
            for name in self.state_dict()
            if name.startswith("model.backbone.") and name.removeprefix("model.") not in trained
        ]

    def _reset(self, stage: str) -> None:
        for metric in (self.agreement[stage], *self.by_source[stage]):
            metric.reset()
