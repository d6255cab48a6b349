"""Read and write image features, the tokens of an image encoder, with one file per study."""

import errno
import io
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rrg_rewards.utilities.files import whole_file
from rrg_rewards.utilities.imports import require

FEATURE_ENDINGS = (".npz", ".npy", ".safetensors")
"""Endings of feature files. The ending determines the format."""

FEATURE_KEY = "arr"
"""Name of the array in an ``.npz`` or ``.safetensors`` file."""

MAX_EXPANDED_BYTES = 2**28
"""Default of the greatest size of a compressed array: 256 MiB, 18 times CT-CHAT's features."""

_MEMBER = f"{FEATURE_KEY}.npy"
_ALIGNMENT = 64
_LOCAL_HEADER = struct.Struct("<26xHH")
_DTYPES = (np.dtype(np.float16), np.dtype(np.float32))
# Errors that zipfile and numpy raise for damaged files.
_DAMAGE = (
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    SyntaxError,
    TokenError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
# Errors of the operating system that do not indicate a damaged file.
_UNREADABLE = (errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EISDIR)

Array = NDArray[Any]


class FeatureError(ValueError):
    """Invalid features of a study. The message names the study, the file and the remedy."""


def read_features(
    path: str | Path,
    *,
    channels: int | None = None,
    check_finite: bool = True,
    max_bytes: int | None = MAX_EXPANDED_BYTES,
) -> Array:
    """Read the features of one study, mapped into memory if possible.

    An ``.npz`` file contains the features under the key ``arr``, as in CT-CHAT's published files. A ``.safetensors``
    file contains them under ``arr`` or as its only tensor. A leading axis of 1 is dropped. Uncompressed files are
    mapped into memory: pages are read on first use and shared by all processes. A compressed ``.npz`` is read
    completely, and its checksum is verified. Files are read without unpickling.

    Args:
        path: Path of the file.
        channels: Expected width ``C`` of a token, if known.
        check_finite: Whether NaN and infinity are errors. The check reads all values, which takes about 10 ms for
            CT-CHAT's 7 million values in memory; without it a mapped file is read on first use.
        max_bytes: Greatest size of the array of a compressed ``.npz``, which a small file can exceed by far; ``None``
            for no limit.

    Returns:
        Features ``(D, H, W, C)``: ``float16`` and ``float32`` unchanged, ``bfloat16`` (safetensors) as ``float32``.
        Writing to the array does not change the file.

    Raises:
        FeatureError: If the file is missing, damaged or truncated, lacks the array, has an unexpected dtype, shape or
            width, contains NaN or infinity, or expands to more than ``max_bytes``.
        ModuleNotFoundError: For ``.safetensors``, if the package of this name is not installed.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "train_1_a_1.npz"
        ...     write_features(path, np.zeros((2, 2, 2, 4), np.float16))
        ...     read_features(path, channels=4).shape
        (2, 2, 2, 4)
    """
    path = Path(path)
    with _named_errors(path):
        read = _reader(path)
        if read is _read_npz:
            _check_expanded_size(path, max_bytes)
        features = _checked_shape(read(path), channels)
        if check_finite and not _is_finite(features):
            raise FeatureError("contains NaN or infinity; encode the study again")
        return features


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Convert errors to :class:`FeatureError` with the study, the file and the remedy in the message."""
    where = f"features of {path.stem}: {path}"
    try:
        yield
    except FeatureError as error:
        raise FeatureError(f"{where}: {error}") from error.__cause__
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno in _UNREADABLE:
            raise FeatureError(f"{where}: cannot be read: {error.strerror}") from error
        reason = f"damaged or truncated ({error or type(error).__name__})"
        raise FeatureError(f"{where}: {reason}; copy the file or encode the study again") from error


def check_features(path: str | Path) -> None:
    """Check a feature file without reading its values; fast enough for a whole data set.

    An uncompressed file gets all checks of :func:`read_features` except that for finite values. A compressed file is
    only checked for a complete archive.

    Raises:
        FeatureError: See :func:`read_features`.
    """
    path = Path(path)
    with _named_errors(path):
        read = _reader(path)
        if read is not _read_npz or not _check_expanded_size(path, MAX_EXPANDED_BYTES):
            _checked_shape(read(path))


def write_features(path: str | Path, features: Array) -> None:
    """Write the features of one study atomically, in a form that :func:`read_features` can map into memory.

    Args:
        path: ``.npz`` file, which is not compressed. An existing file is replaced.
        features: ``(D, H, W, C)`` or ``(1, D, H, W, C)`` in ``float16`` or ``float32``; written as
            ``(1, D, H, W, C)``.

    Raises:
        FeatureError: For an invalid shape or dtype, another ending, or a missing folder.
        OSError: If the file cannot be written.

    Example:
        >>> write_features("study.pt", np.zeros((2, 2, 2, 4), np.float16))
        Traceback (most recent call last):
        ...
        rrg_rewards.utilities.features.FeatureError: features of study: study.pt: must end in .npz
    """
    path = Path(path)
    with _named_errors(path):
        content = _npz_bytes(np.ascontiguousarray(_checked_shape(np.asarray(features))[None]))
        if path.suffix.lower() != ".npz":
            raise FeatureError("must end in .npz")
        if not path.parent.is_dir():
            raise FeatureError(f"the folder {path.parent} does not exist")
    with whole_file(path) as file:
        file.write(content)


def _reader(path: Path) -> Callable[[Path], Array]:
    """Return the function that reads a file, which must exist."""
    ending = path.suffix.lower()
    if ending not in FEATURE_ENDINGS:
        kind = f"the ending {ending!r}" if ending else "an empty ending"
        raise FeatureError(f"{kind} is not a format of features; use one of {', '.join(FEATURE_ENDINGS)}")
    if not path.exists():
        raise FeatureError("no such file; check the folder of features")
    if not path.is_file():
        raise FeatureError("is not a file")
    return {".npz": _read_npz, ".npy": _read_npy, ".safetensors": _read_safetensors}[ending]


def _checked_shape(features: Array, channels: int | None = None) -> Array:
    """Return the features without a leading axis of 1, or raise FeatureError for an invalid dtype or shape."""
    _check_dtype(features.dtype)
    shape = features.shape
    if len(shape) == 5 and shape[0] == 1:
        features = features[0]
    if features.ndim != 4 or not features.size:
        raise FeatureError(f"must have the shape (D, H, W, C) or (1, D, H, W, C), none of them 0, got {shape}")
    if channels is not None and features.shape[3] != channels:
        raise FeatureError(
            f"expected tokens of width {channels}, found {features.shape[3]}; use the features of the encoder that "
            "the model was trained on"
        )
    return features


def _check_dtype(dtype: np.dtype[Any]) -> None:
    if dtype.hasobject:
        raise FeatureError("contains Python objects, which are never loaded; save a float16 or float32 array")
    if dtype not in _DTYPES:
        raise FeatureError(f"must be float16 or float32, got {dtype.str}; save it as one of these")


def _is_finite(features: Array) -> bool:
    return all(bool(np.isfinite(part).all()) for part in features)


def _map(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, fortran: bool) -> Array:
    """Map an array of a file into memory."""
    return np.asarray(np.memmap(file, dtype, "c", offset, shape, "F" if fortran else "C"))


def _npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, Fortran order and dtype from the start of an ``.npy`` stream."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    _check_dtype(dtype)
    if any(length < 0 for length in shape):
        raise FeatureError(f"the header has an impossible shape {shape}")
    return shape, fortran, dtype


def _read_npy(path: Path) -> Array:
    with path.open("rb") as file:
        shape, fortran, dtype = _npy_header(file)
        return _map(file, dtype, shape, file.tell(), fortran)


def _read_npz(path: Path) -> Array:
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        if _MEMBER not in names:
            keys = ", ".join(name.removesuffix(".npy") for name in names) or "nothing"
            raise FeatureError(f"has no array {FEATURE_KEY!r}; it contains: {keys}")
        member = archive.getinfo(_MEMBER)
        with archive.open(member) as stream:
            shape, fortran, dtype = _npy_header(stream)
            start = stream.tell()
            if start + dtype.itemsize * math.prod(shape) != member.file_size:
                raise FeatureError(f"the array's shape {shape} does not fit the {member.file_size} bytes of its entry")
            if member.compress_type != zipfile.ZIP_STORED:
                content = np.frombuffer(bytearray(stream.read()), dtype)
                return content.reshape(shape, order="F" if fortran else "C")
        file.seek(member.header_offset)
        # The lengths in the archive's directory may differ from those before the entry.
        name_length, extra_length = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        start += member.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        return _map(file, dtype, shape, start, fortran)


def _check_expanded_size(path: Path, limit: int | None) -> bool:
    """Check the declared size of a compressed array, and return whether the array is compressed."""
    with zipfile.ZipFile(path) as archive:
        member = archive.NameToInfo.get(_MEMBER)
    if member is None or member.compress_type == zipfile.ZIP_STORED:
        return False
    if limit is not None and member.file_size > limit:
        raise FeatureError(
            f"{member.compress_size:,} bytes expand to {member.file_size:,}, more than max_bytes={limit:,}; if that is "
            "right, save it without compression (numpy.savez)"
        )
    return True


def _read_safetensors(path: Path) -> Array:
    library = require("safetensors", extra="labelers")
    try:
        # With torch, because the library copies arrays of numpy instead of mapping them.
        with library.safe_open(path, "pt") as file:
            names = list(file.keys())
            if FEATURE_KEY not in names and len(names) != 1:
                raise FeatureError(f"has no tensor {FEATURE_KEY!r}; it contains: {', '.join(names) or 'nothing'}")
            tensor = file.get_tensor(FEATURE_KEY if FEATURE_KEY in names else names[0])
    except library.SafetensorError as error:
        raise ValueError(str(error)) from error
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in ("float16", "float32", "bfloat16"):
        raise FeatureError(f"must be float16, float32 or bfloat16, got {name}; save it as one of these")
    features: Array = (tensor.float() if name == "bfloat16" else tensor).numpy()
    return features


def _npz_bytes(features: Array) -> bytes:
    member = zipfile.ZipInfo(_MEMBER)
    # Unlike numpy.savez, align the values to 64 bytes with an extra field, which has the id that zipalign uses.
    padding = -(_LOCAL_HEADER.size + len(_MEMBER) + 4) % _ALIGNMENT
    member.extra = struct.pack("<HH", 0xD935, padding) + b"\0" * padding
    array, buffer = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array(array, features, allow_pickle=False)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(member, array.getvalue())
    return buffer.getvalue()
