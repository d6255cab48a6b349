"""Scoring systems: criteria for grading a candidate report, and the total of their sub-scores."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from numbers import Real
from pathlib import Path
from typing import Any, Literal, get_args

from rrg_rewards.schemas.errors import ERROR_CATEGORIES
from rrg_rewards.utilities.names import shown, unknown_name_message
from rrg_rewards.utilities.yaml_files import is_yaml_path, package_yaml, package_yaml_names, read_user_yaml

Direction = Literal["deduct", "add"]
"""Whether the sub-scores are errors, which are deducted from the base, or marks, which are added to it."""

CriterionKind = Literal["count", "yes_no", "grade"]
"""Kinds of sub-scores: a number of errors, 1 if there is an error, or a grade on a scale."""

_PACKAGE = "rrg_rewards.schemas.scoring_systems"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
# Name of the total in logs and tables, in which criteria must not have the same name.
_TOTAL = "total"
_RANGES: dict[str, tuple[float, float]] = {"count": (0.0, math.inf), "yes_no": (0.0, 1.0)}


@dataclass(frozen=True)
class Criterion:
    """One criterion for grading a candidate report.

    Args:
        name: Identifier of the sub-score in files, logs and tables: lower case words joined by ``_``, not ``total``.
        description: Instruction for a rater or a language model, one sentence.
        kind: ``count`` for a number of errors; ``yes_no`` for 1 if there is such an error; ``grade`` for a number in
            ``range``.
        weight: Change of the total per point of the sub-score; positive.
        range: Lowest and highest sub-score. Required for grades; (0, inf) for counts and (0, 1) for yes/no by default.
        errors: Categories of ``ERROR_CATEGORIES`` that are errors under this criterion. They determine the sub-score of
            a report with counted errors. Empty if counts do not determine the sub-score, for example for a grade.

    Raises:
        ValueError: If a field is invalid. The message names the field.

    Example:
        >>> Criterion("grammar", "Does the report have errors of grammar?", "yes_no", weight=5).range
        (0.0, 1.0)
    """

    name: str
    description: str
    kind: CriterionKind
    weight: float = 1.0
    range: tuple[float, float] | None = None
    errors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"criterion {self.name!r}"
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name) or self.name == _TOTAL:
            raise ValueError(f"{where}: name must be lower case letters, digits and _, as in wrong_location, not total")
        if not isinstance(self.description, str) or not self.description.strip():
            raise ValueError(f"{where}: description must be a non-empty text")
        if self.kind not in get_args(CriterionKind):
            raise ValueError(f"{where}: {unknown_name_message('kind', str(self.kind), get_args(CriterionKind))}")
        if not is_number(self.weight) or not 0 < self.weight < math.inf:
            raise ValueError(f"{where}: weight must be positive and finite, got {shown(self.weight)}")
        # 30 and 30.0 must give the same signature.
        object.__setattr__(self, "weight", float(self.weight))
        object.__setattr__(self, "range", self._checked_range(where))
        if not isinstance(self.errors, list | tuple) or not all(name in ERROR_CATEGORIES for name in self.errors):
            raise ValueError(
                f"{where}: errors must be a list of {', '.join(ERROR_CATEGORIES)}, got {shown(self.errors)}"
            )
        object.__setattr__(self, "errors", tuple(self.errors))

    def _checked_range(self, where: str) -> tuple[float, float]:
        if self.range is None:
            if self.kind == "grade":
                raise ValueError(f"{where}: a grade needs its range, as in range: [0, 10]")
            return _RANGES[self.kind]
        low, high = _two_numbers(self.range, f"{where}: range")
        if not -math.inf < low < high or (self.kind == "grade" and high == math.inf):
            raise ValueError(f"{where}: range must be finite and ascending, got [{low:g}, {high:g}]")
        if self.kind != "grade" and (low != 0 or (self.kind == "yes_no" and high != 1)):
            raise ValueError(f"{where}: a {self.kind} starts at 0{' and ends at 1' if self.kind == 'yes_no' else ''}")
        return low, high

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest sub-score."""
        assert self.range is not None
        return self.range

    def check(self, score: float) -> None:
        """Check that a sub-score is in the criterion's range.

        A sub-score may be the mean of several raters. Counts and yes/no sub-scores may therefore be fractions.

        Raises:
            ValueError: If the sub-score is out of range or not finite. The message names the criterion and the range.

        Example:
            >>> Criterion("grammar", "Any errors of grammar?", "yes_no").check(2)
            Traceback (most recent call last):
            ...
            ValueError: grammar must lie in [0, 1], got 2
        """
        low, high = self.bounds
        if not is_number(score):
            found = score if isinstance(score, float) else type(score).__name__
            raise ValueError(f"{self.name} must be a number in [{low:g}, {high:g}], got {found}")
        if not low <= score <= high or score == math.inf:
            raise ValueError(f"{self.name} must lie in [{low:g}, {high:g}], got {score:g}")

    def to_dict(self) -> dict[str, Any]:
        """Return the criterion as plain data for JSON and YAML."""
        low, high = self.bounds
        # JSON has no infinity; an omitted range is the default of the kind.
        return {**asdict(self), "range": [low, high] if math.isfinite(high) else None, "errors": list(self.errors)}


def is_number(value: Any) -> bool:
    """Whether a value is a Python or NumPy number other than NaN and bool."""
    return not isinstance(value, bool) and isinstance(value, Real) and not math.isnan(value)


def _two_numbers(value: Any, where: str) -> tuple[float, float]:
    """Return a range as two floats.

    Raises:
        ValueError: If ``value`` is not a list of two numbers. The message begins with ``where``.
    """
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(map(is_number, value)):
        raise ValueError(f"{where} must be two numbers, got {shown(value)}")
    low, high = value
    return float(low), float(high)


@dataclass(frozen=True)
class ScoringSystem:
    r"""Criteria, and a total of their sub-scores :math:`S_i` with weights :math:`W_i`; higher is better.

    .. math::
        T = b - \sum_i W_i S_i \quad\text{(deduct)}, \qquad T = b + \sum_i W_i S_i \quad\text{(add)}

    The contribution of a criterion to the total is :math:`\mp W_i S_i`. Each head of a reward model learns one
    contribution.

    Args:
        name: Name of the system in signatures.
        criteria: The criteria, in the order of sub-scores.
        base: :math:`b`, the total of a report with sub-scores 0.
        direction: ``deduct`` for errors, ``add`` for marks.
        total_range: Intended lowest and highest total. It is checked against the criteria, to detect a forgotten
            criterion or weight. It must be finite, and therefore counts need an upper limit. Default: the range that
            follows from the criteria.
        source: Publication of the system.
        tiers: Lowest and highest total of each level of quality for which reports are written.

    Raises:
        ValueError: If a field is invalid, two criteria share a name, the criteria do not add up to ``total_range``, or
            no report can have a total in a tier.

    Example:
        >>> system = get_scoring_system("mrscore")
        >>> system.total([1, 0, 0, 0, 1, 0, 1]), system.bounds
        (55.0, (0.0, 100.0))
    """

    name: str
    criteria: tuple[Criterion, ...]
    base: float = 0.0
    direction: Direction = "deduct"
    total_range: tuple[float, float] | None = None
    source: str = ""
    tiers: tuple[tuple[float, float], ...] | None = None

    def __post_init__(self) -> None:
        where = f"scoring system {self.name!r}"
        if not isinstance(self.name, str) or not self.name.strip():
            raise ValueError(f"{where}: name must be a non-empty text")
        if not self.criteria:
            raise ValueError(f"{where}: has no criteria")
        object.__setattr__(self, "criteria", tuple(self.criteria))
        names = self.names
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{where}: two criteria are called {repeated[0]!r}")
        if self.direction not in get_args(Direction):
            raise ValueError(f"{where}: direction must be deduct or add, got {shown(self.direction)}")
        if not is_number(self.base) or not math.isfinite(self.base):
            raise ValueError(f"{where}: base must be a finite number, got {shown(self.base)}")
        object.__setattr__(self, "base", float(self.base))
        if self.total_range is not None:
            object.__setattr__(self, "total_range", self._checked_total_range(where))
        if self.tiers is not None:
            object.__setattr__(self, "tiers", self._checked_tiers(where, self.tiers))

    def _checked_tiers(self, where: str, tiers: Any) -> tuple[tuple[float, float], ...]:
        if isinstance(tiers, str) or not isinstance(tiers, Sequence) or not tiers:
            raise ValueError(f"{where}: tiers must be a list of [least, greatest] totals, got {shown(tiers)}")
        checked = tuple(_two_numbers(tier, f"{where}: tier {place + 1}") for place, tier in enumerate(tiers))
        least, greatest = self.bounds
        for low, high in checked:
            if not -math.inf < low <= high < math.inf:
                raise ValueError(f"{where}: a tier must be [least, greatest] total, got [{low:g}, {high:g}]")
            if high < least or low > greatest:
                raise ValueError(
                    f"{where}: no report has a total in the tier [{low:g}, {high:g}]: totals are in "
                    f"[{least:g}, {greatest:g}]"
                )
        if len(set(checked)) < len(checked):
            raise ValueError(f"{where}: a tier is repeated")
        return checked

    def _checked_total_range(self, where: str) -> tuple[float, float]:
        low, high = _two_numbers(self.total_range, f"{where}: total_range")
        least, greatest = self.bounds
        if not all(map(math.isfinite, (low, high, least, greatest))):
            raise ValueError(
                f"{where}: total_range [{low:g}, {high:g}] and the ranges of the criteria must be finite: give counts "
                "a range, as in range: [0, 10], or omit total_range"
            )
        if not (math.isclose(least, low, abs_tol=1e-9) and math.isclose(greatest, high, abs_tol=1e-9)):
            raise ValueError(
                f"{where} does not add up: base {self.base:g} and its weighted criteria give totals in "
                f"[{least:g}, {greatest:g}], but total_range is [{low:g}, {high:g}]"
            )
        return low, high

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the criteria, in their order."""
        return tuple(criterion.name for criterion in self.criteria)

    @property
    def factors(self) -> tuple[float, ...]:
        """Change of the total per point of each sub-score: the weights, negative if they are deducted."""
        sign = -1.0 if self.direction == "deduct" else 1.0
        return tuple(sign * criterion.weight for criterion in self.criteria)

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest total that the criteria allow."""
        return self.total_bounds([None] * len(self.criteria))

    def total_bounds(self, scores: Sequence[float | None]) -> tuple[float, float]:
        """Return the lowest and highest total that sub-scores allow; unknown ones are ``None``.

        Example:
            >>> get_scoring_system("mrscore").total_bounds([1, 0, 0, 0, None, 0, None])
            (55.0, 70.0)
        """
        self._check_number(scores)
        low = high = self.base
        for factor, criterion, score in zip(self.factors, self.criteria, scores, strict=True):
            ends = sorted(factor * end for end in (criterion.bounds if score is None else (score, score)))
            low, high = low + ends[0], high + ends[1]
        return low, high

    def contributions(self, scores: Sequence[float]) -> tuple[float, ...]:
        """Return the contribution of each sub-score to the total; NaN for a NaN sub-score.

        Raises:
            ValueError: If there is not one sub-score per criterion.

        Example:
            >>> get_scoring_system("mrscore").contributions([1, 0, 0, 0, 0, 0, 1])
            (-30.0, 0.0, 0.0, 0.0, 0.0, 0.0, -5.0)
        """
        self._check_number(scores)
        # Adding 0 turns -0.0 into 0.0.
        return tuple(factor * score + 0.0 for factor, score in zip(self.factors, scores, strict=True))

    def total(self, scores: Sequence[float | None]) -> float:
        """Return the total of sub-scores in the order of the criteria; NaN if one is ``None``, which is unknown.

        Raises:
            ValueError: If there is not one sub-score per criterion, or one is out of range. The message names the
                criterion.

        Example:
            >>> get_scoring_system("radcliq").total([1, 2, 0, 0, 0, 0])
            -3.0
            >>> get_scoring_system("mrscore").total([1, 2, None, 0, 0, 0, 0])
            Traceback (most recent call last):
            ...
            ValueError: impression_organs must lie in [0, 1], got 2
        """
        self._check_number(scores)
        for criterion, score in zip(self.criteria, scores, strict=True):
            if score is not None:
                criterion.check(score)
        return self.base + sum(self.contributions([math.nan if score is None else score for score in scores]))

    def _check_number(self, scores: Sequence[float | None]) -> None:
        if len(scores) != len(self.criteria):
            raise ValueError(f"{self.name} has {len(self.criteria)} criteria, got {len(scores)} sub-scores")

    def to_dict(self) -> dict[str, Any]:
        """Return the system as plain data for JSON and YAML, as :meth:`from_dict` accepts it."""
        content = asdict(self)
        content["criteria"] = [criterion.to_dict() for criterion in self.criteria]
        content["total_range"] = None if self.total_range is None else list(self.total_range)
        content["tiers"] = None if self.tiers is None else [list(tier) for tier in self.tiers]
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "ScoringSystem":
        """Make a system from plain data.

        Args:
            content: Fields of :class:`ScoringSystem`, with the fields of :class:`Criterion` for each criterion.

        Raises:
            ValueError: If a key is unknown or missing, or the system is not valid.

        Example:
            >>> system = get_scoring_system("mrscore")
            >>> ScoringSystem.from_dict(system.to_dict()) == system
            True
        """
        if not isinstance(content, Mapping):
            raise ValueError(f"a scoring system must be a mapping of name, criteria, ..., got {type(content).__name__}")
        criteria = content.get("criteria")
        if not isinstance(criteria, Sequence) or isinstance(criteria, str):
            raise ValueError("a scoring system needs criteria, a list")
        built = tuple(_build(Criterion, item, f"criterion {place + 1}") for place, item in enumerate(criteria))
        system: ScoringSystem = _build(cls, {**content, "criteria": built}, "scoring system")
        return system


def get_scoring_system(name: "ScoringSystem | str | Path") -> ScoringSystem:
    """Return a scoring system by name, or read one from a YAML file; a system is returned unchanged.

    ``radcliq`` counts errors in six categories, as ReXVal's radiologists did (Yu et al., Patterns 2023). ``mrscore``
    deducts the weights of seven yes/no items from 100 (Liu et al., MRScore, arXiv:2404.17778). Both are YAML files in
    ``rrg_rewards/schemas/scoring_systems`` and can serve as templates.

    Args:
        name: Name of a system of this package, path of a ``.yaml`` file, or a system.

    Raises:
        ValueError: If the name is unknown (the message names the nearest known one) or the file is not a valid system.
        FileNotFoundError: If the file does not exist.

    Example:
        >>> get_scoring_system("radcliq").names[:2]
        ('false_finding', 'omitted_finding')
    """
    if isinstance(name, ScoringSystem):
        return name
    if not is_yaml_path(name):
        known = scoring_system_names()
        if str(name) not in known:
            raise ValueError(f"{unknown_name_message('scoring system', str(name), known)}; or a .yaml file")
        return ScoringSystem.from_dict(package_yaml(_PACKAGE, str(name)))
    content = read_user_yaml(name)
    try:
        return ScoringSystem.from_dict(content)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def scoring_system_names() -> tuple[str, ...]:
    """Return the names of the systems that come with the package.

    Example:
        >>> scoring_system_names()
        ('mrscore', 'radcliq')
    """
    return package_yaml_names(_PACKAGE)


def _build(kind: Any, content: Any, what: str) -> Any:
    if not isinstance(content, Mapping):
        raise ValueError(f"{what}: must be a mapping, got {type(content).__name__}")
    known = [field.name for field in fields(kind)]
    for key in content:
        if key not in known:
            raise ValueError(f"{what}: {unknown_name_message('key', str(key), known)}")
    try:
        return kind(**content)
    except TypeError as error:
        missing = [name for name in ("name", "description", "kind") if name in known and name not in content]
        raise ValueError(f"{what}: lacks {', '.join(missing)}" if missing else f"{what}: {error}") from error
