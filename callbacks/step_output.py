"""Reports and context in the output of a validation or test step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rrg_rewards.utilities.checks import check_same_length

__all__ = ["ReportBatch", "StepOutput"]


@dataclass(frozen=True)
class ReportBatch:
    """The reports of one step.

    Args:
        preds: Candidate reports.
        target: Reference reports.
        identifiers: Identifier of each pair, or ``None``.
        context: Further columns by metric and argument.
    """

    preds: Sequence[str | None]
    target: Sequence[str | None]
    identifiers: Sequence[Any]
    context: Mapping[str, Mapping[str, Sequence[Any]]]

    def __len__(self) -> int:
        return len(self.preds)


class StepOutput:
    """Reads reports and context from the output of a step.

    Args:
        prediction_key: Key of the candidate reports.
        reference_key: Key of the reference reports.
        context_keys: Keys of further columns, either by argument for all metrics, or by metric and argument.
        id_key: Key of the report identifiers.
        metrics: Names of the metrics.

    Raises:
        ValueError: If ``context_keys`` names an unknown metric.

    Example:
        >>> output = StepOutput("prediction", "reference", {"target_labels": "labels"}, None, ["crg"])
        >>> batch = output.read({"prediction": ["a"], "reference": ["b"], "labels": [[0, 1]]}, "validation_step")
        >>> batch.preds, batch.context
        (['a'], {'crg': {'target_labels': [[0, 1]]}})
    """

    def __init__(
        self,
        prediction_key: str,
        reference_key: str,
        context_keys: Mapping[str, str | Mapping[str, str]],
        id_key: str | None,
        metrics: Sequence[str],
    ) -> None:
        shared = {argument: key for argument, key in context_keys.items() if isinstance(key, str)}
        own = {name: dict(keys) for name, keys in context_keys.items() if not isinstance(keys, str)}
        if unknown := own.keys() - set(metrics):
            raise ValueError(
                f"context_keys: unknown metric {', '.join(sorted(unknown))}; the metrics are {', '.join(metrics)}"
            )
        self.prediction_key = prediction_key
        self.reference_key = reference_key
        self.context_keys = {name: {**shared, **own.get(name, {})} for name in metrics}
        self.id_key = id_key

    def read(self, outputs: Any, step: str) -> ReportBatch:
        """Read the columns from the output of ``step``; tensors are converted to lists.

        Raises:
            TypeError: If the output is not a dict.
            ValueError: If the output lacks a key, or the numbers of identifiers and reports differ.
        """
        preds, target = (self._column(outputs, step, key) for key in (self.prediction_key, self.reference_key))
        identifiers: Sequence[Any] = [None] * len(preds)
        if self.id_key is not None:
            identifiers = self._column(outputs, step, self.id_key)
            check_same_length(self.prediction_key, preds, self.id_key, identifiers)
        return ReportBatch(
            preds,
            target,
            identifiers,
            context={
                name: {argument: self._column(outputs, step, key) for argument, key in keys.items()}
                for name, keys in self.context_keys.items()
            },
        )

    def _column(self, outputs: Any, step: str, key: str) -> Sequence[Any]:
        wanted = (
            f"return {{{self.prediction_key!r}: [...], {self.reference_key!r}: [...]}}, "
            "with empty lists for a batch without reports"
        )
        if not isinstance(outputs, Mapping):
            raise TypeError(f"{step} returned {type(outputs).__name__}, which contains no reports; {wanted}")
        if key not in outputs:
            present = ", ".join(map(repr, outputs)) or "nothing"
            raise ValueError(f"the output of {step} lacks {key!r}; it contains {present}; {wanted}")
        column = outputs[key]
        values: Sequence[Any] = column.tolist() if isinstance(column, Tensor) else column
        return values
