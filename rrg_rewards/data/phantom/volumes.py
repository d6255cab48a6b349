"""Phantom volumes: tokens like those of CT-ViT, with a mark at the position of each finding of a phantom study.

The positions and marks of findings are in ``anatomy.yaml``.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rrg_rewards.data.phantom.studies import PhantomStudy
from rrg_rewards.data.phantom.writer import PhantomFinding
from rrg_rewards.utilities.features import write_features
from rrg_rewards.utilities.yaml_files import package_yaml

Grid = tuple[int, int, int]
"""Numbers of cells along z, y and x."""

Box = tuple[float, float, float, float, float, float]
"""``(z0, z1, y0, y1, x0, x1)`` in fractions of the volume."""

DEFAULT_GRID: Grid = (8, 8, 8)
DEFAULT_CHANNELS = 32
DEFAULT_NOISE = 1.0
_KIND_WEIGHT = 0.5
_POSITION_LENGTH = 1.5
_HARMONICS = (1, 2)
_POSITION_CHANNELS = 3 * len(_HARMONICS)
_MIN_CHANNELS = 2 * _POSITION_CHANNELS


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
    z0, z1, y0, y1, x0, x1 = map(float, entry)
    return (Region(side, lobe, (z0, z1, y0, y1, x0, x1)),)


class Anatomy:
    """Boxes of organs, and marks of concepts in these boxes.

    Args:
        config: ``organs``, ``concepts`` and ``severities``, as documented in ``anatomy.yaml``.

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
        return Appearance(
            organ=entry["organ"],
            share=float(entry["share"]),
            strength=float(entry["strength"]),
            focal=entry["pattern"] == "focal",
            bilateral=entry.get("sides") == "both",
            kinds=entry.get("kinds", {}),
            size_mm=entry.get("size_mm"),
        )

    def regions(self, finding: PhantomFinding) -> tuple[Region, ...]:
        """Return the possible regions of a finding with its concept, kind, side and lobe."""
        appearance = self.concepts[finding.concept]
        regions = self.organs[appearance.kinds.get(finding.kind or "", appearance.organ)]
        sides = {"bilateral": ("right", "left"), None: None}.get(finding.side, (finding.side,))
        # An unpaired organ has no sides.
        if sides is not None and any(region.side for region in regions):
            regions = tuple(region for region in regions if region.side in sides)
        if finding.lobe is not None:
            regions = tuple(region for region in regions if region.lobe == finding.lobe)
        return regions

    def extent(self, finding: PhantomFinding) -> tuple[float, float]:
        r"""Return the strength of the mark of a finding and the share of cells that it marks.

        Both depend on the severity and the size. A size of :math:`s` mm multiplies the strength by
        :math:`\sqrt{s / s_0}`, limited to [0.7, 1.6], and the share by :math:`s / s_0`, where :math:`s_0` is
        ``size_mm`` of the appearance.
        """
        appearance = self.concepts[finding.concept]
        strength, share = appearance.strength, appearance.share
        if finding.severity is not None:
            strength *= self.severities[finding.severity][0]
            share *= self.severities[finding.severity][1]
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


def _generator(*names: object) -> np.random.Generator:
    """Return a random generator that is seeded by a hash of names, which is the same in every process."""
    digest = hashlib.sha256("\0".join(map(str, names)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


@lru_cache(maxsize=16)
def _position_basis(channels: int, seed: int) -> NDArray[np.float64]:
    """Return the orthonormal directions ``(6, channels)`` of the position code. Marks are orthogonal to them."""
    directions = _generator("position", seed, channels).standard_normal((channels, _POSITION_CHANNELS))
    basis, _ = np.linalg.qr(directions)
    return np.ascontiguousarray(basis.T)


@lru_cache(maxsize=4)
def _position_code(grid: Grid, channels: int, seed: int) -> NDArray[np.float32]:
    """Return the position code ``(cells, channels)``: cosines of coordinates, with a root mean square length of 1.5."""
    waves: list[NDArray[np.float64]] = []
    for axis, cells in enumerate(grid):
        centres = (np.arange(cells) + 0.5) / cells
        shape = [cells if other == axis else 1 for other in range(3)]
        waves.extend(np.broadcast_to(np.cos(np.pi * k * centres).reshape(shape), grid).ravel() for k in _HARMONICS)
    code = np.stack(waves, axis=1) * (_POSITION_LENGTH * math.sqrt(2 / _POSITION_CHANNELS))
    positions: NDArray[np.float32] = (code @ _position_basis(channels, seed)).astype(np.float32)
    return positions


def _direction(name: str, channels: int, seed: int) -> NDArray[np.float64]:
    basis = _position_basis(channels, seed)
    direction = _generator("mark", seed, channels, name).standard_normal(channels)
    direction -= basis.T @ (basis @ direction)
    unit: NDArray[np.float64] = direction / np.linalg.norm(direction)
    return unit


@lru_cache(maxsize=4096)
def phantom_mark(
    concept: str, kind: str | None = None, channels: int = DEFAULT_CHANNELS, seed: int = 0
) -> NDArray[np.float32]:
    """Return the direction that marks a concept in the tokens of a phantom volume.

    The direction is random, seeded by a hash of the seed and the concept, and orthogonal to the position code. A kind
    rotates it towards another random direction, so that the kinds of a concept are similar but distinguishable.

    Args:
        concept: A CT-RATE label or the name of another finding.
        kind: Kind of the concept, if it has one.
        channels: Width of a token, at least 12.
        seed: Seed of the directions.

    Returns:
        A unit vector ``(channels,)``. The array is shared and read-only.

    Raises:
        ValueError: If there are too few channels.

    Example:
        >>> mark = phantom_mark("Lung nodule")
        >>> mark.shape, round(float(mark @ mark), 3)
        ((32,), 1.0)
    """
    _check_channels(channels)
    mark = _direction(concept, channels, seed)
    if kind is not None:
        mark = mark + _KIND_WEIGHT * _direction(f"{concept}: {kind}", channels, seed)
    unit: NDArray[np.float32] = (mark / np.linalg.norm(mark)).astype(np.float32)
    unit.flags.writeable = False
    return unit


def _check_channels(channels: int) -> None:
    if channels < _MIN_CHANNELS:
        raise ValueError(
            f"channels must be at least {_MIN_CHANNELS}, {_POSITION_CHANNELS} of them for the position, got {channels}"
        )


def _check_arguments(grid: Sequence[int], channels: int, noise: float) -> Grid:
    if len(grid) != 3 or any(cells < 1 for cells in grid):
        raise ValueError(f"grid must be three positive numbers of cells, along z, y and x, got {tuple(grid)}")
    _check_channels(channels)
    if not (math.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise must be finite and not negative, got {noise}")
    return (int(grid[0]), int(grid[1]), int(grid[2]))


def _sites(finding: PhantomFinding, anatomy: Anatomy, random: np.random.Generator) -> list[list[Region]]:
    """Return the regions of each site of a finding: one per side. If no side is stated, a side is drawn."""
    regions = anatomy.regions(finding)
    by_side: dict[str | None, list[Region]] = {}
    for region in regions:
        by_side.setdefault(region.side, []).append(region)
    sites = list(by_side.values())
    if len(sites) == 1 or finding.side == "bilateral" or anatomy.concepts[finding.concept].bilateral:
        return sites
    return [sites[random.integers(len(sites))]]


def _marked_cells(
    cells: NDArray[np.int64], share: float, focal: bool, grid: Grid, random: np.random.Generator
) -> NDArray[np.int64]:
    """Draw a share of the cells: the cells nearest to a random one if ``focal``, else random cells."""
    wanted = max(1, round(share * cells.size))
    if not focal:
        return random.permutation(cells)[:wanted]
    positions = np.stack(np.unravel_index(cells, grid), axis=1) / np.asarray(grid)
    centre = positions[random.integers(cells.size)]
    distances = ((positions - centre) ** 2).sum(axis=1)
    # Rounding and a stable sort give cells of equal distance the same order on every machine.
    return cells[np.argsort(distances.round(9), kind="stable")[:wanted]]


def phantom_volume(
    study: PhantomStudy,
    grid: Sequence[int] = DEFAULT_GRID,
    channels: int = DEFAULT_CHANNELS,
    noise: float = DEFAULT_NOISE,
    seed: int = 0,
) -> NDArray[np.float16]:
    r"""Make the volume of a phantom study: tokens like those that an image encoder returns for an image.

    With :math:`C` channels, the token of cell :math:`c` is

    .. math::
        t_c = p_c + \sum_f [c \in M_f] \, a_f \, m_f + \frac{\eta}{\sqrt C} \, \varepsilon_c,
        \qquad \varepsilon_c \sim N(0, I_C)

    :math:`p_c` is the position code: cosines of :math:`\pi` and :math:`2 \pi` times each coordinate along six
    directions, with a root mean square length of 1.5. The sum is over the ``present`` findings :math:`f`; denied and
    uncertain findings have no mark. :math:`m_f` is :func:`phantom_mark`, :math:`a_f` the strength of the mark and
    :math:`M_f` its cells. The strength and the number of cells increase with size and severity. The cells are drawn
    within the organ, side and lobe of the finding (``anatomy.yaml``). For any :math:`C` the noise has the root mean
    square length :math:`\eta`, and the standard deviation :math:`\eta / \sqrt C` along each direction. A change since a
    prior scan has no effect.

    Args:
        study: The study.
        grid: Numbers of cells along z (from the feet to the head), y (from front to back) and x (from the patient's
            right to the left). CT-CHAT uses ``(24, 24, 24)``.
        channels: Width of a token, at least 12. CT-CHAT uses 512.
        noise: :math:`\eta`, not negative.
        seed: Seed of the directions of positions and concepts. A trained model can only read volumes of the same seed.

    Returns:
        Tokens ``(z, y, x, channels)``. They depend only on the study and the arguments.

    Raises:
        ValueError: If the grid, the width or the noise is invalid.

    Example:
        >>> from rrg_rewards.data import phantom_studies
        >>> study = phantom_studies(1, seed=3, style="compact")[0]
        >>> volume = phantom_volume(study)
        >>> volume.shape, volume.dtype
        ((8, 8, 8, 32), dtype('float16'))
    """
    cells = _check_arguments(grid, channels, noise)
    anatomy = load_anatomy()
    # Cells and noise have separate generators, so that the noise does not change the positions of marks.
    places = _generator("cells", seed, study.study_id)
    tokens = _generator("noise", seed, study.study_id).standard_normal((math.prod(cells), channels), dtype=np.float32)
    tokens *= np.float32(noise / math.sqrt(channels))
    tokens += _position_code(cells, channels, seed)
    for finding in study.findings:
        if finding.presence != "present":
            continue
        strength, share = anatomy.extent(finding)
        mark = np.float32(strength) * phantom_mark(finding.concept, finding.kind, channels, seed)
        for site in _sites(finding, anatomy, places):
            inside = np.concatenate([box_cells(region.box, cells) for region in site])
            # Adjacent boxes may share a cell of a coarse grid. Such a cell is marked once per site.
            focal = anatomy.concepts[finding.concept].focal
            tokens[_marked_cells(np.unique(inside), share, focal, cells, places)] += mark
    return tokens.reshape(*cells, channels).astype(np.float16)


def write_phantom_volumes(
    studies: Iterable[PhantomStudy],
    folder: str | Path,
    grid: Sequence[int] = DEFAULT_GRID,
    channels: int = DEFAULT_CHANNELS,
    noise: float = DEFAULT_NOISE,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[Path]:
    """Write volumes as ``<study_id>.npz`` with the key ``arr`` and a leading axis of 1, as CT-CHAT reads them.

    Args:
        studies: The studies. Their ids must differ.
        folder: Output folder. It is created if it does not exist. Existing files are replaced.
        grid: Numbers of cells along z, y and x, as for :func:`phantom_volume`.
        channels: Width of a token.
        noise: Length of the noise.
        seed: Seed of the directions.
        progress: Function that is called with the number of written studies after each study.

    Returns:
        The path of each study, in order.

    Raises:
        ValueError: As :func:`phantom_volume`, and if two studies have the same id.
        OSError: If a file cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from rrg_rewards.data import phantom_studies
        >>> with TemporaryDirectory() as folder:
        ...     [path.name for path in write_phantom_volumes(phantom_studies(2), folder)]
        ['phantom-full-0-0.npz', 'phantom-full-0-1.npz']
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths: dict[Path, None] = {}
    for study in studies:
        path = folder / f"{study.study_id}.npz"
        if path in paths:
            raise ValueError(f"two studies have the id {study.study_id!r}; their volumes would replace each other")
        write_features(path, phantom_volume(study, grid, channels, noise, seed))
        paths[path] = None
        if progress is not None:
            progress(len(paths))
    return list(paths)


def phantom_volume_rows(studies: Sequence[PhantomStudy], folder: str | Path) -> list[dict[str, Any]]:
    """Return studies as plain dicts with the path of their volume in ``image``.

    Args:
        studies: The studies.
        folder: Folder to which :func:`write_phantom_volumes` writes their volumes.

    Returns:
        :meth:`PhantomStudy.to_row` of each study, with the path in ``image``. The file need not exist.

    Example:
        >>> from rrg_rewards.data import phantom_studies
        >>> phantom_volume_rows(phantom_studies(1), "volumes")[0]["image"]
        'volumes/phantom-full-0-0.npz'
    """
    return [{**study.to_row(), "image": str(Path(folder) / f"{study.study_id}.npz")} for study in studies]
