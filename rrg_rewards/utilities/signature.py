"""Signatures, which identify in one line how a score was computed, as in sacrebleu."""

from rrg_rewards.version import __version__

__all__ = ["format_signature"]


def format_signature(name: str, **fields: object) -> str:
    """Join a name, its settings and the package version as ``name|key:value|...|version:x``.

    Example:
        >>> format_signature("crg", labeler="rules").startswith("crg|labeler:rules|version:")
        True
    """
    parts = [name, *(f"{key}:{value}" for key, value in fields.items()), f"version:{__version__}"]
    return "|".join(parts)
