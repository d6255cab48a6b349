"""GEMA-Score by its distilled language models as a report metric."""

from functools import cached_property
from typing import Any

import torch

from rrg_rewards.metrics.callable import CallableMetric
from rrg_rewards.schemas.scoring import is_number
from rrg_rewards.utilities.backend import MODEL_REFUSAL, Backend
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.signature import describe_code, format_signature

_VALUE = "weighted_final_score"
# Grades in the model's answer, and its counts of errors, which it names with a space.
_QUALITIES = ("completeness_score", "readability_score", "clinical_utility_score")
_ERRORS = {
    f"{aspect}_{kind}": f"{aspect} {kind}"
    for aspect in ("entity_name", "location", "severity", "uncertainty")
    for kind in ("false_prediction", "omission")
}
# The default of the package's evaluate_report_json.
_REPETITION_PENALTY = 1.2


class GemaScoreMetric(CallableMetric):
    """GEMA-Score: a language model counts errors of entities and grades the report; higher is better.

    The score of a pair is ``weighted_final_score`` of the model's answer, and the corpus value is the mean. Sub-scores
    are the grades of completeness, readability and clinical utility, and the numbers of false predictions and omissions
    of entities, locations, severities and uncertainties. Prompt, weights and parsing are those of the package
    ``gemascore``, which loads its model for every pair; here it is loaded once. An answer that cannot be read has no
    score, and its reason is not kept.

    Requires the extra ``gemascore``. The package downloads the weights and loads them with ``trust_remote_code=True``:
    code of the model's repository runs.

    Args:
        model: One of ``ct-qwen``, ``ct-llama``, ``xray-qwen`` and ``xray-llama``.
        model_path: Folder with the weights, instead of a download.
        device: Device, such as ``cpu``; ``auto`` chooses one.
        dtype: ``fp16``, ``bf16`` or ``fp32``. Default: that of the weights.
        max_new_tokens: Maximum length of an answer.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ModuleNotFoundError: If ``gemascore`` is not installed; the message contains the pip command.
        ValueError: If the model is unknown.

    Example:
        >>> from rrg_rewards.integrations.gemascore import GemaScoreMetric
        >>> metric = GemaScoreMetric("ct-qwen", device="cuda", dtype="bf16")      # doctest: +SKIP
        >>> metric.update(["Small effusion."], ["Small pleural effusion."])       # doctest: +SKIP
    """

    def __init__(
        self,
        model: str = "ct-qwen",
        *,
        model_path: str | None = None,
        device: str = "auto",
        dtype: str | None = None,
        max_new_tokens: int = 2048,
        **kwargs: Any,
    ) -> None:
        self.scorer = _GemaScorer(model, model_path, device, dtype, max_new_tokens)
        parts = [*_QUALITIES, *_ERRORS]
        super().__init__(self.scorer, name="gemascore", higher_is_better=True, value=_VALUE, parts=parts, **kwargs)

    @property
    def signature(self) -> str:
        """Name, version of the package, and model, in one line."""
        shown = {name: str(value) for name, value in self.scorer.arguments().items() if name != "device"}
        return format_signature(self.name, **describe_code(_module("evaluator").evaluate_report_json), **shown)


class _GemaScorer(Backend):
    """GEMA-Score as a function of predictions and references."""

    def __init__(self, model: str, model_path: str | None, device: str, dtype: str | None, max_new_tokens: int) -> None:
        self.model = model
        self.model_path = model_path
        self.device = device
        self.dtype = dtype
        self.max_new_tokens = max_new_tokens
        _module("registry").resolve_model_choice(model)

    @property
    def worker_refusal(self) -> str | None:
        """Why worker processes must not have a copy each: each would load the model."""
        return MODEL_REFUSAL

    def arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("model", "model_path", "device", "dtype", "max_new_tokens")}

    @cached_property
    def loaded(self) -> tuple[Any, Any]:
        """The model and its processor."""
        models, choice = _module("model"), _module("registry").resolve_model_choice(self.model)
        folder = models.resolve_model_dir(model_path=self.model_path, cache_dir=None, token=None, **choice)
        model, processor = models.load_model_and_processor(model_dir=folder, device=self.device, dtype=self.dtype)
        return model, processor

    def __call__(self, predictions: list[str], references: list[str]) -> dict[str, list[float | None]]:
        answers = [self._answer(*pair) for pair in zip(predictions, references, strict=True)]
        names = {name: name for name in (_VALUE, *_QUALITIES)} | _ERRORS
        return {name: [_number(answer.get(key)) for answer in answers] for name, key in names.items()}

    def _answer(self, prediction: str, reference: str) -> dict[str, Any]:
        """Return the model's answer; empty if it cannot be read."""
        # As evaluate_report_json of the package does, which loads the model first.
        model, processor = self.loaded
        prompt = _module("prompt").build_prompt(candidate_report=prediction, reference_report=reference)
        inputs = {name: given.to(model.device) for name, given in processor(text=prompt, return_tensors="pt").items()}
        with torch.no_grad():
            tokens = model.generate(
                **inputs, max_new_tokens=self.max_new_tokens, repetition_penalty=_REPETITION_PENALTY
            )
        parser = _module("parser")
        try:
            found = parser.extract_json_from_output(processor.batch_decode(tokens, skip_special_tokens=True)[0])
        except parser.GemaScoreParseError:
            return {}
        return found if isinstance(found, dict) else {}


def _module(name: str) -> Any:
    return require(f"gemascore.{name}", "gemascore")


def _number(value: Any) -> float | None:
    return float(value) if is_number(value) else None
