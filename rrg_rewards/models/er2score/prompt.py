"""Prompt of ER²Score's model, with a reference and a candidate report."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from rrg_rewards.schemas import ScoringSystem

__all__ = ["PromptTemplate", "default_prompt"]

_REFERENCE, _CANDIDATE, _CRITERIA = "{reference}", "{candidate}", "{criteria}"


def default_prompt() -> str:
    """Return the package's template.

    Example:
        >>> default_prompt().splitlines()[-1]
        'Assessment:'
    """
    text = files("rrg_rewards.models.er2score").joinpath("prompt.md").read_text(encoding="utf-8")
    # Remove the final newline, because the reward is read at the last token.
    return text.rstrip("\n")


@dataclass(frozen=True)
class PromptTemplate:
    """A prompt with placeholders for the two reports, and the fixed words around them.

    The reference comes before the candidate, so that the prompt up to the candidate is computed once for all candidates
    of a reference. Words must follow the candidate, because the rewards are read at the last token.

    Args:
        text: The template, with ``{reference}`` and then ``{candidate}``, each once. An optional ``{criteria}`` before
            them is replaced by the criteria of the scoring system and their descriptions. Other braces are text.

    Raises:
        ValueError: If a placeholder is missing, repeated or in the wrong order, or no word follows the candidate.

    Example:
        >>> template = PromptTemplate("Truth: {reference} Guess: {candidate} So:")
        >>> template.before_reference, template.between, template.after_candidate
        ('Truth: ', ' Guess: ', ' So:')
    """

    text: str

    def __post_init__(self) -> None:
        for name in (_REFERENCE, _CANDIDATE):
            if self.text.count(name) != 1:
                raise ValueError(f"prompt must contain {name} once, but contains it {self.text.count(name)} times")
        if self.text.index(_REFERENCE) > self.text.index(_CANDIDATE):
            raise ValueError(f"prompt must contain {_REFERENCE} before {_CANDIDATE}")
        if _CRITERIA in self.between + self.after_candidate:
            raise ValueError(f"prompt must contain {_CRITERIA} before {_REFERENCE}, if at all")
        if not self.after_candidate.strip():
            raise ValueError(f"prompt must have words after {_CANDIDATE}; the rewards are read at the last token")

    @property
    def before_reference(self) -> str:
        """The words before the reference."""
        return self.text.partition(_REFERENCE)[0]

    @property
    def between(self) -> str:
        """The words between the reports."""
        return self.text.partition(_REFERENCE)[2].partition(_CANDIDATE)[0]

    @property
    def after_candidate(self) -> str:
        """The words after the candidate."""
        return self.text.partition(_CANDIDATE)[2]

    @property
    def hash(self) -> str:
        """First digits of the SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:8]

    def with_criteria(self, system: ScoringSystem) -> "PromptTemplate":
        """Return the template with ``{criteria}``, if present, replaced by the criteria of a scoring system.

        Example:
            >>> from rrg_rewards.schemas import get_scoring_system
            >>> template = PromptTemplate("Judge: {criteria} | {reference} | {candidate} |")
            >>> template.with_criteria(get_scoring_system("radcliq")).before_reference.splitlines()[0]
            'Judge: - false finding: ...'
        """
        listed = [f"- {item.name.replace('_', ' ')}: {' '.join(item.description.split())}" for item in system.criteria]
        return PromptTemplate(self.text.replace(_CRITERIA, "\n".join(listed)))
