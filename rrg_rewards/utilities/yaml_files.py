"""Read YAML files of the package, with their digests for signatures, and of users, with errors that name the remedy."""

import hashlib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml

from rrg_rewards.utilities.names import unknown_name_message

T = TypeVar("T")


def _content(package: str, name: str) -> bytes:
    return files(package).joinpath(f"{name}.yaml").read_bytes()


@cache
def package_yaml(package: str, name: str) -> dict[str, Any]:
    """Return the mapping in ``<name>.yaml`` of a package, read once per process. Do not modify it.

    Args:
        package: Dotted name of the package that contains the file.
        name: Name of the file, without ``.yaml``.

    Example:
        >>> package_yaml("rrg_rewards.data.phantom", "population")["factors"]
        ['vascular', 'congestion', 'infection', 'airway']
    """
    # Fast if libyaml is installed.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content: dict[str, Any] = yaml.load(_content(package, name), Loader=loader)
    return content


@cache
def package_yaml_digest(package: str, *names: str) -> str:
    """Return the first eight hexadecimal digits of the SHA-256 of YAML files of a package.

    Example:
        >>> len(package_yaml_digest("rrg_rewards.data.phantom", "population"))
        8
    """
    return hashlib.sha256(b"".join(_content(package, name) for name in names)).hexdigest()[:8]


@cache
def package_yaml_names(package: str) -> tuple[str, ...]:
    """Return the sorted names of the YAML files of a package, without ``.yaml``.

    Example:
        >>> package_yaml_names("rrg_rewards.schemas.scoring_systems")
        ('mrscore', 'radcliq')
    """
    names = (path.name for path in files(package).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def is_yaml_path(name: str | Path) -> bool:
    """Whether a name is the path of a YAML file, not a name of this package.

    Example:
        >>> is_yaml_path("my_lexicon.yaml"), is_yaml_path("ct_rate")
        (True, False)
    """
    # Called for every report. A Path takes several times as long.
    return str(name).lower().endswith((".yaml", ".yml"))


def absolute_yaml_path(given: T) -> T | str:
    """Return the absolute path of a YAML file, because worker processes may have another working folder.

    Args:
        given: Path of a YAML file, or a name or an object, which is returned unchanged.

    Example:
        >>> absolute_yaml_path("ct_rate"), Path(absolute_yaml_path("my_schema.yaml")).is_absolute()
        ('ct_rate', True)
    """
    return str(Path(given).resolve()) if isinstance(given, str | Path) and is_yaml_path(given) else given


def read_user_yaml(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, without constructing arbitrary objects.

    Raises:
        FileNotFoundError: If the file does not exist. The message names a similar file.
        ValueError: If the file is not YAML, repeats a key, or is not a mapping.
    """
    path = Path(path)
    if not path.is_file():
        close = get_close_matches(path.name, [entry.name for entry in path.parent.glob("*.y*ml")], n=1)
        raise FileNotFoundError(f"{path}: no such file{f'; did you mean {path.with_name(close[0])}?' if close else ''}")
    try:
        # The parser raises an error for bytes that are not UTF-8, and a RecursionError for thousands of brackets.
        content = yaml.load(path.read_bytes(), Loader=_UniqueKeys)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: must be a mapping of keys and values, got {type(content).__name__}")
    return content


class _UniqueKeys(yaml.SafeLoader):
    """A YAML loader that rejects repeated keys; the base class silently keeps the last value."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        if repeated := [key for place, key in enumerate(keys) if isinstance(key, str) and key in keys[:place]]:
            line = next(key.start_mark.line for key, _ in reversed(node.value) if key.value == repeated[0]) + 1
            raise ValueError(f"line {line}: the key {repeated[0]!r} is repeated")
        return super().construct_mapping(node, deep)


def check_keys(where: str, entry: Any, known: Collection[str], required: Collection[str] = ()) -> Mapping[str, Any]:
    """Return an entry if it is a mapping with known keys and all required ones.

    Raises:
        ValueError: If it is not. The message starts with ``where``.

    Example:
        >>> check_keys("my.yaml, concept 'nodule'", {"phrases": ["nodule"]}, ["phrase", "with"])
        Traceback (most recent call last):
        ...
        ValueError: my.yaml, concept 'nodule': unknown key 'phrases'; did you mean 'phrase'? Known: phrase, with
    """
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where}: must be a mapping with the keys {', '.join(known)}; got {entry!r}")
    for key in entry:
        if key not in known:
            raise ValueError(f"{where}: {unknown_name_message('key', str(key), known)}")
    if missing := [key for key in required if key not in entry]:
        raise ValueError(f"{where}: lacks {', '.join(missing)}")
    return entry
