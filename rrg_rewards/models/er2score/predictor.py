"""Predict rewards of report pairs with an ER²Score model; prompts with the same reference share a prefix."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rrg_rewards.models.er2score.prompt import PromptEncoder, PromptTemplate, TokenizedPrompt
from rrg_rewards.models.loading import load_frozen, load_tokenizer
from rrg_rewards.models.pair_predictor import PairPredictor, PairPredictorOptions, packed_batches
from rrg_rewards.schemas import ScoringSystem
from rrg_rewards.utilities.imports import require


@dataclass(frozen=True)
class ER2ScoreOptions(PairPredictorOptions):
    """Options of ER²Score's predictor; see :class:`rrg_rewards.metrics.ER2Score`.

    Raises:
        ValueError: If an option is unknown or out of range.
    """

    backbone: str | Path | None
    share_prefix: bool


class _Batch(NamedTuple):
    """Rows of the prompts of a batch, and whether the prompts share prefixes."""

    shared: bool
    rows: list[int]


class ER2ScorePredictor(PairPredictor):
    """Reward candidate reports by the criteria of an ER²Score model.

    :class:`rrg_rewards.models.er2score.prompt.PromptEncoder` makes prompts of the pairs; distinct pairs run once
    each. Prompts of the same reference have a common prefix. It runs once, its keys and values are cached, and each
    candidate continues from the cache. A prompt with a unique prefix runs whole. Both methods give equal rewards up to
    rounding. Batches contain prompts of similar length.

    An adapter is merged into the backbone of a loaded model. Weights load from safetensors.

    Args:
        model: Folder or Hub id of an ER²Score model, or a :class:`rrg_rewards.models.ER2ScoreModel`.
        tokenizer: The tokenizer, or its folder or Hub id; ``None`` for the model's.
        options: Options.

    Raises:
        FileNotFoundError: If there is no such folder, or it contains no ER²Score model.
        ValueError: If ``max_length`` is too long, the configuration belongs to another kind of model, or a model object
            has no tokenizer and none is passed; when called, if a reward is not finite.
    """

    _model_kind = "an ER2ScoreModel"
    _part = "backbone"

    options: ER2ScoreOptions

    def __init__(self, model: str | Path | nn.Module, tokenizer: Any, options: ER2ScoreOptions) -> None:
        super().__init__(model, tokenizer, options)
        self.backbone = None if self.options.backbone is None else str(self.options.backbone)
        self.scoring_system: ScoringSystem = self.config.system

    @property
    def prompt(self) -> PromptTemplate:
        """Template of the prompt, which is stored with the model."""
        return PromptTemplate(self.config.prompt)

    @property
    def weights_name(self) -> str:
        """Name of the model, the first digits of the SHA-256 of its trained weights, and an adapter's backbone."""
        name = super().weights_name
        if self._given is not None or self.config.lora is None:
            return name
        if self.backbone is not None:
            return f"{name}+{Path(self.backbone).name}"
        revision = "" if self.config.backbone_revision is None else f"@{self.config.backbone_revision[:8]}"
        return f"{name}+{Path(self.config.backbone or 'backbone').name}{revision}"

    @cached_property
    def encoder(self) -> PromptEncoder:
        """Encoder of report pairs as prompts."""
        return PromptEncoder(self._tokenizer, self.prompt.with_criteria(self.scoring_system), self.max_length)

    @property
    def _num_outputs(self) -> int:
        return len(self.scoring_system.criteria)

    def _predict(self, references: Sequence[str], candidates: Sequence[str]) -> Tensor:
        """Predict rewards: the contribution of each criterion to the total."""
        prompts = self.encoder(references, candidates)
        self._warn_of_long_pairs(sum(prompt.num_cut > 0 for prompt in prompts), len(prompts))
        rewards = torch.empty(len(prompts), self._num_outputs, dtype=torch.float32)
        with self._inference():
            for batch in self._batches(prompts):
                for rows, found in self._run(prompts, batch):
                    rewards[rows] = found.float().cpu()
        # Raise, because NaN marks unscorable pairs.
        if not bool(rewards.isfinite().all()):
            advice = "; bfloat16 has the range of float32" if self.dtype == "float16" else ""
            raise ValueError(f"{self.model} gives rewards that are not finite in {self.dtype}{advice}")
        return rewards

    def _batches(self, prompts: Sequence[TokenizedPrompt]) -> list[_Batch]:
        """Pack prompts that share a prefix by the lengths of prefixes, and other prompts by their own lengths."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for row, prompt in enumerate(prompts):
            groups.setdefault(prompt.prefix, []).append(row)
        shared = [rows for rows in groups.values() if self.options.share_prefix and len(rows) > 1]
        alone = [row for rows in groups.values() if not (self.options.share_prefix and len(rows) > 1) for row in rows]
        packed = self._packed([len(prompts[rows[0]].prefix) for rows in shared])
        together = [_Batch(True, [row for group in batch for row in shared[group]]) for batch in packed]
        packed = self._packed([len(prompts[row]) for row in alone])
        return [*together, *(_Batch(False, [alone[index] for index in batch]) for batch in packed)]

    def _run(self, prompts: Sequence[TokenizedPrompt], batch: _Batch) -> Iterator[tuple[list[int], Tensor]]:
        """Yield row indices and the rewards of these rows."""
        model: Any = self._model
        chosen = [prompts[row] for row in batch.rows]
        if not batch.shared:
            yield batch.rows, model(**self._to_device(self.encoder.collate(chosen))).rewards
            return
        inputs = self._to_device(self.encoder.collate_prefixes(chosen))
        owners = inputs.pop("owner")
        prefixes = model.read_prefixes(**inputs)
        # Each row copies the cache of its prefix, padding included.
        width = prefixes.mask.shape[1]
        for indices in self._packed([width + len(prompt.suffix) for prompt in chosen]):
            suffixes = self._to_device(self.encoder.collate_suffixes([chosen[index] for index in indices]))
            output = model.continue_prefixes(prefixes, **suffixes, owner=owners[indices])
            yield [batch.rows[index] for index in indices], output.rewards

    def _packed(self, lengths: Sequence[int]) -> list[list[int]]:
        return packed_batches(lengths, self.options.token_budget, self.batch_cost)

    @property
    def _weights(self) -> Any:
        return require("rrg_rewards.models.er2score.weights", extra="models")

    @property
    def _config_class(self) -> Any:
        return require("rrg_rewards.models.er2score.config", extra="models").ER2ScoreConfig

    def _load_config(self) -> Any:
        configs: Any = require("rrg_rewards.models.er2score.config", extra="models")
        return configs.read_er2score_config(self._weights.locate_model(self.model, self.options.revision))

    def _load(self) -> nn.Module:
        options = self.options
        return load_frozen(_build, self.model, options.revision, self.backbone, self.dtype, device=options.device)

    def _load_tokenizer(self) -> Any:
        if self.tokenizer is not None:
            return load_tokenizer(self.tokenizer)
        found = self._model.tokenizer
        if found is None:
            raise ValueError(f"{self.model} has no tokenizer; pass one as tokenizer=")
        return found

    def _weight_files(self) -> list[Path]:
        folder = self._weights.locate_model(self.model, self.options.revision)
        return self._weights.weight_files(folder, adapted=self.config.lora is not None)  # type: ignore[no-any-return]

    def _lengths(self) -> tuple[int, int | None]:
        return self.config.max_prompt_length, getattr(self.config.backbone_config, "max_position_embeddings", None)


def _build(model: str, revision: str | None, backbone: str | None, dtype: str) -> nn.Module:
    er2score: Any = require("rrg_rewards.models.er2score.model", extra="models")
    built = er2score.ER2ScoreModel.from_pretrained(
        model, backbone=backbone, revision=revision, dtype=getattr(torch, dtype)
    )
    # A merged adapter needs fewer multiplications. Merging into quantised weights would lose it to rounding.
    mergeable = built.config.lora is not None and built.config.quantization is None
    return built.merge_adapter() if mergeable else built  # type: ignore[no-any-return]
