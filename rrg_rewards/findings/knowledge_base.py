"""The YAML data behind attributes, concepts and clinical significance."""

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

__all__ = ["knowledge_digest", "read_knowledge"]

_PACKAGE = "rrg_rewards.findings.knowledge"
_NAMES = ("attributes", "concepts")


def _content(name: str) -> bytes:
    return (files(_PACKAGE) / f"{name}.yaml").read_bytes()


@cache
def read_knowledge(name: str) -> dict[str, Any]:
    """Contents of ``knowledge/<name>.yaml``, read once a process and not to be changed: ``attributes`` or ``concepts``.

    Example:
        >>> read_knowledge("concepts")["concepts"]["tension_pneumothorax"]["is_a"]
        ['pneumothorax']
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content: dict[str, Any] = yaml.load(_content(name), Loader=loader)
    return content


@cache
def knowledge_digest() -> str:
    """Short hash of all of it, for signatures.

    Example:
        >>> len(knowledge_digest())
        8
    """
    return hashlib.sha256(b"".join(map(_content, _NAMES))).hexdigest()[:8]
