"""The organs that findings are in, and the regions of the body that the organs belong to."""

from functools import cache

from rrg_rewards.findings.knowledge.load import load_knowledge

__all__ = ["finding_organ", "organ_region", "varies_in_organ"]


def finding_organ(concept: str, site: str | None) -> str | None:
    """Return the organ of a finding.

    Args:
        concept: Concept of ``lexicon/chest.yaml``.
        site: The organ that the statement of the finding names; ``None`` if it names none.

    Returns:
        The named organ if a finding of this concept can be in it, else the organ that it is usually in.

    Example:
        >>> finding_organ("pleural_effusion", "liver"), finding_organ("fracture", "head")
        ('pleura', 'head')
    """
    usual, others = _organs().get(concept, (None, frozenset()))
    return site if usual is None or site in others else usual


def varies_in_organ(concept: str) -> bool:
    """Whether the organ of a finding of this concept depends on the organ that its statement names.

    Example:
        >>> varies_in_organ("pleural_effusion"), varies_in_organ("fracture")
        (False, True)
    """
    usual, others = _organs().get(concept, (None, frozenset()))
    return usual is None or bool(others)


def organ_region(organ: str | None) -> str:
    """Return the region of an organ: ``chest``, ``abdomen``, ``head`` or ``other``.

    Example:
        >>> organ_region("spleen"), organ_region(None)
        ('abdomen', 'other')
    """
    entry = load_knowledge("organs")["organs"].get(organ)
    return str(entry["region"]) if entry else "other"


@cache
def _organs() -> dict[str, tuple[str, frozenset[str]]]:
    """Return the usual organ of each concept, and the other organs that it can be in."""
    knowledge = load_knowledge("organs")
    return {
        concept: (organ, frozenset(knowledge["elsewhere"].get(concept, ())))
        for organ, entry in knowledge["organs"].items()
        for concept in entry.get("concepts", ())
    }
