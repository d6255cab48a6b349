"""Where the findings of a phantom study lie in its volume, as typed data read from YAML."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rrg_rewards.data.phantom_population import read_package_yaml
from rrg_rewards.data.phantom_writer import PhantomFinding
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["Anatomy", "Appearance", "Box", "Grid", "Region", "box_cells", "load_anatomy"]

Grid = tuple[int, int, int]
"""Cells along z, y and x."""

Box = tuple[float, float, float, float, float, float]
"""``(z0, z1, y0, y1, x0, x1)`` in fractions of the volume."""

_PATTERNS = ("focal", "diffuse")
_SIDES = ("one", "both")


@dataclass(frozen=True)
class Region:
    """A box of the volume that belongs to an organ.

    Args:
        side: ``right`` or ``left``; ``None`` for an organ in the middle.
        lobe: ``upper``, ``middle`` or ``lower``; ``None`` outside the lungs.
        box: Where it is.
    """

    side: str | None
    lobe: str | None
    box: Box


@dataclass(frozen=True)
class Appearance:
    """How a concept looks.

    Args:
        organ: Where it lies.
        share: Part of the organ's cells that is marked, in (0, 1].
        strength: Length of the mark.
        focal: Whether the marked cells are next to each other.
        bilateral: Whether it lies in both sides where no side is stated.
        kinds: Organs by kind, for what lies elsewhere by its kind.
        size_mm: Size for which share and strength are as given; ``None`` where size changes nothing.
    """

    organ: str
    share: float
    strength: float
    focal: bool
    bilateral: bool
    kinds: Mapping[str, str]
    size_mm: float | None


def _regions(entry: Any, side: str | None = None, lobe: str | None = None) -> tuple[Region, ...]:
    """Boxes of an organ: one; one for each side; or one for each side and lobe."""
    if isinstance(entry, Mapping):
        inner = [
            _regions(part, name if side is None else side, lobe if side is None else name)
            for name, part in entry.items()
        ]
        return tuple(region for regions in inner for region in regions)
    z0, z1, y0, y1, x0, x1 = box = tuple(map(float, entry))
    if not all(0 <= low < high <= 1 for low, high in ((z0, z1), (y0, y1), (x0, x1))):
        raise ValueError(f"a box must be [z0, z1, y0, y1, x0, x1], each pair rising within 0 and 1, got {list(box)}")
    return (Region(side, lobe, (z0, z1, y0, y1, x0, x1)),)


def _one_of(kind: str, name: str, known: tuple[str, ...]) -> str:
    if name not in known:
        raise ValueError(unknown_name_message(kind, name, known))
    return name


class Anatomy:
    """Organs as boxes, and concepts as marks in them.

    Args:
        config: ``organs``, ``concepts`` and ``severities``, as in ``phantom_anatomy.yaml``, which explains them.

    Raises:
        ValueError: If a concept lies in an unknown organ, with the nearest known one; for an unknown pattern; or for a
            box outside the volume.

    Example:
        >>> anatomy = load_anatomy()
        >>> [region.lobe for region in anatomy.regions(PhantomFinding("Lung nodule", side="left"))]
        ['upper', 'lower']
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.organs = {name: _regions(entry) for name, entry in config["organs"].items()}
        self.concepts = {name: self._appearance(entry) for name, entry in config["concepts"].items()}
        self.severities = {name: (float(f[0]), float(f[1])) for name, f in config["severities"].items()}

    def _appearance(self, entry: Mapping[str, Any]) -> Appearance:
        organs = tuple(self.organs)
        kinds = {kind: _one_of("organ", organ, organs) for kind, organ in entry.get("kinds", {}).items()}
        return Appearance(
            organ=_one_of("organ", entry["organ"], organs),
            share=float(entry["share"]),
            strength=float(entry["strength"]),
            focal=_one_of("pattern", entry["pattern"], _PATTERNS) == "focal",
            bilateral=_one_of("sides", entry.get("sides", "one"), _SIDES) == "both",
            kinds=kinds,
            size_mm=entry.get("size_mm"),
        )

    def appearance(self, finding: PhantomFinding) -> Appearance:
        """How the finding's concept looks.

        Raises:
            ValueError: For an unknown concept, with the nearest known one.
        """
        if finding.concept not in self.concepts:
            raise ValueError(unknown_name_message("visible concept", finding.concept, self.concepts))
        return self.concepts[finding.concept]

    def regions(self, finding: PhantomFinding) -> tuple[Region, ...]:
        """Regions that the finding's concept, kind, side and lobe leave open.

        Raises:
            ValueError: For an unknown concept, for a kind that a concept with places by kind does not know, or for a
                side or lobe that the organ does not have.
        """
        appearance = self.appearance(finding)
        organ = appearance.organ
        if appearance.kinds and finding.kind is not None:
            organ = appearance.kinds[_one_of(f"kind of {finding.concept}", finding.kind, tuple(appearance.kinds))]
        regions = self.organs[organ]
        sides = {"bilateral": ("right", "left"), None: None}.get(finding.side, (finding.side,))
        # An organ in the middle has no sides to tell apart.
        if sides is not None and any(region.side for region in regions):
            regions = tuple(region for region in regions if region.side in sides)
        if finding.lobe is not None:
            regions = tuple(region for region in regions if region.lobe == finding.lobe)
        if not regions:
            raise ValueError(f"{organ} has no place {finding.side!r}, {finding.lobe!r}, asked for by {finding}")
        return regions

    def extent(self, finding: PhantomFinding) -> tuple[float, float]:
        r"""Strength of the finding's mark and the share of cells that it takes, by its severity and size.

        A size of :math:`s` mm against the usual :math:`s_0` multiplies the strength by :math:`\sqrt{s / s_0}`, kept
        within 0.7 and 1.6, and the share by :math:`s / s_0`.

        Raises:
            ValueError: For an unknown concept or severity.
        """
        appearance = self.appearance(finding)
        strength, share = appearance.strength, appearance.share
        if finding.severity is not None:
            severity = _one_of("severity", finding.severity, tuple(self.severities))
            strength *= self.severities[severity][0]
            share *= self.severities[severity][1]
        if finding.size_mm is not None and appearance.size_mm is not None:
            ratio = finding.size_mm / appearance.size_mm
            strength *= min(1.6, max(0.7, ratio**0.5))
            share *= ratio
        return strength, min(1.0, share)


@lru_cache(maxsize=1024)
def box_cells(box: Box, grid: Grid) -> NDArray[np.int64]:
    """Cells of a grid whose centres lie in a box, or the nearest one.

    Args:
        box: ``(z0, z1, y0, y1, x0, x1)`` in fractions.
        grid: Cells along z, y and x.

    Returns:
        Indices ``(n,)``, at least one, into the flattened grid; shared, not to be written.

    Example:
        >>> box_cells((0.0, 0.5, 0.0, 1.0, 0.0, 1.0), (2, 1, 2)).tolist()
        [0, 1]
    """
    along = []
    for axis, cells in enumerate(grid):
        low, high = box[2 * axis], box[2 * axis + 1]
        centres = (np.arange(cells) + 0.5) / cells
        inside = np.flatnonzero((centres >= low) & (centres < high))
        nearest = min(cells - 1, int((low + high) / 2 * cells))
        along.append(inside if inside.size else np.array([nearest]))
    indices = np.ravel_multi_index(np.ix_(*along), grid).ravel()
    indices.flags.writeable = False
    return indices


@lru_cache(maxsize=1)
def load_anatomy() -> Anatomy:
    """The anatomy that is shipped beside this module, read once.

    Example:
        >>> len(load_anatomy().concepts) >= 18
        True
    """
    return Anatomy(read_package_yaml("phantom_anatomy.yaml"))
