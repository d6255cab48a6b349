"""Prediction for report pairs, shared by CREPE and ER²Score: tokens, batches, loading and precision."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from rrg_rewards.models.loading import process_device
from rrg_rewards.models.state_dicts import weights_hash
from rrg_rewards.utilities.backend import MODEL_REFUSAL, Backend
from rrg_rewards.utilities.checks import check_model_source, check_reports, check_same_length
from rrg_rewards.utilities.precision import fastest_dtype, own_precision

TokensT = TypeVar("TokensT")


class PairTokenizer(ABC, Generic[TokensT]):
    """Tokenise report pairs with a copy of a fast tokenizer; each distinct text is tokenised once.

    Args:
        tokenizer: A fast tokenizer of transformers. It is not changed.
        max_length: Maximum number of tokens of a sequence, special tokens included.

    Raises:
        ValueError: If the tokenizer is not a fast one.
    """

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(f"{type(tokenizer).__name__} must be a fast tokenizer, one with a tokenizer.json")
        backend = tokenizer.backend_tokenizer
        # Truncation and padding from a tokenizer file must not change the reports. The copy leaves the given tokenizer
        # unchanged.
        self._backend = type(backend).from_str(backend.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        # Padding is masked, so any token id is valid.
        self._pad_token_id = tokenizer.pad_token_id or 0
        self.max_length = max_length

    def __call__(self, references: Sequence[str], candidates: Sequence[str]) -> list[TokensT]:
        """Tokenise report pairs.

        Args:
            references: ``N`` reference reports.
            candidates: ``N`` candidate reports.

        Returns:
            The tokens of each pair.

        Raises:
            ValueError: If lengths differ.
        """
        check_same_length("references", references, "candidates", candidates)
        texts = list(dict.fromkeys([*references, *candidates]))
        encodings = dict(zip(texts, self._encode(texts), strict=True))
        return [
            self._tokenize(candidate, encodings[reference], encodings[candidate])
            for reference, candidate in zip(references, candidates, strict=True)
        ]

    @abstractmethod
    def _tokenize(self, candidate: str, first: Any, second: Any) -> TokensT:
        """Combine the encodings of a reference and of a candidate, whose text may be empty."""

    def _encode(self, texts: Sequence[str]) -> list[Any]:
        """Encode texts without special tokens."""
        encodings: list[Any] = self._backend.encode_batch(list(texts), add_special_tokens=False)
        return encodings

    def _padded(self, rows: Sequence[Sequence[int]], left: bool = False) -> tuple[Tensor, Tensor]:
        """Pad rows of token ids to the longest; return ids and attention mask, each int64 ``(N, T)``."""
        longest = max(map(len, rows))
        ids, mask = [], []
        for row in rows:
            padding = [self._pad_token_id] * (longest - len(row))
            masked, kept = [0] * len(padding), [1] * len(row)
            ids.append([*padding, *row] if left else [*row, *padding])
            mask.append([*masked, *kept] if left else [*kept, *masked])
        return torch.tensor(ids), torch.tensor(mask)


def shares(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens each of two texts keeps: half of the room, plus those that the other does not use.

    An odd token goes to the longer text; if both have the same length, to the second.

    Example:
        >>> shares(300, 40, room=100), shares(300, 300, room=101)
        ((60, 40), (50, 51))
    """
    shorter = min(first, second, room // 2)
    longer = min(max(first, second), room - shorter)
    return (shorter, longer) if first <= second else (longer, shorter)


def packed_batches(lengths: Sequence[int], token_budget: int, batch_cost: int = 0) -> list[list[int]]:
    r"""Divide sequences into batches of minimal total cost.

    Sequences are sorted by length and divided to minimise the sum over batches of ``batch_cost`` and the padded tokens
    (rows times the longest sequence). No batch has more than ``token_budget`` padded tokens, except for a longer
    sequence, which is the only one in its batch. The longest sequences come first, so that a batch that exceeds the
    memory fails early.

    Args:
        lengths: Number of tokens of each of ``N`` sequences.
        token_budget: Maximum number of padded tokens of a batch.
        batch_cost: Fixed cost of a batch, in tokens.

    Returns:
        Indices of the sequences in each batch; every index occurs once.

    Example:
        >>> packed_batches([10, 500, 12, 480], token_budget=1024, batch_cost=64)
        [[3, 1], [0, 2]]
        >>> packed_batches([10, 500, 12, 480], token_budget=4096, batch_cost=2000)
        [[0, 2, 3, 1]]
    """
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    # least[end] is the minimal cost of the first `end` sequences, begins[end] the start of their last batch.
    least, begins = [0.0], [0]
    for end in range(1, len(order) + 1):
        longest = lengths[order[end - 1]]
        first = max(0, end - max(1, token_budget // max(longest, 1)))
        costs = [least[begin] + batch_cost + (end - begin) * longest for begin in range(first, end)]
        chosen = min(range(len(costs)), key=costs.__getitem__)
        least.append(costs[chosen])
        begins.append(first + chosen)
    batches, end = [], len(order)
    while end:
        batches.append(order[begins[end] : end])
        end = begins[end]
    return batches


Precision = Literal["auto", "float32", "bfloat16", "float16"]


# Fixed cost of a batch, in tokens. On a GPU, it is the cost of launching kernels.
_BATCH_COST = {"cpu": 64}
_BATCH_COST_ELSEWHERE = 4096

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PairPredictorOptions:
    """Options of every :class:`PairPredictor`, which :class:`rrg_rewards.metrics.CREPE` and ``ER2Score`` describe.

    Raises:
        ValueError: If ``dtype`` is unknown or ``token_budget`` is not positive.
    """

    max_length: int | None
    token_budget: int
    dtype: Precision
    device: str | None
    revision: str | None

    def __post_init__(self) -> None:
        if self.dtype not in get_args(Precision):
            raise ValueError(f"dtype must be one of {', '.join(get_args(Precision))}, got {self.dtype!r}")
        if self.token_budget < 1:
            raise ValueError(f"token_budget must be positive, got {self.token_budget}")


class PairPredictor(Backend, ABC):
    """Predict numbers for report pairs with a model that reads both reports.

    Distinct pairs run once each. The model is loaded at the first pair, and once per process for all predictors with
    the same model and options (:func:`rrg_rewards.models.loading.load_frozen`). No data leave the process.

    A model that is passed as an object is used unchanged: copies of the predictor share it, it runs in eval mode on its
    own device, and the predictor cannot be pickled.

    Subclasses read the configuration, load the model and run distinct pairs.

    Args:
        model: Folder or Hub id of a model, or the model.
        tokenizer: The tokenizer, or its folder or Hub id; default: the model's.
        options: Options of the subclass.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the configuration belongs to another kind of model, a model object has no tokenizer or weights of
            another half-precision type than the chosen one, or ``max_length`` is longer than the model allows.
    """

    _model_kind: ClassVar[str]
    """Class of the model with its article, for messages."""

    _part: ClassVar[str]
    """Part of the model that limits ``max_length``, for messages."""

    options: PairPredictorOptions

    def __init__(self, model: str | Path | nn.Module, tokenizer: Any, options: PairPredictorOptions) -> None:
        self._given = model if isinstance(model, nn.Module) else None
        self.model = type(model).__name__ if isinstance(model, nn.Module) else str(model)
        if self._given is None:
            check_model_source(self.model, "model")
        self.tokenizer = tokenizer
        self.options = options
        self.config = self._given_config() if self._given is not None else self._load_config()
        if self._given is not None and tokenizer is None and getattr(self._given, "tokenizer", None) is None:
            raise ValueError("a model given as an object needs its tokenizer")
        if (stored := self._given_half_type) is not None and options.dtype not in ("auto", stored):
            raise ValueError(
                f"dtype is {options.dtype!r}, but the {self.model} has weights in {stored}, and a model given as an "
                f"object is used unchanged; set dtype='auto', or convert the model: model.to(torch.{options.dtype})"
            )
        self.max_length = self._checked_length()
        self._warned_of_long_pairs = False
        self._logged_dtype = False

    @property
    def worker_refusal(self) -> str | None:
        """Why worker processes must not have a copy each: each would load the model."""
        return MODEL_REFUSAL

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this predictor.

        Raises:
            TypeError: If the model was passed as an object, which cannot be written as an argument.
        """
        if self._given is not None:
            raise TypeError(
                f"a {self.model} given as an object cannot be pickled; write it and its tokenizer by save_pretrained, "
                "and give the folder"
            )
        return {"model": self.model, "tokenizer": self.tokenizer, "options": self.options}

    @property
    def weights_name(self) -> str:
        """Name of the model and the first digits of the SHA-256 of its weights."""
        if self._given is not None:
            return f"{self.model}@{weights_hash(self._given.state_dict())}"
        return f"{Path(self.model).name}@{self._weights_hash}"

    @property
    def dtype(self) -> str:
        """Type of the arithmetic, never ``"auto"``: the chosen type, else the fastest of the device.

        A model that is passed as an object with half-precision weights computes in their type.
        """
        if (stored := self._given_half_type) is not None:
            return stored
        if self.options.dtype != "auto":
            return self.options.dtype
        return fastest_dtype(process_device(self.options.device) if self._given is None else self._device)

    def __call__(self, references: Sequence[str], candidates: Sequence[str]) -> Tensor:
        """Predict numbers for report pairs.

        Args:
            references: ``N`` reference reports.
            candidates: ``N`` candidate reports.

        Returns:
            ``(N, C)``, float32 on the CPU.

        Raises:
            TypeError: If a report is not a text, naming argument and row.
            ValueError: If lengths differ.
        """
        check_reports("references", references)
        check_reports("candidates", candidates)
        pairs = list(zip(references, candidates, strict=True))
        unique = {pair: row for row, pair in enumerate(dict.fromkeys(pairs))}
        if not unique:
            return torch.zeros(0, self._num_outputs, dtype=torch.float32)
        self._log_dtype()
        with own_precision():
            found = self._predict([pair[0] for pair in unique], [pair[1] for pair in unique])
        return found[[unique[pair] for pair in pairs]]

    @property
    def batch_cost(self) -> int:
        """Fixed cost of a batch on the model's device, in tokens."""
        return _BATCH_COST.get(self._device.type, _BATCH_COST_ELSEWHERE)

    @property
    @abstractmethod
    def _num_outputs(self) -> int:
        """Number of outputs per pair."""

    @abstractmethod
    def _predict(self, references: Sequence[str], candidates: Sequence[str]) -> Tensor:
        """Return the outputs of at least one distinct pair: float32 ``(N, C)`` on the CPU."""

    @property
    @abstractmethod
    def _config_class(self) -> type:
        """Class of the model's configuration."""

    @abstractmethod
    def _load_config(self) -> Any:
        """Load the configuration of a model that is not passed as an object."""

    @abstractmethod
    def _load(self) -> nn.Module:
        """Load a model that is not passed as an object."""

    @abstractmethod
    def _load_tokenizer(self) -> Any:
        """Load a tokenizer that is not passed as an object."""

    @abstractmethod
    def _weight_files(self) -> Path | list[Path]:
        """The files whose hash identifies the weights."""

    @abstractmethod
    def _lengths(self) -> tuple[int, int | None]:
        """Default of ``max_length``, and its limit if there is one."""

    def _given_config(self) -> Any:
        config = getattr(self._given, "config", None)
        if not isinstance(config, self._config_class):
            raise ValueError(f"model must be {self._model_kind}, a folder or a Hub id, got {self.model}")
        return config

    def _checked_length(self) -> int:
        default, limit = self._lengths()
        chosen = self.options.max_length
        if chosen is not None and limit is not None and chosen > limit:
            raise ValueError(f"max_length is {chosen}, but the {self._part} takes {limit} tokens at most")
        return default if chosen is None else chosen

    @property
    def _given_half_type(self) -> str | None:
        """Type of the weights of a model that was passed as an object, if it is narrower than float32."""
        kinds = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
        weights = () if self._given is None else self._given.parameters()
        return next((kinds[value.dtype] for value in weights if value.dtype in kinds), None)

    @property
    def _device(self) -> torch.device:
        return next(self._model.parameters()).device

    def _to_device(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: values.to(self._device) for name, values in batch.items()}

    @contextmanager
    def _inference(self) -> Iterator[None]:
        """Run the model in eval mode, without gradients and under autocast; restore its mode afterwards."""
        dtype = self.dtype
        autocast = torch.autocast(self._device.type, dtype=getattr(torch, dtype), enabled=dtype != "float32")
        was_training = self._model.training
        self._model.eval()
        try:
            with torch.no_grad(), autocast:
                yield
        finally:
            self._model.train(was_training)

    def _log_dtype(self) -> None:
        # The type depends on the machine, and the machines of a run may differ.
        if not self._logged_dtype:
            self._logged_dtype = True
            _log.info("%s computes in %s on %s (dtype=%r)", self.model, self.dtype, self._device, self.options.dtype)

    def _warn_of_long_pairs(self, num_cut: int, num_pairs: int) -> None:
        # Warn once, because a reward may receive such pairs in every step.
        if num_cut and not self._warned_of_long_pairs:
            self._warned_of_long_pairs = True
            _log.warning(
                "%d of %d report pairs have more than %d tokens and were cut; each report keeps its first tokens; "
                "max_length sets the limit",
                num_cut,
                num_pairs,
                self.max_length,
            )

    @cached_property
    def _model(self) -> nn.Module:
        return self._load() if self._given is None else self._given

    @cached_property
    def _tokenizer(self) -> Any:
        named = self.tokenizer is None or isinstance(self.tokenizer, str | Path)
        return self._load_tokenizer() if named else self.tokenizer

    @cached_property
    def _weights_hash(self) -> str:
        return weights_hash(self._weight_files())
