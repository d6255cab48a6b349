"""What a report says about one finding."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Presence"]

Presence = Literal["present", "absent", "uncertain"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One mention of a finding in a report.

    Args:
        concept: Identifier of the finding in its lexicon, such as ``pleural_effusion``.
        presence: Whether the report says that it is there, that it is not, or leaves it open.
        start: Offset of the first character of the mention in the report.
        end: Offset just past the last character of the mention.
        sentence: Index of the sentence in the report.
        text: The report's characters from ``start`` to ``end``.

    Example:
        >>> from rrg_rewards.findings import extract_findings
        >>> extract_findings("No emphysema.")[0]
        Finding(concept='emphysema', presence='absent', start=3, end=12, sentence=0, text='emphysema')
    """

    concept: str
    presence: Presence
    start: int
    end: int
    sentence: int
    text: str
