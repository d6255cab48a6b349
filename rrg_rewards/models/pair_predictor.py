"""What models that score report pairs have in common at work: how they are given, loaded, batched and named."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from rrg_rewards.models.state_dicts import weights_hash
from rrg_rewards.utilities.backend import Backend
from rrg_rewards.utilities.checks import check_model_source, check_reports
from rrg_rewards.utilities.imports import require

__all__ = ["PairPredictor", "Precision"]

Precision = Literal["float32", "bfloat16", "float16"]

T = TypeVar("T")

_PRECISIONS = ("float32", "bfloat16", "float16")
# What a batch costs besides its tokens, in tokens: a GPU waits for the launches of its kernels.
_BATCH_COST = {"cpu": 64}
_BATCH_COST_ELSEWHERE = 4096

_log = logging.getLogger(__name__)


class PairPredictor(Backend, ABC):
    """Numbers of report pairs by a model that reads both reports.

    Equal pairs run once. The model is loaded at the first pair, once a process for all who use the same
    (:func:`rrg_rewards.models.loading.load_frozen`). Nothing is sent anywhere. A model given as an object is used as it
    is, in eval mode while it runs: it is shared by copies, follows its own device, and cannot be pickled.

    Subclasses read the configuration, load, and run distinct pairs.

    Args:
        model: Folder or Hub id of a model, or the model.
        tokenizer: The tokenizer, or its folder or Hub id; default: the model's.
        token_budget: Tokens of a batch at most, padding included.
        dtype: ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        device: Where a loaded model runs; default: this process' CUDA device where there is one, else the CPU.
        revision: Revision of a Hub id.
        progress: Whether a bar on stderr shows how far a call is.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If a setting is unknown or out of range.
    """

    title: ClassVar[str]
    """What a bar of progress is called."""

    _advice: ClassVar[str]
    """What to do about pairs that are cut."""

    max_length: int

    def __init__(
        self,
        model: str | Path | nn.Module,
        tokenizer: Any,
        *,
        token_budget: int,
        dtype: Precision,
        device: str | None,
        revision: str | None,
        progress: bool,
    ) -> None:
        if dtype not in _PRECISIONS:
            raise ValueError(f"dtype must be one of {', '.join(_PRECISIONS)}, got {dtype!r}")
        if token_budget < 1:
            raise ValueError(f"token_budget must be positive, got {token_budget}")
        self._given = model if isinstance(model, nn.Module) else None
        self.model = type(model).__name__ if isinstance(model, nn.Module) else str(model)
        if self._given is None:
            check_model_source(self.model)
        self.tokenizer = tokenizer
        self.token_budget = token_budget
        self.dtype: Precision = dtype
        self.device = device
        self.revision = revision
        self.progress = progress
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
            "token_budget": self.token_budget,
            "dtype": self.dtype,
            "device": self.device,
            "revision": self.revision,
            "progress": self.progress,
        }

    @property
    def weights_name(self) -> str:
        """The model by name and the first digits of its weights' SHA-256."""
        if self._given is not None:
            return f"{self.model}@{weights_hash(self._given.state_dict())}"
        return f"{Path(self.model).name}@{self._weights_hash}"

    def __call__(self, references: Sequence[str], candidates: Sequence[str]) -> Tensor:
        """Numbers of report pairs.

        Args:
            references: ``N`` reference reports.
            candidates: ``N`` candidate reports.

        Returns:
            ``(N, C)``, float32 on the CPU.

        Raises:
            TypeError: If a report is no text, by argument and row.
            ValueError: If lengths differ.
        """
        check_reports("references", references)
        check_reports("candidates", candidates)
        pairs = list(zip(references, candidates, strict=True))
        unique = {pair: row for row, pair in enumerate(dict.fromkeys(pairs))}
        if not unique:
            return torch.zeros(0, self._num_outputs)
        found = self._predict([pair[0] for pair in unique], [pair[1] for pair in unique])
        return found[[unique[pair] for pair in pairs]]

    @property
    def batch_cost(self) -> int:
        """What a batch costs besides its tokens, in tokens, where the model runs."""
        return _BATCH_COST.get(self._place.type, _BATCH_COST_ELSEWHERE)

    @property
    @abstractmethod
    def _num_outputs(self) -> int:
        """Numbers of a pair."""

    @abstractmethod
    def _predict(self, references: Sequence[str], candidates: Sequence[str]) -> Tensor:
        """Numbers of distinct pairs, at least one: float32 ``(N, C)`` on the CPU."""

    @abstractmethod
    def _load(self) -> nn.Module:
        """The model, where none was given as an object."""

    @abstractmethod
    def _weight_files(self) -> Path | list[Path]:
        """The files by which the model's weights are named."""

    @property
    def _place(self) -> torch.device:
        """Where the model runs."""
        return next(self._model.parameters()).device

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self._place.type, dtype=getattr(torch, self.dtype), enabled=self.dtype != "float32")

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Put a model that is given in the midst of its training in eval mode for a while, without gradients."""
        was_training = self._model.training
        self._model.eval()
        try:
            with torch.no_grad(), self._autocast():
                yield
        finally:
            self._model.train(was_training)

    def _shown(self, batches: Sequence[T]) -> Iterable[T]:
        """The batches, with a bar on stderr where one is wanted."""
        if not self.progress:
            return batches
        progress = require("rich.progress", extra="models")
        console = require("rich.console", extra="models").Console(stderr=True)
        shown: Iterable[T] = progress.track(batches, description=self.title, console=console)
        return shown

    def _tell_of_long_pairs(self, num_cut: int, num_pairs: int) -> None:
        # Once: a reward meets such pairs in every step.
        if num_cut and not self._told_of_long_pairs:
            self._told_of_long_pairs = True
            _log.warning(
                "%d of %d report pairs have more than %d tokens and were cut; %s",
                num_cut,
                num_pairs,
                self.max_length,
                self._advice,
            )

    @cached_property
    def _model(self) -> nn.Module:
        return self._load() if self._given is None else self._given

    @cached_property
    def _weights_hash(self) -> str:
        return weights_hash(self._weight_files())
