"""RadMatch's count of errors on clinically relevant findings as a report metric."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rrg_rewards.metrics.callable import CallableMetric
from rrg_rewards.utilities.backend import Backend
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.signature import describe_code, format_signature

_VALUE = "actionable_errors"
_PARTS = ("matched_correct", "matched_partial", "matched_incorrect", "invented", "missed")
# RadMatch's names of these counts.
_COUNTS = ("COR", "PAR", "INC", "SPU", "MIS")


class RadMatchMetric(CallableMetric):
    """RadMatch: the number of errors on findings that are not routine; lower is better.

    Language models extract the findings of both reports, match them, and compare the attributes of matched findings.
    The score of a pair is RadMatch's ``actionable_errors_total``, and the corpus value is their mean, which RadMatch
    calls ``actionable_errors_per_report``. Sub-scores are the numbers of matched findings that are correct, partially
    correct and incorrect, of invented findings and of missed ones.

    A pair that RadMatch drops has no score: a language model failed, or the candidate is blank. As a reward, combine
    it with one that scores blank completions.

    Requires the extra ``radmatch``, with Python 3.11 or later. **Reports are sent to the service of the models**,
    unless they are called ``local:NAME``: then to the server of the environment variable ``RADMATCH_LOCAL_BASE_URL``.

    Args:
        judge: Model that matches and compares findings.
        extractor: Model that extracts findings. Default: ``judge``.
        fewshot: Name of a set of examples of RadMatch, such as ``chest-ct``.
        workers: Number of concurrent requests.
        client_factory: Function of a model and a reasoning effort that returns a client of RadMatch, instead of
            RadMatch's own clients.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ModuleNotFoundError: If RadMatch is not installed; the message contains the pip command.

    Example:
        >>> from rrg_rewards.integrations.radmatch import RadMatchMetric
        >>> metric = RadMatchMetric("local:google/gemma-4-31B-it", fewshot="chest-ct")  # doctest: +SKIP
        >>> metric.update(["Small effusion."], ["Small pleural effusion."])             # doctest: +SKIP
    """

    def __init__(
        self,
        judge: str,
        *,
        extractor: str | None = None,
        fewshot: str | None = None,
        workers: int = 15,
        client_factory: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.scorer = _RadMatchScorer(judge, extractor or judge, fewshot, workers, client_factory)
        super().__init__(
            self.scorer, name="radmatch", higher_is_better=False, value=_VALUE, parts=list(_PARTS), **kwargs
        )

    @property
    def signature(self) -> str:
        """Name, RadMatch's version, models and examples, in one line."""
        shown = {"judge": self.scorer.judge, "extractor": self.scorer.extractor, "fewshot": str(self.scorer.fewshot)}
        return format_signature(self.name, **describe_code(_radmatch().run_all), **shown)


class _RadMatchScorer(Backend):
    """RadMatch as a function of predictions and references."""

    def __init__(
        self,
        judge: str,
        extractor: str,
        fewshot: str | None,
        workers: int,
        client_factory: Callable[..., Any] | None,
    ) -> None:
        self.judge = judge
        self.extractor = extractor
        self.fewshot = fewshot
        self.workers = workers
        self.client_factory = client_factory
        _radmatch()

    def arguments(self) -> dict[str, Any]:
        names = ("judge", "extractor", "fewshot", "workers", "client_factory")
        return {name: getattr(self, name) for name in names}

    def __call__(self, predictions: list[str], references: list[str]) -> dict[str, list[float | None]]:
        scores: dict[str, list[float | None]] = {name: [] for name in (_VALUE, *_PARTS)}
        # RadMatch reads and writes folders with a file for each report.
        with TemporaryDirectory() as name:
            folder = Path(name)
            for side, reports in (("predictions", predictions), ("references", references)):
                _write_reports(folder / side, reports)
            _radmatch().run_all(
                reports_pred_dir=folder / "predictions",
                reports_gt_dir=folder / "references",
                output_dir=folder / "output",
                llm_extractor=self.extractor,
                llm_judge=self.judge,
                fewshot=self.fewshot,
                workers=self.workers,
                client_factory=self.client_factory,
            )
            constants = require("radmatch.constants", "radmatch")
            results = folder / "output" / constants.RESULTS_DIR / constants.PER_REPORT_METRICS_DIR
            for row in range(len(predictions)):
                for one, value in _result(results / f"{row}.json").items():
                    scores[one].append(value)
        return scores


def _radmatch() -> Any:
    return require("radmatch", "radmatch")


def _write_reports(folder: Path, reports: Sequence[str]) -> None:
    folder.mkdir()
    for row, report in enumerate(reports):
        (folder / f"{row}.txt").write_text(report, encoding="utf-8")


def _result(path: Path) -> dict[str, float | None]:
    """Return the score and sub-scores of a pair; ``None`` for a pair that RadMatch dropped, which has no file."""
    if not path.is_file():
        return dict.fromkeys((_VALUE, *_PARTS))
    found = json.loads(path.read_text(encoding="utf-8"))
    counts = {part: found["muc_counts"][name] for part, name in zip(_PARTS, _COUNTS, strict=True)}
    return {_VALUE: found["actionable_errors_total"], **counts}
