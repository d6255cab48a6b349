"""Load the YAML data of this folder."""

from typing import Any

from rrg_rewards.utilities.package_data import package_yaml, package_yaml_digest

__all__ = ["knowledge_digest", "load_knowledge"]

_PACKAGE = "rrg_rewards.findings.knowledge"


def load_knowledge(name: str) -> dict[str, Any]:
    """Return the contents of ``knowledge/<name>.yaml``, read once per process. Do not modify them.

    Example:
        >>> load_knowledge("concepts")["concepts"]["tension_pneumothorax"]["is_a"]
        ['pneumothorax']
    """
    return package_yaml(_PACKAGE, name)


def knowledge_digest() -> str:
    """Return a short hash of the files that comparisons depend on, for signatures.

    Example:
        >>> len(knowledge_digest())
        8
    """
    names = "attributes compositions concepts measurements open_findings organs spellings wordings"
    return package_yaml_digest(_PACKAGE, *names.split())
