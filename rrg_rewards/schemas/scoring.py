"""Scoring systems: by which criteria a candidate report is judged, and how they make one total."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from rrg_rewards.schemas.criteria import Criterion, CriterionKind, is_number, two_numbers
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["Criterion", "CriterionKind", "Direction", "ScoringSystem", "get_scoring_system", "scoring_system_names"]

Direction = Literal["deduct", "add"]
"""Whether sub-scores are taken from the base, as errors are, or added to it, as marks are."""

_SHIPPED = files("rrg_rewards.schemas").joinpath("scoring_systems")


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
        direction: ``deduct`` for errors, ``add`` for marks.
        total_range: Least and greatest total that the author of the system means it to have; checked against the
            criteria, so that a forgotten criterion or weight shows. Finite, so a count needs a range with an end.
            Default: whatever follows from the criteria.
        source: Where the system was published.
        tiers: Levels of quality, each the least and the greatest total of a report that is written for it.

    Raises:
        ValueError: If a field is none of these, two criteria share a name, the criteria do not add up to
            ``total_range``, or no report can have a total of a tier.

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
            raise ValueError(f"{where}: name must be a word that signatures call the system by")
        if not self.criteria:
            raise ValueError(f"{where}: has no criteria")
        object.__setattr__(self, "criteria", tuple(self.criteria))
        names = self.names
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{where}: two criteria are called {repeated[0]!r}")
        if self.direction not in get_args(Direction):
            raise ValueError(f"{where}: direction must be deduct or add, got {self.direction!r}")
        if not is_number(self.base) or not math.isfinite(self.base):
            raise ValueError(f"{where}: base must be a finite number, got {self.base!r}")
        object.__setattr__(self, "base", float(self.base))
        if self.total_range is not None:
            object.__setattr__(self, "total_range", self._checked_total_range(where))
        if self.tiers is not None:
            object.__setattr__(self, "tiers", self._checked_tiers(where, self.tiers))

    def _checked_tiers(self, where: str, tiers: Any) -> tuple[tuple[float, float], ...]:
        if isinstance(tiers, str) or not isinstance(tiers, Sequence) or not tiers:
            raise ValueError(f"{where}: tiers must be a list of [least, greatest] totals, got {tiers!r}")
        checked = tuple(two_numbers(tier, f"{where}: tier {place + 1}") for place, tier in enumerate(tiers))
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
            raise ValueError(f"{where}: a tier stands more than once")
        return checked

    def _checked_total_range(self, where: str) -> tuple[float, float]:
        low, high = two_numbers(self.total_range, f"{where}: total_range")
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
        self._check_number(scores)
        for criterion, score in zip(self.criteria, scores, strict=True):
            criterion.check(score)
        return self.base + sum(self.contributions(scores))

    def check(self, scores: Sequence[float | None]) -> None:
        """See that there is one sub-score a criterion, and that those that are known, not ``None``, are in range.

        Raises:
            ValueError: If it is not so, naming the criterion.

        Example:
            >>> get_scoring_system("mrscore").check([1, 2, None, 0, 0, 0, 0])
            Traceback (most recent call last):
            ...
            ValueError: impression_organs must lie in [0, 1], got 2
        """
        self._check_number(scores)
        for criterion, score in zip(self.criteria, scores, strict=True):
            if score is not None:
                criterion.check(score)

    def _check_number(self, scores: Sequence[float | None]) -> None:
        if len(scores) != len(self.criteria):
            raise ValueError(f"{self.name} has {len(self.criteria)} criteria, got {len(scores)} sub-scores")

    def to_dict(self) -> dict[str, Any]:
        """The system as plain data, for JSON and YAML; :meth:`from_dict` reads it back."""
        content = asdict(self)
        content["criteria"] = [criterion.to_dict() for criterion in self.criteria]
        content["total_range"] = None if self.total_range is None else list(self.total_range)
        content["tiers"] = None if self.tiers is None else [list(tier) for tier in self.tiers]
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
