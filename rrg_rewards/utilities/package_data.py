"""Read the YAML files of the package, and compute their digests for signatures."""

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

__all__ = ["package_yaml", "package_yaml_digest", "package_yaml_names", "parse_yaml"]


def parse_yaml(text: str | bytes) -> Any:
    """Parse a YAML document without constructing arbitrary objects. Fast if libyaml is installed.

    Example:
        >>> parse_yaml("[1, two]")
        [1, 'two']
    """
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


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
    content: dict[str, Any] = parse_yaml(_content(package, name))
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
