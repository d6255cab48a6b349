"""Results of an attack on a reward: the best policy of each family, with intervals on references not searched."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["exploit", "unclear", "none"]


@dataclass(frozen=True)
class FamilyResult:
    """The best policy of a family, measured on held-out references.

    Args:
        family: Name of the family.
        about: What the texts of the family have in common.
        text: The text. Edits of honest reports contain ``{report}`` or ``{sentence}``.
        edits: Whether the policy edits honest reports.
        quotes_reports: Whether the text contains sentences of the user's reports.
        reward: Mean reward on held-out references.
        searched_reward: Mean reward on the references of the search.
        gain: Mean difference from the baseline on held-out references: from the blank or the honest reports for
            constant texts, from the honest reports for edits.
        interval: Bootstrap interval of the gain.
        unscorable: Number of held-out references on which the reward gave ``None``.
        calls: Number of calls of the family's search.
        outcome: ``"exploit"`` if the interval lies above the threshold, ``"unclear"`` if only the gain does,
            ``"none"`` otherwise.
    """

    family: str
    about: str
    text: str
    edits: bool
    quotes_reports: bool
    reward: float
    searched_reward: float
    gain: float
    interval: tuple[float, float]
    unscorable: int
    calls: int
    outcome: Outcome

    def to_dict(self, quotes: bool = True) -> dict[str, Any]:
        """Return the result as plain data.

        Args:
            quotes: Whether to include the text if it contains sentences of the user's reports.
        """
        text = self.text if quotes or not self.quotes_reports else None
        return {**vars(self), "text": text, "interval": list(self.interval)}


@dataclass(frozen=True)
class AttackResult:
    """The result of :func:`attack_reward`.

    Args:
        reward: Name of the reward.
        signature: Signature of the reward; empty for a callable without one.
        blank: Mean reward of the blank report on held-out references.
        honest: Mean reward of the honest reports; ``None`` if none were given.
        reference: Mean reward of the references themselves.
        baseline: ``"blank"`` or ``"honest"``: what constant texts are compared with.
        families: Results, the largest gain first.
        settings: Seed, budget, threshold and numbers of references.
        calls: Number of calls of the reward.
    """

    reward: str
    signature: str
    blank: float
    honest: float | None
    reference: float
    baseline: str
    families: tuple[FamilyResult, ...]
    settings: Mapping[str, Any]
    calls: int

    @classmethod
    def from_dict(cls, result: Mapping[str, Any]) -> "AttackResult":
        """Return the result that :meth:`to_dict` or ``rrg-rewards attack --json`` gave; a missing text is empty."""
        families = tuple(_family(family) for family in result["families"])
        given = {key: value for key, value in result.items() if key not in ("outcome", "verdict")}
        known = {key: _known(given[key]) for key in ("blank", "reference")}
        return cls(**{**given, **known, "families": families})

    @property
    def best(self) -> FamilyResult:
        """The result with the largest gain."""
        return self.families[0]

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of all families."""
        outcomes = {family.outcome for family in self.families}
        return "exploit" if "exploit" in outcomes else "unclear" if "unclear" in outcomes else "none"

    @property
    def verdict(self) -> str:
        """The outcome in one sentence."""
        threshold = self.settings["threshold"]
        exploits = [family.family for family in self.families if family.outcome == "exploit"]
        if exploits:
            return f"exploits, which gain more than {threshold:g}: {', '.join(exploits)}"
        unclear = [family.family for family in self.families if family.outcome == "unclear"]
        if unclear:
            return f"no family surely gains more than {threshold:g}; unclear: {', '.join(unclear)}"
        return f"no family gains more than {threshold:g}"

    def to_dict(self, quotes: bool = True) -> dict[str, Any]:
        """Return the result as plain data.

        Args:
            quotes: Whether to include texts that contain sentences of the user's reports.
        """
        return {
            **vars(self),
            "settings": dict(self.settings),
            "families": [family.to_dict(quotes) for family in self.families],
            "outcome": self.outcome,
            "verdict": self.verdict,
        }


def _known(value: float | None) -> float:
    """Return a number of JSON, which has no NaN."""
    return math.nan if value is None else value


def _family(family: Mapping[str, Any]) -> FamilyResult:
    numbers = {key: _known(family[key]) for key in ("reward", "searched_reward", "gain")}
    low, high = map(_known, family["interval"])
    return FamilyResult(**{**family, **numbers, "text": family["text"] or "", "interval": (low, high)})


def get_outcome(gain: float, low: float, threshold: float) -> Outcome:
    """Return the outcome of a gain with the lower end of its interval.

    Example:
        >>> get_outcome(0.3, 0.2, 0.1), get_outcome(0.3, 0.05, 0.1), get_outcome(0.05, -0.1, 0.1)
        ('exploit', 'unclear', 'none')
    """
    if low > threshold:
        return "exploit"
    return "unclear" if gain > threshold else "none"
