"""The anatomy of phantom volumes, read from YAML: positions and marks of findings."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rrg_rewards.data.phantom.writer import PhantomFinding
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.package_data import package_yaml

__all__ = ["Anatomy", "Appearance", "Box", "Grid", "Region", "box_cells", "load_anatomy"]

Grid = tuple[int, int, int]
"""Numbers of cells along z, y and x."""

Box = tuple[float, float, float, float, float, float]
"""``(z0, z1, y0, y1, x0, x1)`` in fractions of the volume."""

_PATTERNS = ("focal", "diffuse")
_SIDES = ("one", "both")


@dataclass(frozen=True)
class Region:
    """A box of the volume that belongs to an organ.

    Args:
        side: ``right`` or ``left``; ``None`` for an unpaired organ.
        lobe: ``upper``, ``middle`` or ``lower``; ``None`` outside the lungs.
        box: Extent of the box.
    """

    side: str | None
    lobe: str | None
    box: Box


@dataclass(frozen=True)
class Appearance:
    """Appearance of a concept in a volume.

    Args:
        organ: Organ that is marked.
        share: Share of the organ's cells that is marked, in (0, 1].
        strength: Length of the mark vector.
        focal: Whether the marked cells are adjacent.
        bilateral: Whether a finding without a stated side is on both sides.
        kinds: Organs by kind, for concepts whose organ depends on the kind.
        size_mm: Size at which share and strength apply unchanged; ``None`` if the size has no effect.
    """

    organ: str
    share: float
    strength: float
    focal: bool
    bilateral: bool
    kinds: Mapping[str, str]
    size_mm: float | None


def _regions(entry: Any, side: str | None = None, lobe: str | None = None) -> tuple[Region, ...]:
    """Return the regions of an organ: one, one per side, or one per side and lobe."""
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
    """Boxes of organs, and marks of concepts in these boxes.

    Args:
        config: ``organs``, ``concepts`` and ``severities``, as documented in ``anatomy.yaml``.

    Raises:
        ValueError: If an organ or a pattern is unknown (the message names the nearest known one), or a box is outside
            the volume.

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
        """Return the appearance of the concept of a finding.

        Raises:
            ValueError: If the concept is unknown. The message names the nearest known one.
        """
        if finding.concept not in self.concepts:
            raise ValueError(unknown_name_message("visible concept", finding.concept, self.concepts))
        return self.concepts[finding.concept]

    def regions(self, finding: PhantomFinding) -> tuple[Region, ...]:
        """Return the possible regions of a finding with its concept, kind, side and lobe.

        Raises:
            ValueError: If the concept or the kind is unknown, or the organ does not have the side or the lobe.
        """
        appearance = self.appearance(finding)
        organ = appearance.organ
        if appearance.kinds and finding.kind is not None:
            organ = appearance.kinds[_one_of(f"kind of {finding.concept}", finding.kind, tuple(appearance.kinds))]
        regions = self.organs[organ]
        sides = {"bilateral": ("right", "left"), None: None}.get(finding.side, (finding.side,))
        # An unpaired organ has no sides.
        if sides is not None and any(region.side for region in regions):
            regions = tuple(region for region in regions if region.side in sides)
        if finding.lobe is not None:
            regions = tuple(region for region in regions if region.lobe == finding.lobe)
        if not regions:
            raise ValueError(f"{organ} has no region {finding.side!r}, {finding.lobe!r}, as {finding} requires")
        return regions

    def extent(self, finding: PhantomFinding) -> tuple[float, float]:
        r"""Return the strength of the mark of a finding and the share of cells that it marks.

        Both depend on the severity and the size. A size of :math:`s` mm multiplies the strength by
        :math:`\sqrt{s / s_0}`, limited to [0.7, 1.6], and the share by :math:`s / s_0`, where :math:`s_0` is
        ``size_mm`` of the appearance.

        Raises:
            ValueError: If the concept or the severity is unknown.
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
    """Return the cells of a grid whose centres are in a box, or the nearest cell if there is none.

    Args:
        box: ``(z0, z1, y0, y1, x0, x1)`` in fractions of the volume.
        grid: Numbers of cells along z, y and x.

    Returns:
        Indices ``(n,)`` of cells in the flattened grid, at least one. The array is shared and read-only.

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
    """Return the anatomy in ``anatomy.yaml``, loaded once per process.

    Example:
        >>> len(load_anatomy().concepts) >= 18
        True
    """
    return Anatomy(package_yaml("rrg_rewards.data.phantom", "anatomy"))
