"""Results of an attack on a reward: the best policy of each family, with intervals on references not searched."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
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
class RewardCheck:
    """What a reward gives to references, compared with themselves, and to an empty text.

    Args:
        references: Number of references that were checked.
        unscorable: Number of them without a reward against themselves. The others are compared.
        exceeded: Number of references against which a sampled text scores higher than the reference itself.
        exceeded_by: Number of these references for each kind of text, such as ``"another reference"``.
        excess: Largest difference between the reward of a text and that of the reference itself.
        empty: Number of references against which an empty text scores at least as much as the reference itself.
        empty_normal: Number of these on which a normal report does too, because they describe nothing abnormal or the
            reward does not read them.

    Example:
        >>> check = RewardCheck(32, 0, 3, {"another reference": 3}, 0.5, 8, 8)
        >>> check.failures
        ('a text scores higher than the reference itself on 3 of 32 references (another reference: 3), by up to 0.5',)
        >>> check.notes
        ('an empty text and a normal report score as much as the reference on 8 of 32 references',)
    """

    references: int
    unscorable: int
    exceeded: int
    exceeded_by: Mapping[str, int]
    excess: float
    empty: int
    empty_normal: int

    @property
    def compared(self) -> int:
        """Number of references with a reward against themselves."""
        return self.references - self.unscorable

    @property
    def failures(self) -> tuple[str, ...]:
        """What a reward must not do: pay a text more than the reference, or an empty text as much.

        An empty text may score as much as a reference on which a normal report does too, unless these are all.
        """
        count = self.compared
        if not count:
            return ("the reward scores no reference against itself",)
        found = []
        if self.exceeded:
            kinds = ", ".join(f"{kind}: {number}" for kind, number in self.exceeded_by.items() if number)
            found.append(
                f"a text scores higher than the reference itself on {self.exceeded} of {count} references ({kinds}), "
                f"by up to {self.excess:.3g}"
            )
        if self.empty > self.empty_normal or self.empty == count:
            found.append(f"an empty text scores as much as the reference on {self.empty} of {count} references")
        return tuple(found)

    @property
    def notes(self) -> tuple[str, ...]:
        """What limits the check, or the use of an empty text, without being a failure."""
        found = []
        if self.compared and self.unscorable:
            found.append(f"{self.unscorable} of {self.references} references have no reward against themselves")
        if 0 < self.empty == self.empty_normal < self.compared:
            found.append(
                f"an empty text and a normal report score as much as the reference on {self.empty} of "
                f"{self.compared} references"
            )
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the check as plain data, with its failures and notes."""
        return {**asdict(self), "failures": list(self.failures), "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, check: Mapping[str, Any]) -> "RewardCheck":
        """Return the check that :meth:`to_dict` gave."""
        return cls(**{field.name: check[field.name] for field in fields(cls)})


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
        check: What the reward gives to the references themselves and to an empty text; ``None`` if an older version
            wrote the result.
        complete: Whether all families were searched; otherwise the search was interrupted.
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
    check: RewardCheck | None = None
    complete: bool = True

    @classmethod
    def from_dict(cls, result: Mapping[str, Any]) -> "AttackResult":
        """Return the result that :meth:`to_dict` or ``rrg-rewards attack`` gave; a missing text is empty."""
        families = tuple(_family(family) for family in result["families"])
        given = {key: value for key, value in result.items() if key not in ("outcome", "verdict")}
        known = {key: _known(given[key]) for key in ("blank", "reference")}
        check = RewardCheck.from_dict(given["check"]) if given.get("check") else None
        return cls(**{**given, **known, "families": families, "check": check})

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
        threshold = f"{self.settings['threshold']:g}"
        named = ", ".join(family.family for family in self.families if family.outcome == self.outcome)
        verdict = {
            "exploit": f"exploits, which gain more than {threshold}: {named}",
            "unclear": f"no family surely gains more than {threshold}; unclear: {named}",
            "none": f"no family gains more than {threshold}",
        }[self.outcome]
        return verdict if self.complete else f"{verdict}; the search was interrupted"

    def to_dict(self, quotes: bool = True) -> dict[str, Any]:
        """Return the result as plain data.

        Args:
            quotes: Whether to include texts that contain sentences of the user's reports.
        """
        return {
            **vars(self),
            "settings": dict(self.settings),
            "families": [family.to_dict(quotes) for family in self.families],
            "check": None if self.check is None else self.check.to_dict(),
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
