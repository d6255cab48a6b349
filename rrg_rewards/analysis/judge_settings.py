"""Settings of the analyses that query a judge, declared once for Python and the command line. Imports nothing heavy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rrg_rewards.analysis.settings import (
    LANGUAGE_MODEL,
    batch_size_setting,
    column_setting,
    context_setting,
    seed_setting,
)
from rrg_rewards.utilities.settings import SettingError, check_settings, setting


@dataclass(frozen=True, kw_only=True)
class JudgeLimits:
    """Prices and rate limits of a server.

    Args:
        price_in: Price of a million prompt tokens.
        price_out: Price of a million completion tokens.
        requests_per_minute: Maximum requests per minute. Default: no limit.
        tokens_per_minute: Maximum tokens per minute, of prompts and answers. Default: no limit.

    Raises:
        SettingError: If only one price is given, a price is negative, or a rate is not positive.

    Example:
        >>> JudgeLimits(price_in=2.5, price_out=10, requests_per_minute=60).arguments()
        {'price': (2.5, 10), 'requests_per_minute': 60}
    """

    price_in: float | None = setting(None, "price of a million prompt tokens", metavar="X")
    price_out: float | None = setting(None, "price of a million completion tokens", metavar="X")
    requests_per_minute: float | None = setting(None, "maximum requests per minute (default: no limit)", metavar="N")
    tokens_per_minute: float | None = setting(
        None, "maximum tokens per minute, of prompts and answers (default: no limit)", metavar="N"
    )

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 0 if name.startswith("price") else math.ulp(0)
            if value is not None and not least <= value < math.inf:
                raise SettingError(name, f"must be a positive number, got {value!r}")
        if (self.price_in is None) != (self.price_out is None):
            raise SettingError(None, "--price-in and --price-out go together")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a judge that are set."""
        arguments = {
            "price": None if self.price_in is None else (self.price_in, self.price_out),
            "requests_per_minute": self.requests_per_minute,
            "tokens_per_minute": self.tokens_per_minute,
        }
        return {name: value for name, value in arguments.items() if value is not None}


def _source() -> Any:
    return setting("judge", "value of `source` in the output (default: judge)", metavar="TEXT")


@dataclass(frozen=True, kw_only=True)
class CountingSettings:
    """Settings of :func:`~rrg_rewards.analysis.count_errors`.

    Args:
        reference_column: Column of references.
        prediction_column: Column of predictions.
        max_pairs: Number of pairs to use, the first of the table.
        source: Value of ``source`` in the output.
    """

    reference_column: str = column_setting("references", "reference")
    prediction_column: str = column_setting("predictions", "prediction")
    max_pairs: int | None = setting(None, "use the first N pairs only", metavar="N", minimum=1)
    source: str = _source()

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class GradingSettings:
    """Settings of :func:`~rrg_rewards.analysis.grade_reports`.

    Args:
        report_column: Column of references.
        system: Scoring system: ``radcliq``, ``mrscore``, the path of a YAML file, or a
            :class:`~rrg_rewards.schemas.ScoringSystem`.
        tiers: Lowest and highest total of each tier, or a text of them in YAML. Default: the tiers of the system, or
            else thirds of its range of totals.
        per_tier: Reports for each reference and tier.
        max_reports: Number of references to use, the first of the table.
        source: Value of ``source`` in the output.
    """

    report_column: str = column_setting("references", "report")
    system: Any = setting(
        "radcliq", "scoring system: radcliq, mrscore or a .yaml file (default: radcliq)", metavar="NAME"
    )
    tiers: Any = setting(
        None,
        '[lowest, highest] total of each tier, for example "[[-2, 0], [-4, -3]]" (default: the tiers of the system, or '
        "else thirds of the range of totals)",
        metavar="LIST",
    )
    per_tier: int = setting(1, "reports for each reference and tier (default: 1)", metavar="N", minimum=1)
    max_reports: int | None = setting(None, "use the first N references only", metavar="N", minimum=1)
    source: str = _source()

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """Settings of :func:`~rrg_rewards.analysis.label_pairs`.

    Args:
        reference_column: Column of references.
        candidate_column: Column of candidates.
        source_column: Column that names the source of a candidate.
        context: Context columns by the name of their argument, such as ``{"age": "patient_age"}``.
        prompt: Prompt for a language model, as in :class:`~rrg_rewards.judges.tasks.crimson.CrimsonTask`.
    """

    reference_column: str = column_setting("references", "reference")
    candidate_column: str = column_setting("candidates", "candidate")
    source_column: str | None = setting(None, "column that names the source of a candidate", metavar="NAME")
    context: Mapping[str, str] = context_setting()
    prompt: Literal["own", "guidelines", "compact", "crimson-score", "crimson-score-guidelines"] = setting(
        "own", "prompt for a language model (default: own)"
    )

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class CandidateSettings:
    """Settings of :func:`~rrg_rewards.analysis.add_candidates`.

    Args:
        report_column: Column of references.
        regimes: Regimes to draw from: ``edited``, ``random``, ``matched``, ``generated``.
        encoder: Encoder of the regime ``matched``: a folder, a Hub id, or a function that returns the embeddings of
            reports.
        generated_column: Column of a model's reports, for the regime ``generated``.
        per_report: Candidates for each reference.
        modality: Modality of invented findings. Default: by the words of the report.
        seed: Seed of all draws.
    """

    report_column: str = column_setting("references", "report")
    regimes: Sequence[str] = setting(
        ("edited", "random"),
        "regimes to draw from: edited, random, matched, generated (default: edited,random)",
        metavar="NAME[,NAME...]",
        separator=",",
    )
    encoder: Any = setting(None, "folder or Hub id of the encoder of the regime matched", metavar="MODEL")
    generated_column: str | None = setting(None, "column of a model's reports", metavar="NAME")
    per_report: int = setting(1, "candidates for each reference (default: 1)", metavar="N", minimum=1)
    modality: Literal["ct", "xray"] | None = setting(
        None, "modality of invented findings (default: by the words of the report)"
    )
    seed: int = seed_setting()

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class QuestionSettings:
    """Settings of :func:`~rrg_rewards.analysis.build_question_items`.

    Args:
        text_column: Column of the report texts.
        id_column: Column of report ids. Default: row numbers.
        schema: Question schema: ``ct_rate``, ``merlin``, the path of a YAML file, or a
            :class:`~rrg_rewards.questions.QuestionSchema`.
        judge: Language model that reads the reports, as in :func:`~rrg_rewards.judges.get_judge`. Default: the finding
            engine, or rules.
        labels: Use only findings whose label is 1, in columns named like the findings.
        label_prefix: The same, with columns named by this text and the label.
        batch_size: Number of reports that the judge gets at a time.
    """

    text_column: str = setting("report", "column of the report texts", metavar="NAME")
    id_column: str | None = setting(None, "column of report ids (default: row numbers)", metavar="NAME")
    schema: Any = setting(
        "ct_rate", "question schema: ct_rate, merlin or a YAML file (default: ct_rate)", metavar="NAME"
    )
    judge: Any = setting(None, f"{LANGUAGE_MODEL} (default: the finding engine)", metavar="JUDGE")
    labels: bool = setting(False, "make items only for findings whose label is 1, in columns named like the findings")
    label_prefix: str | None = setting(None, "the same, with columns named TEXT + label", metavar="TEXT")
    batch_size: int = batch_size_setting()

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def has_labels(self) -> bool:
        """Whether the labels of the reports are read."""
        return self.labels or self.label_prefix is not None


@dataclass(frozen=True, kw_only=True)
class MiningSettings(QuestionSettings):
    """Settings of :func:`~rrg_rewards.analysis.mine_attributes`; the others are those of :class:`QuestionSettings`.

    Args:
        min_count: Minimum count of a pair of finding and attribute.

    Raises:
        SettingError: If labels are set without a judge.
    """

    min_count: int = setting(50, "minimum count of a pair (default: 50)", metavar="N", minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.judge is None and self.has_labels:
            raise SettingError("labels", "needs --judge; the finding engine counts findings that are no labels, too")


@dataclass(frozen=True, kw_only=True)
class SensitivitySettings(QuestionSettings):
    """Settings of :func:`~rrg_rewards.analysis.make_versions`; the others are those of :class:`QuestionSettings`.

    Args:
        seed: Random seed of the versions that rules make, not negative.
        limit: Number of reports to use, the first of the table.
    """

    seed: int = seed_setting()
    limit: int | None = setting(None, "use the first N reports only", metavar="N", minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seed < 0:
            raise SettingError("seed", f"must not be negative, got {self.seed}")
