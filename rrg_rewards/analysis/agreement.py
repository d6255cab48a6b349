"""Agreement of scores with human judgements: values, intervals and tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple, cast, get_args

import torch
from torch import Tensor

from rrg_rewards.analysis.comparison import plain
from rrg_rewards.analysis.scoring import CONFIDENCE
from rrg_rewards.analysis.settings import AgreementSettings
from rrg_rewards.functional.agreement import (
    AgreementStatistic,
    agreement_interval,
    agreement_permutation_test,
    human_agreement,
    perm_both_test,
)
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.run_log import Progress, RunLog
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.utilities.worker_pool import WorkerPool, calls, one_thread, optional_pool

ALL_ROWS = "all"
"""Name of the group of all rows."""

_NAN = float("nan")

Numbers = Tensor | Sequence[float | None]


@dataclass(frozen=True)
class ScoreAgreement:
    """Agreement of a score with a human judgement; NaN where it is undefined or was not asked for.

    Args:
        statistic: Name of the statistic.
        score: Name of the score.
        value: Value of the statistic, as :func:`~rrg_rewards.functional.human_agreement`.
        low: Lower end of its bootstrap interval.
        high: Upper end.
        p_value: P-value of no agreement, by permutation of the judgements.
        chance_low: Lower end of the middle 95 % of the permuted values.
        chance_high: Upper end.
    """

    statistic: AgreementStatistic
    score: str
    value: float
    low: float = _NAN
    high: float = _NAN
    p_value: float = _NAN
    chance_low: float = _NAN
    chance_high: float = _NAN


@dataclass(frozen=True)
class AgreementDifference:
    """Difference between the agreement of two scores; NaN where it is undefined or was not asked for.

    Args:
        statistic: Name of the statistic.
        first: Name of the first score.
        second: Name of the score that is subtracted.
        value: The difference.
        low: Lower end of its interval, from paired bootstrap draws.
        high: Upper end.
        p_value: P-value of the permutation test PERM-BOTH, as :func:`~rrg_rewards.functional.perm_both_test`.
    """

    statistic: AgreementStatistic
    first: str
    second: str
    value: float
    low: float = _NAN
    high: float = _NAN
    p_value: float = _NAN


@dataclass(frozen=True)
class JudgementAgreement:
    """Agreement of all scores with a judgement, over the rows with this judgement and all scores.

    Args:
        human: Name of the judgement.
        rows: Number of these rows.
        units: Number of their units.
        without_judgement: Number of rows without the judgement.
        without_score: Number of rows with the judgement and without one of the scores.
        agreement: Agreement of each score, by statistic.
        differences: Differences between two scores, by statistic.
    """

    human: str
    rows: int
    units: int
    without_judgement: int
    without_score: int
    agreement: tuple[ScoreAgreement, ...]
    differences: tuple[AgreementDifference, ...]

    def of(self, score: str, statistic: AgreementStatistic = "kendall") -> ScoreAgreement:
        """Return the agreement of a score by a statistic.

        Raises:
            KeyError: If it was not computed.
        """
        found = {(one.score, one.statistic): one for one in self.agreement}
        if (score, statistic) not in found:
            raise KeyError(f"{statistic} of {score}")
        return found[score, statistic]


@dataclass(frozen=True)
class GroupAgreement:
    """Agreement in a group of rows.

    Args:
        group: Name of the group; ``all`` for all rows.
        rows: Number of rows of the group.
        judgements: Agreement with each judgement.
    """

    group: str
    rows: int
    judgements: tuple[JudgementAgreement, ...]


@dataclass(frozen=True)
class AgreementResult:
    """Agreement of scores with human judgements, for all rows and for groups of them.

    Args:
        rows: Number of rows.
        settings: The settings.
        groups: Agreement in all rows, then in each group.
        missing: Number of rows without a value, by column.
        unit: Name of the column of units; ``None`` if each row is a unit.
        group: Name of the column of groups; ``None`` without groups.
        candidates: Endings of the columns of two candidates.
        signatures: Signatures of the metrics that were computed.
    """

    rows: int
    settings: AgreementSettings
    groups: tuple[GroupAgreement, ...]
    missing: Mapping[str, int]
    unit: str | None = None
    group: str | None = None
    candidates: Sequence[str] | None = None
    signatures: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_rows(self) -> GroupAgreement:
        """The agreement in all rows."""
        return self.groups[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as dicts, lists, texts and numbers; NaN becomes ``None``."""
        return {
            "rows": self.rows,
            "unit": self.unit,
            "group": self.group,
            "candidates": self.candidates,
            "lower_is_better": list(self.settings.lower_is_better),
            "bootstrap": {"num_resamples": self.settings.bootstrap, "confidence": CONFIDENCE},
            "permutations": self.settings.permutations,
            "seed": self.settings.seed,
            "signatures": dict(self.signatures),
            "missing": dict(self.missing),
            "groups": {one.group: _group_entry(one) for one in self.groups},
        }


def _group_entry(group: GroupAgreement) -> dict[str, Any]:
    return {"rows": group.rows, "human": {one.human: _judgement_entry(one) for one in group.judgements}}


def _judgement_entry(found: JudgementAgreement) -> dict[str, Any]:
    agreement: dict[str, dict[str, Any]] = {}
    for one in found.agreement:
        entry = plain(one)
        agreement.setdefault(entry.pop("statistic"), {})[entry.pop("score")] = entry
    return {
        "rows": found.rows,
        "units": found.units,
        "without_judgement": found.without_judgement,
        "without_score": found.without_score,
        "agreement": agreement,
        "differences": [plain(one) for one in found.differences],
    }


@dataclass(frozen=True)
class RatedRows:
    """Scores and judgements of ``N`` rows; higher is better in all columns.

    Args:
        scores: Scores by name, ``(N,)`` float64; NaN if missing.
        human: Judgements by name, ``(N,)`` float64; NaN if missing.
        units: Number of the unit of each row; ``None`` if each row is a unit.
        groups: Group of each row; ``None`` without groups.
        unit: Name of the units.
        group: Name of the groups.
        names: Names of the rows, if the table has a column of them.
        texts: Reports by column, if they are kept.
    """

    scores: Mapping[str, Tensor]
    human: Mapping[str, Tensor]
    units: Tensor | None = None
    groups: Sequence[str] | None = None
    unit: str | None = None
    group: str | None = None
    names: Sequence[str] = ()
    texts: Mapping[str, Sequence[str | None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.human.values())))

    @property
    def columns(self) -> dict[str, Tensor]:
        """Scores and judgements by name."""
        return {**self.scores, **self.human}

    def turned(self, lower_is_better: Sequence[str]) -> "RatedRows":
        """Return the rows with the opposite sign in some columns."""
        turned = {name: -values if name in lower_is_better else values for name, values in self.columns.items()}
        return replace(
            self,
            scores={name: turned[name] for name in self.scores},
            human={name: turned[name] for name in self.human},
        )


def measure_agreement(
    scores: Mapping[str, Numbers],
    human: Mapping[str, Numbers],
    *,
    units: Sequence[Any] | Tensor | None = None,
    groups: Sequence[str] | None = None,
    settings: AgreementSettings = AgreementSettings(),  # noqa: B008 (frozen)
    log: RunLog | None = None,
) -> AgreementResult:
    """Measure the agreement of scores with human judgements.

    Statistics are those of :func:`~rrg_rewards.functional.human_agreement`: correlations in [-1, 1], and accuracies in
    [0, 1]. Each value has a percentile bootstrap 95 % interval, and a p-value for no agreement by permutation of the
    judgements. Each difference between two scores has the interval of paired draws, and the p-value of the permutation
    test PERM-BOTH. The p-values treat rows as independent and are not corrected for the number of comparisons.

    A row without a judgement, or without one of the scores, is left out for all scores, so that all are compared on the
    same rows; such rows are counted. Settings: :class:`AgreementSettings`. Without ``settings.statistics`` all are
    computed except ``preference`` and ``binary``. For ``preference``, scores are differences between two candidates,
    and judgements say which of them is better.

    Args:
        scores: ``N`` scores by name; ``None`` or NaN if missing.
        human: ``N`` judgements by name; ``None`` or NaN if missing.
        units: Unit of each row, for example its study. The bootstrap draws whole units, and ``accuracy`` compares rows
            of one unit only. Default: each row is a unit.
        groups: Group of each row. Everything is computed for each group as well.
        settings: Statistics, columns of which a lower number is better, baseline, bootstrap and permutations.
        log: Receives warnings and progress.

    Raises:
        SettingError: If a setting is wrong, a name occurs twice, or a group has the name ``all``.
        ValueError: If there is no row or no column, or lengths differ.

    Example:
        >>> few = AgreementSettings(statistics=["kendall"], lower_is_better=["errors"], bootstrap=20, permutations=19)
        >>> scores = {"crg": [0.1, 0.9, 0.8, 2.0], "rouge": [0.2, 0.5, 0.5, 0.1]}
        >>> found = measure_agreement(scores, {"errors": [3, 2, 2, 0]}, settings=few)
        >>> (errors,) = found.all_rows.judgements
        >>> round(errors.of("crg").value, 3), errors.rows
        (0.913, 4)
        >>> errors.differences[0].first, errors.differences[0].second, round(errors.differences[0].value, 3)
        ('crg', 'rouge', 1.113)
    """
    if not scores or not human:
        raise ValueError("scores and human must each have at least one column")
    rows = RatedRows(
        {name: _column(values) for name, values in scores.items()},
        {name: _column(values) for name, values in human.items()},
        None if units is None else numbered(units, {}),
        None if groups is None else [str(group) for group in groups],
        None if units is None else "unit",
        None if groups is None else "group",
    )
    lengths = {name: len(column) for name, column in rows.columns.items()}
    for name, given in (("units", units), ("groups", groups)):
        if given is not None:
            lengths[name] = len(given)
    if len(set(lengths.values())) > 1:
        raise ValueError(f"all columns must have the same length, got {lengths}")
    if not len(rows):
        raise ValueError("scores and human must have at least one row")
    check_names([*scores, *human], settings.lower_is_better, [*scores, *human])
    check_statistics(settings)
    return measure_rows(rows.turned(settings.lower_is_better), settings, log=log or RunLog())


def measure_rows(
    rows: RatedRows,
    settings: AgreementSettings,
    *,
    candidates: Sequence[str] | None = None,
    signatures: Mapping[str, str] | None = None,
    log: RunLog,
) -> AgreementResult:
    """Measure the agreement in rows, as :func:`measure_agreement`.

    Args:
        rows: Scores and judgements; higher is better in all columns.
        settings: The settings.
        candidates: Endings of the columns of two candidates, if the columns are differences between them.
        signatures: Signatures of the metrics among the scores.
        log: Receives warnings and progress.
    """
    left_out = ("binary", "preference" if candidates is None else "accuracy")
    default = [name for name in get_args(AgreementStatistic) if name not in left_out]
    statistics = default if settings.statistics is None else cast("Sequence[AgreementStatistic]", settings.statistics)
    with one_thread(), optional_pool(compare_scores, settings.workers) as pool:
        groups = _Measuring(rows, settings, statistics, log, pool).groups()
    missing = {name: int(values.isnan().sum()) for name, values in rows.columns.items()}
    result = AgreementResult(
        len(rows), settings, groups, missing, rows.unit, rows.group, candidates, dict(signatures or {})
    )
    _warn_of_missing(result, log)
    _warn_of_single_units(result, log)
    return result


def _column(values: Numbers) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().cpu().double()
    return torch.tensor([_NAN if value is None else float(value) for value in values], dtype=torch.float64)


def numbered(cells: Sequence[Any] | Tensor, known: dict[Any, int]) -> Tensor:
    """Return a number for each different cell, int64 ``(N,)``.

    Args:
        cells: ``N`` cells.
        known: Numbers of cells so far, which are extended.

    Example:
        >>> numbered(["b", "a", "b"], {})
        tensor([0, 1, 0])
    """
    values = cells.tolist() if isinstance(cells, Tensor) else cells
    return torch.tensor([known.setdefault(cell, len(known)) for cell in values], dtype=torch.long)


def check_names(names: Sequence[str], turned: Sequence[str], turnable: Sequence[str]) -> None:
    """Raise a SettingError if two columns have the same name, or a column that is turned is not among the others."""
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise SettingError(None, f"{', '.join(repeated)}: named more than once by `scores`, `metrics` and `human`")
    if unknown := [name for name in turned if name not in turnable]:
        raise SettingError("lower_is_better", f"{unknown[0]!r} is not among `scores` and `human`")


def check_statistics(settings: AgreementSettings, **changed: Any) -> None:
    """Raise a SettingError if a statistic is unknown or named twice, or ``binary`` meets changed columns."""
    statistics, known = list(settings.statistics or ()), get_args(AgreementStatistic)
    for name in statistics:
        if name not in known:
            raise SettingError("statistics", unknown_name_message("statistic", name, known))
        if statistics.count(name) > 1:
            raise SettingError("statistics", f"{name} is named more than once")
    for name, value in {"lower_is_better": settings.lower_is_better, **changed}.items():
        if value and "binary" in statistics:
            raise SettingError(
                "statistics",
                f"binary compares the columns of `scores` and `human` with 0.5 as they are; leave out `{name}`",
            )


@dataclass(frozen=True)
class _Measuring:
    """Computes the agreement of rows."""

    rows: RatedRows
    settings: AgreementSettings
    statistics: Sequence[AgreementStatistic]
    log: RunLog
    pool: WorkerPool[Any, Any] | None = None

    def groups(self) -> tuple[GroupAgreement, ...]:
        """Return the agreement in all rows and in each group."""
        groups, pairs = self._group_rows(), self._pairs()
        comparisons = len(self.statistics) * (len(self.rows.scores) + len(pairs))
        with self.log.progress("comparing") as progress:
            progress(0, len(groups) * len(self.rows.human) * comparisons)
            return tuple(self._in_group(name, rows, pairs, progress) for name, rows in groups.items())

    def _group_rows(self) -> dict[str, Tensor]:
        """Return the indices of the rows of each group."""
        groups = {ALL_ROWS: torch.arange(len(self.rows))}
        if self.rows.groups is not None and ALL_ROWS in self.rows.groups:
            raise SettingError(
                "group",
                f"the column {self.rows.group!r} has the value {ALL_ROWS!r}, which names the result of all rows; "
                "rename the value",
            )
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(self.rows.groups or ()):
            rows.setdefault(name, []).append(row)
        return groups | {name: torch.tensor(own) for name, own in rows.items()}

    def _pairs(self) -> list[tuple[str, str]]:
        """Return the pairs of scores to compare."""
        baseline = self.settings.baseline
        if baseline is None:
            return list(combinations(self.rows.scores, 2))
        if baseline not in self.rows.scores:
            raise SettingError("baseline", f"{baseline!r} is not among {', '.join(self.rows.scores)}")
        return [(name, baseline) for name in self.rows.scores if name != baseline]

    def _in_group(
        self, name: str, rows: Tensor, pairs: Sequence[tuple[str, str]], progress: Progress
    ) -> GroupAgreement:
        judgements = tuple(self._with_judgement(human, rows, pairs, progress) for human in self.rows.human)
        return GroupAgreement(name, len(rows), judgements)

    def _with_judgement(
        self, human: str, rows: Tensor, pairs: Sequence[tuple[str, str]], progress: Progress
    ) -> JudgementAgreement:
        """Return the agreement with a judgement, over the rows with this judgement and all scores."""
        judged = self.rows.human[human][rows].isfinite()
        scored = torch.stack([values[rows].isfinite() for values in self.rows.scores.values()]).all(0)
        kept = rows[judged & scored]
        units = None if self.rows.units is None else self.rows.units[kept]
        target, scores = self.rows.human[human][kept], {name: own[kept] for name, own in self.rows.scores.items()}
        compared = [{name: scores[name] for name in names} for names in (*((name,) for name in scores), *pairs)]
        tasks = (
            (None, Comparison(own, target, units, statistic, self.settings))
            for statistic in self.statistics
            for own in compared
        )
        found = []
        for _, result in calls(compare_scores, tasks, self.pool):
            found.append(result())
            progress(1, 0)
        return JudgementAgreement(
            human=human,
            rows=len(kept),
            units=len(kept) if units is None else len(set(units.tolist())),
            without_judgement=int((~judged).sum()),
            without_score=int((judged & ~scored).sum()),
            agreement=tuple(one for one in found if isinstance(one, ScoreAgreement)),
            differences=tuple(one for one in found if isinstance(one, AgreementDifference)),
        )


def _warn_of_missing(result: AgreementResult, log: RunLog) -> None:
    """Say how many rows were left out, and which score or judgement they lack."""
    missing = {name: count for name, count in result.missing.items() if count}
    if missing:
        counts = ", ".join(f"{name} {count}" for name, count in missing.items())
        log.warn(
            f"of {result.rows} rows, those without a score or judgement are left out for all scores; missing: {counts}"
        )


def _warn_of_single_units(result: AgreementResult, log: RunLog) -> None:
    """Say how many intervals are missing because all rows belong to one unit."""
    found = [one for group in result.groups for one in group.judgements]
    single = sum(one.units == 1 for one in found)
    if single and result.settings.bootstrap:
        unit = "row" if result.unit is None else f"value of {result.unit!r} (`unit`)"
        log.warn(
            f"{single} of {len(found)} comparisons have no intervals, because they have only one {unit}, and the "
            "bootstrap draws these"
        )


class Comparison(NamedTuple):
    """One score or two that are compared with a judgement, on rows that have all of them."""

    scores: Mapping[str, Tensor]
    target: Tensor
    units: Tensor | None
    statistic: AgreementStatistic
    settings: AgreementSettings


def compare_scores(task: Comparison) -> ScoreAgreement | AgreementDifference:
    """Return the agreement of one score, or the difference between two, with its interval and its tests."""
    scores, target, units, statistic, settings = task
    (first, *seconds), (ours, *theirs) = scores, scores.values()
    values = [_agreement_value(column, target, statistic, units) for column in scores.values()]
    common: tuple[Any, ...] = (target, statistic, units)
    interval, rows, seed = (_NAN, _NAN), len(target), settings.seed
    if settings.bootstrap and rows:
        minus = theirs[0] if theirs else None
        interval = agreement_interval(ours, *common, minus=minus, num_resamples=settings.bootstrap, seed=seed)
    draws: dict[str, Any] = {"num_permutations": settings.permutations, "seed": seed}
    if not seconds:
        found = ScoreAgreement(statistic, first, values[0], *interval)
        if not settings.permutations or not rows:
            return found
        test = agreement_permutation_test(ours, *common, **draws)
        return replace(found, p_value=test.p_value, chance_low=test.low, chance_high=test.high)
    p_value = _NAN
    if settings.permutations and rows:
        p_value = perm_both_test(ours, theirs[0], *common, **draws).p_value
    return AgreementDifference(statistic, first, seconds[0], values[0] - values[1], *interval, p_value)


def _agreement_value(
    scores: Tensor, target: Tensor, statistic: AgreementStatistic, units: Tensor | None = None
) -> float:
    return float(human_agreement(scores, target, statistic, units)) if len(scores) else _NAN
