"""Settings of the analyses that query a judge, declared once for Python and the command line. Imports nothing heavy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rrg_rewards.analysis.settings import (
    LANGUAGE_MODEL,
    batch_size_setting,
    check_scan_settings,
    column_setting,
    context_setting,
    no_chest_setting,
    one_per_scan_setting,
    seed_setting,
)
from rrg_rewards.utilities.settings import SettingError, check_settings, setting


@dataclass(frozen=True, kw_only=True)
class JudgeLimits:
    """Prices and rate limits of a server.

    Args:
        price_in: Price of a million prompt tokens.
        price_out: Price of a million completion tokens.
        price_cached: Price of a million prompt tokens that the server takes from its prefix cache. Default: that of the
            other prompt tokens.
        requests_per_minute: Maximum requests per minute. Default: no limit.
        tokens_per_minute: Maximum tokens per minute, of prompts and answers. Default: no limit.

    Raises:
        SettingError: If only one of ``price_in`` and ``price_out`` is given, or ``price_cached`` without them; if a
            price is negative, or a rate is not positive.

    Example:
        >>> JudgeLimits(price_in=2.5, price_out=10, requests_per_minute=60).arguments()
        {'price': (2.5, 10), 'requests_per_minute': 60}
    """

    price_in: float | None = setting(None, "price of a million prompt tokens", metavar="X")
    price_out: float | None = setting(None, "price of a million completion tokens", metavar="X")
    price_cached: float | None = setting(
        None,
        "price of a million prompt tokens from the server's prefix cache (default: that of the others)",
        metavar="X",
    )
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
        if self.price_cached is not None and self.price_in is None:
            raise SettingError("price_cached", "requires --price-in and --price-out")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a judge that are set."""
        arguments = {
            "price": None if self.price_in is None else (self.price_in, self.price_out),
            "price_cached": self.price_cached,
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
        checks: Checks of its answers, as in the same class.
    """

    reference_column: str = column_setting("references", "reference")
    candidate_column: str = column_setting("candidates", "candidate")
    source_column: str | None = setting(None, "column that names the source of a candidate", metavar="NAME")
    context: Mapping[str, str] = context_setting()
    prompt: Literal["own", "guidelines", "crimson-score", "crimson-score-guidelines"] = setting(
        "own", "prompt for a language model (default: own)"
    )
    checks: Literal["strict", "published"] | None = setting(
        None,
        "answers of a language model that are scored: strict, those that agree with themselves and the reports; "
        "published, those that CRIMSON's published code scores (default: published for the prompts of crimson-score)",
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
        text_column: Column of the report texts, or a template of several, such as ``{Findings_EN} {Impressions_EN}``
            (:meth:`rrg_rewards.data.Table.texts`).
        id_column: Column of report ids. Default: ``key``, or else row numbers.
        schema: Question schema: ``ct_rate``, ``merlin``, the path of a YAML file, or a
            :class:`~rrg_rewards.questions.QuestionSchema`.
        judge: Language model that reads the reports, as in :func:`~rrg_rewards.judges.get_judge`. Default: the finding
            engine, or rules.
        labels: Use only findings whose label is 1, in columns named like the findings, ignoring case and underscores:
            of the reports' table (``True``), or of another table (its path), joined by ``key``.
        label_prefix: The same, with columns named by this text and the label.
        key: Column of the names of studies in the tables of reports and labels, with or without ``.nii.gz``.
        one_per_scan: Use one reconstruction of each scan of CT-RATE, by the names in ``key`` or ``id_column``.
        no_chest: Lists of volumes of CT-RATE that are left out, such as ``no_chest_valid.txt``.
        batch_size: Number of reports that the judge gets at a time.

    Raises:
        SettingError: If settings need a key and there is none.
    """

    text_column: str = setting(
        "report", 'column of the report texts, or a template such as "{findings} {impression}"', metavar="NAME"
    )
    id_column: str | None = setting(None, "column of report ids (default: --key, or else row numbers)", metavar="NAME")
    schema: Any = setting(
        "ct_rate", "question schema: ct_rate, merlin or a YAML file (default: ct_rate)", metavar="NAME"
    )
    judge: Any = setting(None, f"{LANGUAGE_MODEL} (default: the finding engine)", metavar="JUDGE")
    labels: bool | str = setting(
        False,
        "make items only for findings whose label is 1, in columns named like the findings, or in those of another "
        "table FILE, which needs --key",
    )
    label_prefix: str | None = setting(None, "the same, with columns named TEXT + label", metavar="TEXT")
    key: str | None = setting(
        None, "column of the names of studies in the tables of reports and of labels", metavar="NAME"
    )
    one_per_scan: bool = one_per_scan_setting("--key or --id-column")
    no_chest: Sequence[str | Path] = no_chest_setting()
    batch_size: int = batch_size_setting()

    def __post_init__(self) -> None:
        check_settings(self)
        if isinstance(self.labels, str) and self.key is None:
            raise SettingError("labels", "labels of another table need --key, the column of the names of studies")
        check_scan_settings(self.one_per_scan, self.no_chest, self.key or self.id_column, "--key or --id-column")

    @property
    def has_labels(self) -> bool:
        """Whether the labels of the reports are read."""
        return bool(self.labels) or self.label_prefix is not None


@dataclass(frozen=True, kw_only=True)
class ReleasedSchemaSettings:
    """Settings of :func:`~rrg_rewards.analysis.convert_schema`.

    Args:
        name: Name of the question schema.
        lexicon: Lexicon of the finding engine: ``chest_ct``, ``abdomen`` or the path of a YAML file. Default: whichever
            of these two has more of the findings.
        answer_type: Types of the answers by attribute, for those that the examples do not show.
        readable_only: Leave out what the finding engine cannot read.
    """

    name: str = setting("ct_finebench", "name of the question schema (default: ct_finebench)", metavar="TEXT")
    lexicon: str | None = setting(
        None,
        "lexicon of the finding engine: chest_ct, abdomen or a YAML file (default: the one with more of the findings)",
        metavar="NAME",
    )
    answer_type: Mapping[str, str] = setting(
        {}, "type of the answers to an attribute, for example size=numeric; may be repeated", form="NAME=TYPE"
    )
    readable_only: bool = setting(False, "leave out findings and attributes that the finding engine cannot read")

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class ReleasedQuestionSettings:
    """Settings of :func:`~rrg_rewards.analysis.convert_questions`.

    Args:
        schema: Question schema of the questions: ``ct_rate``, ``merlin``, the path of a YAML file, or a
            :class:`~rrg_rewards.questions.QuestionSchema`.
        column: Keys of the file by part, as in :func:`~rrg_rewards.data.read_released_questions`.
    """

    schema: Any = setting(
        "ct_rate", "question schema: ct_rate, merlin or a YAML file (default: ct_rate)", metavar="NAME"
    )
    column: Mapping[str, str] = setting(
        {}, "key of a part of the questions, for example answer=gt; may be repeated", form="NAME=COLUMN"
    )

    def __post_init__(self) -> None:
        check_settings(self)


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
