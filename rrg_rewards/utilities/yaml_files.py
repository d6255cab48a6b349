"""Read YAML files of the package, with their digests for signatures, and of users, with errors that name the remedy."""

import hashlib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml

from rrg_rewards.utilities.names import shown, unknown_name_message

T = TypeVar("T")

# Limits of settings. A few hundred bytes of aliases can stand for gigabytes.
_MAX_BYTES, _MAX_NODES, _MAX_DEPTH = 2_000_000, 200_000, 50


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
        ValueError: If the file has more than 2 MB, is not accepted by :func:`parse_yaml`, or is not a mapping.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path}: is a folder; give a YAML file")
    if not path.is_file():
        close = get_close_matches(path.name, [entry.name for entry in path.parent.glob("*.y*ml")], n=1)
        raise FileNotFoundError(f"{path}: no such file{f'; did you mean {path.with_name(close[0])}?' if close else ''}")
    if path.stat().st_size > _MAX_BYTES:
        raise ValueError(f"{path}: has more than {_MAX_BYTES:,} bytes, too many for settings")
    try:
        content = parse_yaml(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error.__cause__
    if not isinstance(content, dict):
        raise ValueError(f"{path}: must be a mapping of keys and values, got {type(content).__name__}")
    return content


def parse_yaml(content: str | bytes) -> Any:
    """Return the content of a YAML text, without constructing arbitrary objects.

    Raises:
        ValueError: If the text is not YAML, repeats a key, is nested more than 50 deep, has more than 200,000 values
            where aliases count with all that they stand for, or has an alias within the value that it stands for.

    Example:
        >>> parse_yaml("{metric: crg, prior: 0.2}")
        {'metric': 'crg', 'prior': 0.2}
    """
    try:
        _check_size(content)
        return yaml.load(content, Loader=_UniqueKeys)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def _check_size(content: str | bytes) -> None:
    """Check the limits while the text is parsed, before values are made of it."""
    known: dict[str, tuple[int, int] | None] = {}
    # Anchor, number of values and depth below of each open collection.
    opened: list[tuple[str | None, int, int]] = [(None, 0, -1)]
    event: Any
    for event in yaml.parse(content, Loader=_UniqueKeys):
        count, depth, line = 1, 0, event.start_mark.line + 1
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, 1, 0))
            known |= {event.anchor: None} if event.anchor else {}
        elif isinstance(event, yaml.AliasEvent):
            # The loader raises an error for an unknown alias.
            if (measured := known.get(event.anchor or "", (1, 0))) is None:
                raise ValueError(f"line {line}: an alias stands for a value that contains it")
            count, depth = measured
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, count, depth = opened.pop()
            known |= {anchor: (count, depth)} if anchor else {}
        if isinstance(event, yaml.ScalarEvent | yaml.AliasEvent | yaml.CollectionEndEvent):
            anchor, others, below = opened.pop()
            count += others
            opened.append((anchor, count, max(below, depth + 1)))
        if count > _MAX_NODES:
            raise ValueError(f"line {line}: more than {_MAX_NODES:,} values are no settings")
        if len(opened) + depth > _MAX_DEPTH:
            raise ValueError(f"line {line}: values nested more than {_MAX_DEPTH} deep are no settings")


# Fast if libyaml is installed.
class _UniqueKeys(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A YAML loader that rejects repeated keys; the base class silently keeps the last value."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and isinstance(key.value, str):
                if key.value in seen:
                    raise ValueError(f"line {key.start_mark.line + 1}: the key {key.value!r} is repeated")
                seen.add(key.value)
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
        raise ValueError(f"{where}: must be a mapping with the keys {', '.join(known)}; got {shown(entry)}")
    for key in entry:
        if key not in known:
            raise ValueError(f"{where}: {unknown_name_message('key', str(key), known)}")
    if missing := [key for key in required if key not in entry]:
        raise ValueError(f"{where}: lacks {', '.join(missing)}")
    return entry
