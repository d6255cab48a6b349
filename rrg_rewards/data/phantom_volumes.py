"""Phantom volumes: CT-ViT-like tokens in which each finding of a phantom study leaves a mark at its place."""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rrg_rewards.data.phantom import PhantomStudy
from rrg_rewards.data.phantom_anatomy import Anatomy, Grid, Region, box_cells, load_anatomy
from rrg_rewards.data.phantom_writer import PhantomFinding
from rrg_rewards.utilities.features import write_features

__all__ = [
    "DEFAULT_CHANNELS",
    "DEFAULT_GRID",
    "DEFAULT_NOISE",
    "phantom_mark",
    "phantom_volume",
    "phantom_volume_rows",
    "write_phantom_volumes",
]

DEFAULT_GRID: Grid = (8, 8, 8)
DEFAULT_CHANNELS = 32
DEFAULT_NOISE = 1.0
_KIND_WEIGHT = 0.5
_POSITION_LENGTH = 1.5
_HARMONICS = (1, 2)
_POSITION_CHANNELS = 3 * len(_HARMONICS)
_MIN_CHANNELS = 2 * _POSITION_CHANNELS


def _generator(*names: object) -> np.random.Generator:
    """A random stream that depends on names only: the same in every process, unlike Python's ``hash``."""
    digest = hashlib.sha256("\0".join(map(str, names)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


@lru_cache(maxsize=16)
def _position_basis(channels: int, seed: int) -> NDArray[np.float64]:
    """Orthonormal directions ``(6, channels)`` that carry the place of a cell and no mark."""
    directions = _generator("position", seed, channels).standard_normal((channels, _POSITION_CHANNELS))
    basis, _ = np.linalg.qr(directions)
    return np.ascontiguousarray(basis.T)


@lru_cache(maxsize=4)
def _position_code(grid: Grid, channels: int, seed: int) -> NDArray[np.float32]:
    """Cosines of the coordinates of each cell, ``(cells, channels)``, of root mean square length 1.5."""
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
    """The direction by which a concept shows in the tokens of a phantom volume.

    It is drawn from a hash of the seed and the concept's name, is orthogonal to everything that codes the place, and is
    turned towards another such direction by the kind, so that kinds of a concept are alike and can yet be told apart.

    Args:
        concept: A CT-RATE label or the name of another finding.
        kind: Its kind, if it has one.
        channels: Width of a token, at least 12.
        seed: Which set of directions.

    Returns:
        A unit vector ``(channels,)``; shared, not to be written.

    Raises:
        ValueError: For too few channels.

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
            f"channels must be at least {_MIN_CHANNELS}, {_POSITION_CHANNELS} of them for the place, got {channels}"
        )


def _check_arguments(grid: Sequence[int], channels: int, noise: float) -> Grid:
    if len(grid) != 3 or any(cells < 1 for cells in grid):
        raise ValueError(f"grid must be three positive numbers of cells, along z, y and x, got {tuple(grid)}")
    _check_channels(channels)
    if not (math.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise must be finite and not negative, got {noise}")
    return (int(grid[0]), int(grid[1]), int(grid[2]))


def _sites(finding: PhantomFinding, anatomy: Anatomy, random: np.random.Generator) -> list[list[Region]]:
    """Regions of each site of the finding: both sides are two sites; without a side, one is drawn."""
    regions = anatomy.regions(finding)
    by_side: dict[str | None, list[Region]] = {}
    for region in regions:
        by_side.setdefault(region.side, []).append(region)
    sites = list(by_side.values())
    if len(sites) == 1 or finding.side == "bilateral" or anatomy.appearance(finding).bilateral:
        return sites
    return [sites[random.integers(len(sites))]]


def _marked_cells(
    cells: NDArray[np.int64], share: float, focal: bool, grid: Grid, random: np.random.Generator
) -> NDArray[np.int64]:
    """A share of the cells: those nearest to one of them, or any."""
    wanted = max(1, round(share * cells.size))
    if not focal:
        return random.permutation(cells)[:wanted]
    places = np.stack(np.unravel_index(cells, grid), axis=1) / np.asarray(grid)
    centre = places[random.integers(cells.size)]
    distances = ((places - centre) ** 2).sum(axis=1)
    # Stable, since cells at one distance must come in one order everywhere.
    return cells[np.argsort(distances.round(9), kind="stable")[:wanted]]


def phantom_volume(
    study: PhantomStudy,
    grid: Sequence[int] = DEFAULT_GRID,
    channels: int = DEFAULT_CHANNELS,
    noise: float = DEFAULT_NOISE,
    seed: int = 0,
) -> NDArray[np.float16]:
    r"""Make the volume of a phantom study: tokens as an image encoder would give, without an image.

    With :math:`C` channels, the token of the cell :math:`c` is

    .. math::
        t_c = p_c + \sum_f [c \in M_f] \, a_f \, m_f + \frac{\eta}{\sqrt C} \, \varepsilon_c,
        \qquad \varepsilon_c \sim N(0, I_C)

    :math:`p_c` codes the place, cosines of :math:`\pi` and :math:`2 \pi` times each coordinate along six directions,
    with a root mean square length of 1.5. :math:`f` runs over the findings that are ``present``: what is denied or
    uncertain leaves no mark. :math:`m_f` is :func:`phantom_mark`, :math:`a_f` its strength and :math:`M_f` its cells,
    both larger for larger and more severe findings, the cells drawn within the organ, side and lobe of the finding
    (``phantom_anatomy.yaml``). The noise has length :math:`\eta` on average whatever :math:`C`, and
    :math:`\eta / \sqrt C` along any one direction. A change since an earlier scan does not show.

    Args:
        study: What to show.
        grid: Cells along z (from the feet to the head), y (from front to back) and x (from the patient's right to the
            left). CT-CHAT's is ``(24, 24, 24)``.
        channels: Width of a token, at least 12. CT-CHAT's is 512.
        noise: :math:`\eta`, not negative.
        seed: Which set of directions codes places and concepts. A model knows the volumes of one seed.

    Returns:
        Tokens ``(z, y, x, channels)``. They depend on the study and the arguments only; the same on every call.

    Raises:
        ValueError: For a grid, a width or a noise that is none, or a finding that has no place in the anatomy.

    Example:
        >>> from rrg_rewards.data import phantom_studies
        >>> study = phantom_studies(1, seed=3, style="compact")[0]
        >>> volume = phantom_volume(study)
        >>> volume.shape, volume.dtype
        ((8, 8, 8, 32), dtype('float16'))
    """
    cells = _check_arguments(grid, channels, noise)
    anatomy = load_anatomy()
    # Cells and noise come from two streams, so that more noise leaves the marks where they are.
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
            # Boxes of neighbours may share a cell on a coarse grid; in one site it is marked once.
            focal = anatomy.appearance(finding).focal
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
    """Write the volumes of studies as ``<study_id>.npz`` with the key ``arr`` and a leading axis of 1, as CT-CHAT's.

    Args:
        studies: What to show; their ids must differ.
        folder: Where to; made if it is not there. A file of the same name is replaced.
        grid: As for :func:`phantom_volume`, like the next three.
        channels: Width of a token.
        noise: Length of the noise.
        seed: Which set of directions.
        progress: Called after each study with the number of studies written so far.

    Returns:
        The paths, one a study, in order.

    Raises:
        ValueError: As :func:`phantom_volume`; for two studies of one id.
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
    """The studies as plain dicts with the path of their volume in the column ``image``.

    Args:
        studies: Studies whose volumes :func:`write_phantom_volumes` writes to ``folder``.
        folder: Where the volumes are.

    Returns:
        :meth:`PhantomStudy.to_row` of each, and ``image``, a string. Whether the file is there is not looked up.

    Example:
        >>> from rrg_rewards.data import phantom_studies
        >>> phantom_volume_rows(phantom_studies(1), "volumes")[0]["image"]
        'volumes/phantom-full-0-0.npz'
    """
    return [{**study.to_row(), "image": str(Path(folder) / f"{study.study_id}.npz")} for study in studies]
