"""Predict error counts of report pairs with a CREPE model, in packed batches."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rrg_rewards.models.crepe.encoding import PairEncoder
from rrg_rewards.models.loading import load_frozen
from rrg_rewards.models.pair_predictor import PairPredictor, packed_batches
from rrg_rewards.models.state_dicts import locate_weights
from rrg_rewards.utilities.imports import require

_PUBLISHED_LENGTH = 512


class CrepePredictor(PairPredictor):
    """Count the errors of candidate reports with a CREPE model.

    :class:`rrg_rewards.models.crepe.encoding.PairEncoder` tokenises the pairs. Distinct pairs run once each, in batches
    of similar length. Weights load without executing pickled code. With ``"bfloat16"`` and ``"float16"`` the matrices
    of a loaded model are converted once.

    Args:
        model: Folder or Hub id of a CREPE model, or a :class:`rrg_rewards.models.CrepeModel`.
        tokenizer: The tokenizer, or its folder or Hub id; ``None`` for the model's folder.
        options: Options.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If ``max_length`` is too long, the configuration is not that of a CREPE model, or a model object is
            passed without a tokenizer.
    """

    _model_kind = "a CrepeModel"
    _part = "encoder"

    @property
    def categories(self) -> tuple[str, ...]:
        """Names of the error categories."""
        return self.config.error_categories  # type: ignore[no-any-return]

    @cached_property
    def encoder(self) -> PairEncoder:
        """Encoder of report pairs as token sequences."""
        return PairEncoder(self._tokenizer, self.max_length)

    @property
    def _num_outputs(self) -> int:
        return len(self.categories)

    def _predict(self, references: Sequence[str], candidates: Sequence[str]) -> Tensor:
        """Predict counts, clipped at 0."""
        sequences = self.encoder(references, candidates)
        self._warn_of_long_pairs(sum(sequence.num_cut > 0 for sequence in sequences), len(sequences))
        counts = torch.empty(len(sequences), len(self.categories), dtype=torch.float32)
        lengths = [len(sequence) for sequence in sequences]
        with self._inference():
            for rows in packed_batches(lengths, self.options.token_budget, self.batch_cost):
                batch = self.encoder.collate([sequences[row] for row in rows])
                counts[rows] = self._model(**self._to_device(batch)).counts.float().cpu()
        return counts.clamp(min=0)

    @property
    def _config_class(self) -> Any:
        return require("rrg_rewards.models.crepe.config", extra="models").CrepeConfig

    def _load_config(self) -> Any:
        return self._config_class.from_pretrained(self.model, revision=self.options.revision)

    def _load(self) -> nn.Module:
        return load_frozen(_build, self.model, self.options.revision, self.dtype, device=self.options.device)

    def _load_tokenizer(self) -> Any:
        auto_tokenizer = require("transformers", extra="models").AutoTokenizer
        return auto_tokenizer.from_pretrained(
            self.tokenizer or self.model, revision=self.options.revision, trust_remote_code=False
        )

    def _weight_files(self) -> Path:
        return locate_weights(self.model, self.options.revision)

    def _lengths(self) -> tuple[int, int]:
        limit = getattr(self.config.encoder_config, "max_position_embeddings", None) or _PUBLISHED_LENGTH
        return min(_PUBLISHED_LENGTH, limit), limit


def _build(model: str, revision: str | None, dtype: str) -> nn.Module:
    crepe: Any = require("rrg_rewards.models.crepe.model", extra="models")
    built: nn.Module = crepe.CrepeModel.from_pretrained(model, revision=revision)
    if dtype != "float32":
        for module in built.encoder.modules():  # type: ignore[union-attr]
            if isinstance(module, nn.Linear):
                module.to(getattr(torch, dtype))
    return built
