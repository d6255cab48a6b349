"""A CREPE model at work: report pairs to error counts, in packed batches."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rrg_rewards.models.crepe_encoding import LongReports, PairEncoder, TokenizedPair
from rrg_rewards.models.crepe_weights import locate_weights, weights_hash
from rrg_rewards.models.loading import load_frozen
from rrg_rewards.models.packing import packed_batches
from rrg_rewards.utilities.backend import Backend
from rrg_rewards.utilities.checks import check_model_source, check_reports
from rrg_rewards.utilities.imports import require

__all__ = ["CrepePredictor", "Precision"]

Precision = Literal["float32", "bfloat16", "float16"]

_PUBLISHED_LENGTH = 512
_PRECISIONS = ("float32", "bfloat16", "float16")
# What a batch costs besides its tokens, in tokens: a GPU waits for the launches of its kernels.
_BATCH_COST = {"cpu": 64}
_BATCH_COST_ELSEWHERE = 4096

_log = logging.getLogger(__name__)


class CrepePredictor(Backend):
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
        if dtype not in _PRECISIONS:
            raise ValueError(f"dtype must be one of {', '.join(_PRECISIONS)}, got {dtype!r}")
        if long_reports not in ("truncate", "chunks"):
            raise ValueError(f"long_reports must be 'truncate' or 'chunks', got {long_reports!r}")
        if token_budget < 1:
            raise ValueError(f"token_budget must be positive, got {token_budget}")
        self._given = model if isinstance(model, nn.Module) else None
        self.model = type(model).__name__ if isinstance(model, nn.Module) else str(model)
        if self._given is not None and tokenizer is None:
            raise ValueError("a model given as an object needs its tokenizer")
        self.tokenizer = tokenizer
        self.long_reports: LongReports = long_reports
        self.token_budget = token_budget
        self.dtype: Precision = dtype
        self.compile = compile
        self.device = device
        self.revision = revision
        self.progress = progress
        self.config = self._read_config()
        self.max_length = self._checked_length(max_length)
        self._told_of_long_pairs = False

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this predictor.

        Raises:
            TypeError: If the model was given as an object, which is no argument to be written down.
        """
        if self._given is not None:
            raise TypeError(
                f"a {self.model} given as an object cannot be pickled with what uses it; write it by save_pretrained, "
                "its tokenizer too, and give the folder"
            )
        return {
            "model": self.model,
            "tokenizer": self.tokenizer,
            "max_length": self.max_length,
            "long_reports": self.long_reports,
            "token_budget": self.token_budget,
            "dtype": self.dtype,
            "compile": self.compile,
            "device": self.device,
            "revision": self.revision,
            "progress": self.progress,
        }

    @property
    def categories(self) -> tuple[str, ...]:
        """Names of the error categories."""
        names: tuple[str, ...] = self.config.error_categories
        return names

    @property
    def weights_name(self) -> str:
        """The model by name and the first digits of its weights' SHA-256."""
        if self._given is not None:
            return f"{self.model}@{weights_hash(self._given.state_dict())}"
        return f"{Path(self.model).name}@{self._weights_hash}"

    def __call__(self, references: Sequence[str], candidates: Sequence[str]) -> Tensor:
        """Predict error counts.

        Args:
            references: ``N`` reference reports.
            candidates: ``N`` candidate reports.

        Returns:
            Counts ``(N, C)``, at least 0, float32 on the CPU: the model's, clipped at 0; those of chunks are clipped
            each and then summed, for a chunk without errors cannot make up for errors in another.

        Raises:
            TypeError: If a report is no text, by argument and row.
            ValueError: If lengths differ.
        """
        check_reports("references", references)
        check_reports("candidates", candidates)
        pairs = list(zip(references, candidates, strict=True))
        unique = {pair: row for row, pair in enumerate(dict.fromkeys(pairs))}
        if not unique:
            return torch.zeros(0, len(self.categories))
        sequences = self.encoder([pair[0] for pair in unique], [pair[1] for pair in unique])
        self._tell_of_long_pairs(sequences)
        owners = torch.tensor([row for row, chunks in enumerate(sequences) for _ in chunks])
        counts = self._run([chunk for chunks in sequences for chunk in chunks]).clamp(min=0)
        totals = torch.zeros(len(unique), len(self.categories)).index_add_(0, owners, counts)
        return totals[[unique[pair] for pair in pairs]]

    @cached_property
    def encoder(self) -> PairEncoder:
        """What makes token sequences of report pairs."""
        return PairEncoder(self._tokenizer, self.max_length, self.long_reports)

    @property
    def batch_cost(self) -> int:
        """What a batch costs besides its tokens, in tokens, where the model runs."""
        return _BATCH_COST.get(next(self._model.parameters()).device.type, _BATCH_COST_ELSEWHERE)

    @torch.no_grad()
    def _run(self, sequences: Sequence[TokenizedPair]) -> Tensor:
        """Counts of sequences ``(N, C)``, as the heads give them."""
        module = self._model
        device = next(module.parameters()).device
        counts = torch.empty(len(sequences), len(self.categories))
        batches = packed_batches([len(sequence) for sequence in sequences], self.token_budget, self.batch_cost)
        with _evaluating(module):
            for rows in self._shown(batches):
                batch = self.encoder.collate([sequences[row] for row in rows])
                counts[rows] = self._forward({name: values.to(device) for name, values in batch.items()}).cpu()
        return counts

    def _forward(self, batch: dict[str, Tensor]) -> Tensor:
        kind = batch["input_ids"].device.type
        with torch.autocast(kind, dtype=getattr(torch, self.dtype), enabled=self.dtype != "float32"):
            counts: Tensor = self._runner(**batch).counts
        return counts.float()

    def _shown(self, batches: Sequence[list[int]]) -> Iterable[list[int]]:
        if not self.progress:
            return batches
        progress = require("rich.progress", extra="models")
        console = require("rich.console", extra="models").Console(stderr=True)
        shown: Iterable[list[int]] = progress.track(batches, description="CREPE", console=console)
        return shown

    def _tell_of_long_pairs(self, sequences: Sequence[Sequence[TokenizedPair]]) -> None:
        cut = sum(any(chunk.num_cut for chunk in chunks) for chunks in sequences)
        if cut and not self._told_of_long_pairs:
            # Once: a reward meets such pairs in every step.
            self._told_of_long_pairs = True
            _log.warning(
                "%d of %d report pairs have more than %d tokens and were cut; long_reports='chunks' reads all of them",
                cut,
                len(sequences),
                self.max_length,
            )

    @cached_property
    def _model(self) -> nn.Module:
        if self._given is not None:
            return self._given
        return load_frozen(_build, self.model, self.revision, self.dtype, device=self.device)

    @cached_property
    def _runner(self) -> Any:
        return torch.compile(self._model, dynamic=True) if self.compile else self._model

    @cached_property
    def _tokenizer(self) -> Any:
        if self.tokenizer is not None and not isinstance(self.tokenizer, str | Path):
            return self.tokenizer
        transformers = require("transformers", extra="models")
        return transformers.AutoTokenizer.from_pretrained(self.tokenizer or self.model, revision=self.revision)

    @cached_property
    def _weights_hash(self) -> str:
        return weights_hash(locate_weights(self.model, self.revision))

    def _read_config(self) -> Any:
        config_class = require("rrg_rewards.models.crepe_config", extra="models").CrepeConfig
        if self._given is None:
            check_model_source(self.model)
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


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Put a model that is given in the midst of its training in eval mode for a while."""
    if not module.training:
        yield
        return
    module.eval()
    try:
        yield
    finally:
        module.train()


def _build(model: str, revision: str | None, dtype: Precision) -> nn.Module:
    crepe: Any = require("rrg_rewards.models.crepe", extra="models")
    built: nn.Module = crepe.CrepeModel.from_pretrained(model, revision=revision)
    if dtype != "float32":
        for module in built.encoder.modules():  # type: ignore[union-attr]
            if isinstance(module, nn.Linear):
                module.to(getattr(torch, dtype))
    return built
