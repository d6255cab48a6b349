"""Volumes of CT-CHAT's prompts: paths of features, or arrays of features."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rrg_rewards.utilities.features import read_features

__all__ = ["Volume", "is_volume", "read_volume", "volumes_of"]

Volume = str | Path | NDArray[Any] | Tensor
"""One volume: the path of its features, or the features themselves."""


def read_volume(volume: Volume, feature_size: int) -> NDArray[Any]:
    """Return the features of a volume as an array ``(tokens, feature_size)``.

    Args:
        volume: Path of the features, or the features with shape ``(..., feature_size)``.
        feature_size: Channels of the features.

    Raises:
        FeatureError: If a file is missing, damaged or of the wrong shape, naming the study.
        ValueError: If an array has the wrong shape, or contains NaN or infinity.
    """
    # A single NaN would corrupt a training step, and an error on the GPU would not name the file.
    if isinstance(volume, str | Path):
        return read_features(volume, channels=feature_size, check_finite=True).reshape(-1, feature_size)
    array = volume.detach().cpu().float().numpy() if isinstance(volume, Tensor) else np.asarray(volume)
    if array.ndim < 2 or array.shape[-1] != feature_size:
        raise ValueError(f"features must have shape (..., {feature_size}), got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("features must be finite, got NaN or infinity")
    return array.reshape(-1, feature_size)


def is_volume(image: Any) -> bool:
    """Whether a value is one volume: the path of its features, or the features."""
    return isinstance(image, str | Path | np.ndarray | Tensor)


def volumes_of(image: Any) -> Iterator[Volume]:
    """Yield the volumes of a prompt.

    Args:
        image: A volume, a list of volumes or of such lists, or ``None`` for no volume.

    Raises:
        TypeError: If something else is given, for example a PIL image.
    """
    if image is None:
        return
    if is_volume(image):
        yield image
    elif isinstance(image, Sequence):
        for volume in image:
            yield from volumes_of(volume)
    else:
        raise TypeError(f"a volume must be a path or an array of features, got {type(image).__name__}")
