"""Functions of predictions and references as report metrics."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.backend import Backend
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.plugins import import_object
from rrg_rewards.utilities.signature import describe_code, format_signature


class CallableMetric(ReportMetric):
    """A function of predictions and references as a report metric.

    The function gets two lists of ``N`` texts, and returns ``N`` scores: a sequence, an array or a tensor ``(N,)``; or
    a mapping of names to such scores. ``None`` and NaN mean that a pair has no score. The function never gets an
    unscorable pair (see :class:`ReportMetric`) or an empty list. Its further parameters are context columns, or set by
    ``options``. The corpus value is the mean over scored pairs.

    The function is shared by copies of the metric. To be pickled, as processes of data loaders and of Ray require, it
    must be importable: not a lambda and not defined within a function. An object that holds a model should derive from
    :class:`rrg_rewards.utilities.backend.Backend`.

    Args:
        function: The function, or its path ``"module:function"``.
        name: Name of the metric in logs, tables and rewards. Default: the name of the function.
        higher_is_better: Whether higher scores are better; the sign of the reward. ``None`` if neither is, which
            excludes rewards.
        value: Name of the score in a mapping that the function returns; not needed if it has one entry.
        parts: Names of further entries of the mapping to report as sub-scores.
        options: Further arguments of the function that are the same in each call.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        TypeError: If the function cannot be called, or is asynchronous.
        ValueError: If the function has no name and none is given, or ``parts`` contains ``value``. When called, if it
            returns another number of scores, an infinite score, or no entry ``value``.

    Example:
        >>> from rrg_rewards.metrics import CallableMetric
        >>> def length_gap(predictions, references):
        ...     return [abs(len(p.split()) - len(r.split())) for p, r in zip(predictions, references)]
        >>> metric = CallableMetric(length_gap, higher_is_better=False)
        >>> metric.update(["Small effusion.", "Normal."], ["Small left effusion.", "Normal."])
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
        >>> from rrg_rewards.rewards import MetricReward
        >>> MetricReward(metric)(completions=["Small effusion."], reference=["Small left effusion."])
        [-1.0]
    """

    def __init__(
        self,
        function: Callable[..., Any] | str,
        *,
        name: str | None = None,
        higher_is_better: bool | None = True,
        value: str | None = None,
        parts: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(parts, str):
            names = [name.strip() for name in parts.split(",")]
            raise TypeError(f"parts must be a list of names, got {shown(parts)}; pass {names}")
        super().__init__(parts=parts, **kwargs)
        function = import_object(function, "function") if isinstance(function, str) else function
        _check_function(function)
        self._function = _Function(function)
        self._name = name or _name(function)
        self.value_name = value
        self.options = dict(options or {})
        self._higher_is_better = higher_is_better
        if value in self.parts:
            raise ValueError(f"parts must not contain {value!r}, which is the score itself")
        self._further = function_parameters(function)

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the metric in logs, tables and rewards."""
        return self._name

    @property
    def context(self) -> tuple[str, ...] | None:  # type: ignore[override]
        """Parameters of the function that may be columns; ``None`` for any name."""
        if self._further is None:
            return None
        return tuple(name for name in self._further if name not in self.options)

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """Whether higher scores are better."""
        return self._higher_is_better

    @property
    def function(self) -> Callable[..., Any]:
        """The function."""
        return self._function.function

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the sub-scores."""
        return self._parts or ()

    @property
    def signature(self) -> str:
        """Name, function with the version of its package, and settings in one line."""
        value = {} if self.value_name is None else {"value": self.value_name}
        options = {option: repr(value) for option, value in sorted(self.options.items())}
        return format_signature(self.name, **describe_code(self.function), **value, **options)

    def extra_repr(self) -> str:
        """Name and sign."""
        return f"{self.name!r}, higher_is_better={self.higher_is_better}"

    def _read_context(self, context: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
        required = {name for name, needed in (self._further or {}).items() if needed}
        missing = sorted(required - context.keys() - self.options.keys())
        if missing:
            raise TypeError(
                f"{self.name} needs {', '.join(missing)}: pass a column of this name (context), or a value for all "
                "pairs (options)"
            )
        return context

    def _score(self, preds: Sequence[str], target: Sequence[str], **context: Sequence[Any]) -> Scores:
        empty = torch.empty(0, dtype=torch.float64)
        if not preds:
            return Scores(empty, dict.fromkeys(self.parts, empty))
        result = self.function(list(preds), list(target), **context, **self.options)
        if not isinstance(result, Mapping):
            if self.value_name is not None or self.parts:
                raise ValueError(f"{self.name} returned {type(result).__name__}, not a mapping; omit value and parts")
            return Scores(self._values("scores", result, len(preds)))
        key = self._chosen(result)
        values = {name: self._values(name, result[name], len(preds)) for name in (key, *self.parts)}
        return Scores(values.pop(key), values)

    def _chosen(self, result: Mapping[str, Any]) -> str:
        """Return the key of the score; raise if the key or a part is missing."""
        known = ", ".join(map(str, result))
        if self.value_name is None and len(result) > 1:
            raise ValueError(f"{self.name} returned several scores; set value to one of {known}")
        key = next(iter(result), "") if self.value_name is None else self.value_name
        for name in (key, *self.parts):
            if name not in result:
                raise ValueError(f"{self.name} returned no score {name!r}, only {known or 'an empty mapping'}")
        return key

    def _values(self, name: str, values: Any, num_pairs: int) -> Tensor:
        """Return scores of a function as a float64 tensor ``(N,)``."""
        if getattr(values, "ndim", 0):
            values = values.tolist()
        if isinstance(values, str | Mapping) or not hasattr(values, "__iter__"):
            raise TypeError(
                f"{self.name} returned {type(values).__name__} as {name}; it must return one number for each pair"
            )
        found = [_number(self.name, name, row, value) for row, value in enumerate(values)]
        if len(found) != num_pairs:
            raise ValueError(f"{self.name} returned {len(found)} {name} for {num_pairs} report pairs")
        return torch.tensor(found, dtype=torch.float64)


class _Function(Backend):
    """A function that copies of a metric share, and that is no submodule of them, even if it is a torch module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def arguments(self) -> dict[str, Any]:
        return {"function": self.function}


def _check_function(function: Any) -> None:
    if not callable(function):
        raise TypeError(f"function must be a function, or the path of one, got {type(function).__name__}")
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        raise TypeError("function is asynchronous; pass a function that returns scores, or subclass JudgedMetric")
    try:
        inspect.signature(function).bind_partial([], [])
    except ValueError:
        # Some functions written in C have no signature.
        return
    except TypeError as error:
        raise TypeError(f"function must take two lists, predictions and references: {error}") from error


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "" if hasattr(function, "func") else type(function).__name__)
    if not name.isidentifier():
        raise ValueError("name must be set for a function without a name, such as a lambda or a partial")
    return name


def _number(metric: str, name: str, row: int, value: Any) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, str) or not hasattr(value, "__float__"):
        raise TypeError(f"{metric}: {name}[{row}] must be a number or None, got {type(value).__name__}")
    return float(value)


def function_parameters(function: Callable[..., Any]) -> dict[str, bool] | None:
    """Return the parameters of a function after predictions and references, and whether each has no default.

    Returns:
        ``None`` if the function takes any name; empty if its parameters are unknown.

    Example:
        >>> def score(predictions, references, age, weight=1.0): ...
        >>> function_parameters(score)
        {'age': True, 'weight': False}
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        return {}
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    named = [one for one in parameters[2:] if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    return {one.name: one.default is one.empty for one in named}
