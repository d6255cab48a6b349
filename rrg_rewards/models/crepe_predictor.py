"""A CREPE model at work: report pairs to error counts, in packed batches."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rrg_rewards.models.crepe_encoding import LongReports, PairEncoder, TokenizedPair
from rrg_rewards.models.crepe_weights import locate_weights
from rrg_rewards.models.loading import load_frozen
from rrg_rewards.models.packing import packed_batches
from rrg_rewards.models.pair_predictor import PairPredictor, Precision
from rrg_rewards.utilities.imports import require

__all__ = ["CrepePredictor", "Precision"]

_PUBLISHED_LENGTH = 512


class CrepePredictor(PairPredictor):
    """Count errors of candidate reports with a CREPE model.

    Pairs are tokenised by :class:`rrg_rewards.models.crepe_encoding.PairEncoder`, equal ones run once, and the rest in
    batches of similar length that hold ``token_budget`` tokens at most, padding included. The model is loaded at the
    first pair, once a process for all who use the same (:func:`rrg_rewards.models.loading.load_frozen`). Nothing is
    sent anywhere; weights load without executing pickled code.

    In ``"bfloat16"`` and ``"float16"`` matrices are multiplied in that type, under autocast; embeddings, sums,
    normalisations and heads stay in float32. The matrices of a loaded model are converted once.

    A model given as an object is used as it is, in eval mode while it runs: it is shared by copies, follows its own
    device, and cannot be pickled.

    Args:
        model: Folder or Hub id of a CREPE model, or a :class:`rrg_rewards.models.CrepeModel`.
        tokenizer: The tokenizer, or its folder or Hub id; default: the model's folder.
        max_length: Tokens of a sequence at most; default: 512 as published, or what the encoder takes if that is less.
        long_reports: What is done where both reports are longer: ``"truncate"`` or ``"chunks"``, whose counts are
            summed.
        token_budget: Tokens of a batch at most, padding included; a longer sequence runs alone.
        dtype: ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        compile: Whether the model is compiled by ``torch.compile``, which pays after many batches.
        device: Where a loaded model runs; default: this process' CUDA device where there is one, else the CPU.
        revision: Revision of a Hub id.
        progress: Whether a bar on stderr shows how far a call is.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If a setting is unknown or out of range, the configuration is of no CREPE model, or a model object
            comes without a tokenizer.
    """

    title = "CREPE"
    _advice = "long_reports='chunks' reads all of them"

    def __init__(
        self,
        model: str | Path | nn.Module,
        tokenizer: Any = None,
        *,
        max_length: int | None = None,
        long_reports: LongReports = "truncate",
        token_budget: int = 8192,
        dtype: Precision = "float32",
        compile: bool = False,  # noqa: A002 (torch's word for it)
        device: str | None = None,
        revision: str | None = None,
        progress: bool = False,
    ) -> None:
        if long_reports not in ("truncate", "chunks"):
            raise ValueError(f"long_reports must be 'truncate' or 'chunks', got {long_reports!r}")
        super().__init__(
            model,
            tokenizer,
            token_budget=token_budget,
            dtype=dtype,
            device=device,
            revision=revision,
            progress=progress,
        )
        if self._given is not None and tokenizer is None:
            raise ValueError("a model given as an object needs its tokenizer")
        self.long_reports: LongReports = long_reports
        self.compile = compile
        self.config = self._read_config()
        self.max_length = self._checked_length(max_length)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this predictor.

        Raises:
            TypeError: If the model was given as an object, which is no argument to be written down.
        """
        return {**super().arguments(), "long_reports": self.long_reports, "compile": self.compile}

    @property
    def categories(self) -> tuple[str, ...]:
        """Names of the error categories."""
        names: tuple[str, ...] = self.config.error_categories
        return names

    @cached_property
    def encoder(self) -> PairEncoder:
        """What makes token sequences of report pairs."""
        return PairEncoder(self._tokenizer, self.max_length, self.long_reports)

    @property
    def _num_outputs(self) -> int:
        return len(self.categories)

    def _predict(self, references: Sequence[str], candidates: Sequence[str]) -> Tensor:
        """Counts, at least 0: the model's, clipped at 0.

        Those of chunks are clipped each and then summed, for a chunk without errors cannot make up for errors in
        another.
        """
        sequences = self.encoder(references, candidates)
        self._tell_of_long_pairs(sum(any(chunk.num_cut for chunk in chunks) for chunks in sequences), len(sequences))
        owners = torch.tensor([row for row, chunks in enumerate(sequences) for _ in chunks])
        counts = self._run([chunk for chunks in sequences for chunk in chunks]).clamp(min=0)
        return torch.zeros(len(sequences), len(self.categories)).index_add_(0, owners, counts)

    def _run(self, sequences: Sequence[TokenizedPair]) -> Tensor:
        """Counts of sequences ``(N, C)``, as the heads give them."""
        counts = torch.empty(len(sequences), len(self.categories))
        batches = packed_batches([len(sequence) for sequence in sequences], self.token_budget, self.batch_cost)
        with self._at_work():
            for rows in self._shown(batches):
                batch = self.encoder.collate([sequences[row] for row in rows])
                found = self._runner(**{name: values.to(self._place) for name, values in batch.items()})
                counts[rows] = found.counts.float().cpu()
        return counts

    def _load(self) -> nn.Module:
        return load_frozen(_build, self.model, self.revision, self.dtype, device=self.device)

    def _weight_files(self) -> Path:
        return locate_weights(self.model, self.revision)

    @cached_property
    def _runner(self) -> Any:
        return torch.compile(self._model, dynamic=True) if self.compile else self._model

    @cached_property
    def _tokenizer(self) -> Any:
        if self.tokenizer is not None and not isinstance(self.tokenizer, str | Path):
            return self.tokenizer
        transformers = require("transformers", extra="models")
        return transformers.AutoTokenizer.from_pretrained(self.tokenizer or self.model, revision=self.revision)

    def _read_config(self) -> Any:
        config_class = require("rrg_rewards.models.crepe_config", extra="models").CrepeConfig
        if self._given is None:
            return config_class.from_pretrained(self.model, revision=self.revision)
        config = getattr(self._given, "config", None)
        if not isinstance(config, config_class):
            raise ValueError(f"model must be a CrepeModel, a folder or a Hub id, got {self.model}")
        return config

    def _checked_length(self, max_length: int | None) -> int:
        limit = getattr(self.config.encoder_config, "max_position_embeddings", None) or _PUBLISHED_LENGTH
        if max_length is None:
            return min(_PUBLISHED_LENGTH, limit)
        if max_length > limit:
            raise ValueError(f"max_length is {max_length}, but the encoder takes {limit} tokens at most")
        return max_length


def _build(model: str, revision: str | None, dtype: Precision) -> nn.Module:
    crepe: Any = require("rrg_rewards.models.crepe", extra="models")
    built: nn.Module = crepe.CrepeModel.from_pretrained(model, revision=revision)
    if dtype != "float32":
        for module in built.encoder.modules():  # type: ignore[union-attr]
            if isinstance(module, nn.Linear):
                module.to(getattr(torch, dtype))
    return built
