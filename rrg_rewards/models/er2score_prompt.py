"""The text in which ER²Score's model reads a reference and a candidate report."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from rrg_rewards.schemas import ScoringSystem

__all__ = ["PromptTemplate", "default_prompt"]

_REFERENCE, _CANDIDATE, _CRITERIA = "{reference}", "{candidate}", "{criteria}"


def default_prompt() -> str:
    """The template that comes with the package.

    Example:
        >>> default_prompt().splitlines()[-1]
        'Assessment:'
    """
    text = files("rrg_rewards.models").joinpath("prompts/er2score.md").read_text(encoding="utf-8")
    # The file ends in a new line, as files do; the prompt ends where the reward is read.
    return text.rstrip("\n")


@dataclass(frozen=True)
class PromptTemplate:
    """A prompt with places for the two reports, and the fixed words around them.

    The reference stands before the candidate, so that what comes before the candidate is computed once for all
    candidates of a reference; and words follow the candidate, at the last of which the rewards are read.

    Args:
        text: The template: ``{reference}``, then ``{candidate}``, each once; ``{criteria}`` before them, if at all,
            stands for the criteria of the scoring system with their descriptions. Other braces are text.

    Raises:
        ValueError: If a place is missing, repeated or in the wrong order, or no word follows the candidate.

    Example:
        >>> template = PromptTemplate("Truth: {reference} Guess: {candidate} So:")
        >>> template.before_reference, template.between, template.after_candidate
        ('Truth: ', ' Guess: ', ' So:')
    """

    text: str

    def __post_init__(self) -> None:
        for place in (_REFERENCE, _CANDIDATE):
            if self.text.count(place) != 1:
                raise ValueError(f"prompt must hold {place} once, it does {self.text.count(place)} times")
        if self.text.index(_REFERENCE) > self.text.index(_CANDIDATE):
            raise ValueError(f"prompt must hold {_REFERENCE} before {_CANDIDATE}")
        if _CRITERIA in self.between + self.after_candidate:
            raise ValueError(f"prompt must hold {_CRITERIA} before {_REFERENCE}, if at all")
        if not self.after_candidate.strip():
            raise ValueError(f"prompt must have words after {_CANDIDATE}: at the last of them the rewards are read")

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
        """The template with a scoring system's criteria in their place, where it has one for them.

        Example:
            >>> from rrg_rewards.schemas import get_scoring_system
            >>> template = PromptTemplate("Judge: {criteria} | {reference} | {candidate} |")
            >>> template.with_criteria(get_scoring_system("radcliq")).before_reference.splitlines()[0]
            'Judge: - false finding: ...'
        """
        listed = [f"- {item.name.replace('_', ' ')}: {' '.join(item.description.split())}" for item in system.criteria]
        return PromptTemplate(self.text.replace(_CRITERIA, "\n".join(listed)))
