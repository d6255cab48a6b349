"""Scoring systems: by which criteria a candidate report is judged, and how they make one total."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from numbers import Real
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from rrg_rewards.schemas.errors import ERROR_CATEGORIES
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["Criterion", "CriterionKind", "Direction", "ScoringSystem", "get_scoring_system", "scoring_system_names"]

CriterionKind = Literal["count", "yes_no", "grade"]
"""A number of errors, whether there is an error, or a grade on a scale."""

Direction = Literal["deduct", "add"]
"""Whether sub-scores are taken from the base, as errors are, or added to it, as marks are."""

_SHIPPED = files("rrg_rewards.schemas").joinpath("scoring_systems")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TOTAL = "total"  # What logs and tables call the sum, beside the criteria's names.
_RANGES: dict[str, tuple[float, float]] = {"count": (0.0, math.inf), "yes_no": (0.0, 1.0)}


@dataclass(frozen=True)
class Criterion:
    """One thing that a candidate report is judged by.

    Args:
        name: Identifier of the sub-score in files, logs and tables: lower case words joined by ``_``, not ``total``.
        description: What is judged, in a sentence that a rater or a language model can follow.
        kind: ``count``, a whole number of errors; ``yes_no``, 1 where there is such an error; or ``grade``, a number of
            ``range``.
        weight: What one point of the sub-score counts in the total; positive.
        range: Least and greatest sub-score; given for grades, (0, inf) for counts and (0, 1) for yes/no.
        errors: Categories of ``ERROR_CATEGORIES`` that are errors under this criterion, by which reports with counted
            errors get their sub-scores. Empty where such counts tell nothing of it, as of a grade.

    Raises:
        ValueError: If a field is none of these, naming it.

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
            raise ValueError(f"{where}: description must say what is judged")
        if self.kind not in get_args(CriterionKind):
            raise ValueError(f"{where}: {unknown_name_message('kind', str(self.kind), get_args(CriterionKind))}")
        if not _is_number(self.weight) or not 0 < self.weight < math.inf:
            raise ValueError(f"{where}: weight must be positive and finite, got {self.weight!r}")
        # 30 and 30.0 are one system, and must be told as one.
        object.__setattr__(self, "weight", float(self.weight))
        object.__setattr__(self, "range", self._checked_range(where))
        if not isinstance(self.errors, list | tuple) or not all(name in ERROR_CATEGORIES for name in self.errors):
            raise ValueError(f"{where}: errors must be a list of {', '.join(ERROR_CATEGORIES)}, got {self.errors!r}")
        object.__setattr__(self, "errors", tuple(self.errors))

    def _checked_range(self, where: str) -> tuple[float, float]:
        if self.range is None:
            if self.kind == "grade":
                raise ValueError(f"{where}: a grade needs its range, as in range: [0, 10]")
            return _RANGES[self.kind]
        low, high = _two_numbers(self.range, f"{where}: range")
        if not -math.inf < low < high or (self.kind == "grade" and high == math.inf):
            raise ValueError(f"{where}: range must rise between finite numbers, got [{low:g}, {high:g}]")
        if self.kind != "grade" and (low != 0 or (self.kind == "yes_no" and high != 1)):
            raise ValueError(f"{where}: a {self.kind} starts at 0{' and ends at 1' if self.kind == 'yes_no' else ''}")
        return low, high

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and greatest sub-score."""
        assert self.range is not None
        return self.range

    def check(self, score: float) -> None:
        """See that a sub-score lies in the criterion's range.

        Means of several raters are sub-scores, too: a count or a yes/no need not be whole.

        Raises:
            ValueError: If it does not, or is no finite number, naming the criterion and the range.

        Example:
            >>> Criterion("grammar", "Any errors of grammar?", "yes_no").check(2)
            Traceback (most recent call last):
            ...
            ValueError: grammar must lie in [0, 1], got 2
        """
        low, high = self.bounds
        if not _is_number(score):
            found = score if isinstance(score, float) else type(score).__name__
            raise ValueError(f"{self.name} must be a number in [{low:g}, {high:g}], got {found}")
        if not low <= score <= high or score == math.inf:
            raise ValueError(f"{self.name} must lie in [{low:g}, {high:g}], got {score:g}")


@dataclass(frozen=True)
class ScoringSystem:
    r"""Criteria, and a total of their sub-scores :math:`S_i` with weights :math:`W_i`; higher is better.

    .. math::
        T = b - \sum_i W_i S_i \quad\text{(deduct)}, \qquad T = b + \sum_i W_i S_i \quad\text{(add)}

    What a criterion adds to the total, :math:`\mp W_i S_i`, is its contribution: what a reward model's head learns.

    Args:
        name: Name by which the system is known in signatures.
        criteria: The criteria, in the order of sub-scores.
        base: :math:`b`, the total of a report with sub-scores 0.
        direction: ``deduct`` for errors, ``add`` for marks; a criterion of marks lists no ``errors``.
        total_range: Least and greatest total that the author of the system means it to have; checked against the
            criteria, so that a forgotten criterion or weight shows. Finite, so a count needs a range with an end.
            Default: whatever follows from the criteria.
        source: Where the system was published.

    Raises:
        ValueError: If a field is none of these, two criteria share a name, or the criteria do not add up to
            ``total_range``.

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

    def __post_init__(self) -> None:
        where = f"scoring system {self.name!r}"
        if not isinstance(self.name, str) or not self.name.strip():
            raise ValueError(f"{where}: name must be a word that signatures call the system by")
        if not self.criteria:
            raise ValueError(f"{where}: has no criteria")
        object.__setattr__(self, "criteria", tuple(self.criteria))
        names = self.names
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{where}: two criteria are called {repeated[0]!r}")
        if self.direction not in get_args(Direction):
            raise ValueError(f"{where}: direction must be deduct or add, got {self.direction!r}")
        for criterion in self.criteria:
            if self.direction == "add" and criterion.errors:
                raise ValueError(
                    f"{where}: criterion {criterion.name!r} lists errors, which direction add would reward"
                )
        if not _is_number(self.base) or not math.isfinite(self.base):
            raise ValueError(f"{where}: base must be a finite number, got {self.base!r}")
        object.__setattr__(self, "base", float(self.base))
        if self.total_range is not None:
            object.__setattr__(self, "total_range", self._checked_total_range(where))

    def _checked_total_range(self, where: str) -> tuple[float, float]:
        low, high = _two_numbers(self.total_range, f"{where}: total_range")
        least, greatest = self.bounds
        if not all(map(math.isfinite, (low, high, least, greatest))):
            raise ValueError(
                f"{where}: total_range [{low:g}, {high:g}] and the criteria that make it must have ends: give counts a "
                "range, as in range: [0, 10], or leave total_range out"
            )
        if not (math.isclose(least, low, abs_tol=1e-9) and math.isclose(greatest, high, abs_tol=1e-9)):
            raise ValueError(
                f"{where} does not add up: base {self.base:g} and its weighted criteria give totals in "
                f"[{least:g}, {greatest:g}], but total_range says [{low:g}, {high:g}]"
            )
        return low, high

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the criteria, in their order."""
        return tuple(criterion.name for criterion in self.criteria)

    @property
    def factors(self) -> tuple[float, ...]:
        """What one point of each sub-score changes the total by: the weights, negative where they are deducted."""
        sign = -1.0 if self.direction == "deduct" else 1.0
        return tuple(sign * criterion.weight for criterion in self.criteria)

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and greatest total that the criteria allow."""
        return self.total_bounds([None] * len(self.criteria))

    def total_bounds(self, scores: Sequence[float | None]) -> tuple[float, float]:
        """Least and greatest total that sub-scores allow of which some, ``None``, are not known.

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
        """What each sub-score adds to the total; NaN where a sub-score is.

        Raises:
            ValueError: If there is not one sub-score a criterion.

        Example:
            >>> get_scoring_system("mrscore").contributions([1, 0, 0, 0, 0, 0, 1])
            (-30.0, 0.0, 0.0, 0.0, 0.0, 0.0, -5.0)
        """
        self._check_number(scores)
        # A 0 more, so that no error at all is not told as -0.
        return tuple(factor * score + 0.0 for factor, score in zip(self.factors, scores, strict=True))

    def total(self, scores: Sequence[float]) -> float:
        """The total of sub-scores in the order of the criteria.

        Raises:
            ValueError: If there is not one sub-score a criterion, or one is out of range.

        Example:
            >>> get_scoring_system("radcliq").total([1, 2, 0, 0, 0, 0])
            -3.0
        """
        contributions = self.contributions(scores)
        for criterion, score in zip(self.criteria, scores, strict=True):
            criterion.check(score)
        return self.base + sum(contributions)

    def _check_number(self, scores: Sequence[float | None]) -> None:
        if len(scores) != len(self.criteria):
            raise ValueError(f"{self.name} has {len(self.criteria)} criteria, got {len(scores)} sub-scores")

    def to_dict(self) -> dict[str, Any]:
        """The system as plain data, for JSON and YAML; :meth:`from_dict` reads it back."""
        content = asdict(self)
        content["criteria"] = [_criterion_dict(criterion) for criterion in self.criteria]
        content["total_range"] = None if self.total_range is None else list(self.total_range)
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "ScoringSystem":
        """Make a system of plain data.

        Args:
            content: Fields of :class:`ScoringSystem`, with each criterion as fields of :class:`Criterion`.

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
    """Look a scoring system up by name, or read the user's own from a YAML file; one that is a system is given back.

    ``radcliq`` counts errors of six categories, as ReXVal's radiologists did (Yu et al., Patterns 2023); ``mrscore``
    deducts from 100 for seven yes/no items (Liu et al., MRScore, arXiv:2404.17778). Both are YAML files in
    ``rrg_rewards/schemas/scoring_systems``, to start a system of one's own from.

    Args:
        name: A shipped system's name, the path of a ``.yaml`` file, or a system.

    Raises:
        ValueError: For an unknown name, with the nearest known one, or a file that holds no valid system, naming it.
        FileNotFoundError: If there is no such file.

    Example:
        >>> get_scoring_system("radcliq").names[:2]
        ('false_finding', 'omitted_finding')
    """
    if isinstance(name, ScoringSystem):
        return name
    if Path(name).suffix.lower() in (".yaml", ".yml"):
        content = Path(name).read_bytes()
    elif (known := str(name)) in scoring_system_names():
        content = _SHIPPED.joinpath(f"{known}.yaml").read_bytes()
    else:
        raise ValueError(f"{unknown_name_message('scoring system', known, scoring_system_names())}; or a .yaml file")
    try:
        # Where bytes are no UTF-8 the parser says so.
        return ScoringSystem.from_dict(yaml.load(content, Loader=_UniqueKeys))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{name}: {error}") from error


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a key stands once: of two weights the first would be lost without a word."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value]
        for place, key in enumerate(keys):
            if key in keys[:place]:
                line = node.value[place][0].start_mark.line + 1
                raise ValueError(f"line {line}: the key {key!r} stands twice")
        return super().construct_mapping(node, deep)


def scoring_system_names() -> tuple[str, ...]:
    """Names of the systems that come with the package.

    Example:
        >>> scoring_system_names()
        ('mrscore', 'radcliq')
    """
    return tuple(sorted(Path(item.name).stem for item in _SHIPPED.iterdir() if item.name.endswith(".yaml")))


def _criterion_dict(criterion: Criterion) -> dict[str, Any]:
    low, high = criterion.bounds
    # JSON has no infinity; the kind says it.
    return {
        **asdict(criterion),
        "range": [low, high] if math.isfinite(high) else None,
        "errors": list(criterion.errors),
    }


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


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and not math.isnan(value)


def _two_numbers(value: Any, where: str) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(map(_is_number, value)):
        raise ValueError(f"{where} must be two numbers, got {value!r}")
    low, high = value
    return float(low), float(high)
