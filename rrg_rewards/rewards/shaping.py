"""Rewards of form: length, repetition, sections. They keep a policy's reports readable, not true."""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from rrg_rewards.metrics.base import Scores
from rrg_rewards.rewards.base import Completion, Reward, completion_texts
from rrg_rewards.utilities.checks import check_same_length
from rrg_rewards.utilities.signature import format_signature

__all__ = ["FormatReward", "OverlongPenalty", "RepetitionPenalty", "TextReward"]

_WORD = re.compile(r"\w+")


class TextReward(Reward):
    """A reward of a completion's own text."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the data set that the reward reads: none."""
        return ()

    def score(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """Rewards of completions; NaN where a completion holds no assistant message."""
        texts = completion_texts(completions)
        known = [text for text in texts if text is not None]
        given = torch.tensor([text is not None for text in texts], dtype=torch.bool)
        values = torch.tensor(self._values(known, given, columns), dtype=torch.float64)
        return Scores(values).expand(given)

    @abstractmethod
    def _values(self, texts: Sequence[str], given: Tensor, columns: Mapping[str, Any]) -> list[float]:
        """Rewards of the texts that are given."""


class OverlongPenalty(TextReward):
    r"""A penalty of reports that are too long, which begins softly.

    With length :math:`L`, limit :math:`m` and buffer :math:`b`,

    .. math::
        r = \begin{cases} 0 & L \le m - b \\ \frac{(m - b) - L}{b} & m - b < L \le m \\ -1 & L > m \end{cases}

    Source: Yu et al., "DAPO", Eq. 13 (soft overlong punishment).

    Args:
        max_length: :math:`m`, the length from which on the penalty is whole.
        buffer: :math:`b`, over how much it grows; 0 for a step.
        unit: ``"words"``, or ``"tokens"`` of the policy, which trainers pass as ``completion_ids``.
        name: ``__name__`` of the reward.

    Raises:
        ValueError: If the numbers do not fit, or the unit is unknown; when called, if there are no ``completion_ids``.

    Example:
        >>> from rrg_rewards.rewards import OverlongPenalty
        >>> OverlongPenalty(max_length=4, buffer=2)(["Clear lungs.", "The lungs are.", "The lungs are all clear."])
        [0.0, -0.5, -1.0]
    """

    def __init__(
        self,
        max_length: int,
        buffer: int = 0,
        unit: Literal["words", "tokens"] = "words",
        *,
        name: str = "overlong",
    ) -> None:
        super().__init__(name)
        if not 0 <= buffer <= max_length or max_length < 1:
            raise ValueError(
                f"max_length must be positive and buffer lie in [0, max_length], got {max_length}, {buffer}"
            )
        if unit not in ("words", "tokens"):
            raise ValueError(f"unit must be 'words' or 'tokens', got {unit!r}")
        self.max_length = max_length
        self.buffer = buffer
        self.unit = unit

    @property
    def signature(self) -> str:
        """What exactly is rewarded."""
        return format_signature("overlong", max_length=self.max_length, buffer=self.buffer, unit=self.unit)

    def _values(self, texts: Sequence[str], given: Tensor, columns: Mapping[str, Any]) -> list[float]:
        if self.unit == "words":
            return [self._penalty(len(text.split())) for text in texts]
        if "completion_ids" not in columns:
            raise ValueError(
                f"reward {self.__name__!r} counts tokens, but was given no completion_ids; use unit='words'"
            )
        ids = columns["completion_ids"]
        check_same_length("completions", given.tolist(), "completion_ids", ids)
        return [self._penalty(len(ids[row])) for row in given.nonzero().flatten().tolist()]

    def _penalty(self, length: int) -> float:
        if length > self.max_length:
            return -1.0
        over = length - (self.max_length - self.buffer)
        return -over / self.buffer if over > 0 else 0.0


class RepetitionPenalty(TextReward):
    r"""A penalty of reports that repeat themselves: the share of n-grams of words that were there before.

    .. math::
        r = \frac{|\text{distinct n-grams}|}{|\text{n-grams}|} - 1 \in (-1, 0]

    0 for a report of fewer than :math:`n` words. Reports repeat short turns of phrase honestly ("there is no"): four
    words or more are rarely the same twice unless the policy turns in circles.

    Source: distinct-n of Li et al., "A Diversity-Promoting Objective Function for Neural Conversation Models", 2016.

    Args:
        n_gram: :math:`n`, words of an n-gram.
        name: ``__name__`` of the reward.

    Raises:
        ValueError: If ``n_gram`` is not positive.

    Example:
        >>> from rrg_rewards.rewards import RepetitionPenalty
        >>> RepetitionPenalty(n_gram=2)(["No effusion. No effusion. No effusion."])
        [-0.6]
    """

    def __init__(self, n_gram: int = 4, *, name: str = "repetition") -> None:
        super().__init__(name)
        if n_gram < 1:
            raise ValueError(f"n_gram must be positive, got {n_gram}")
        self.n_gram = n_gram

    @property
    def signature(self) -> str:
        """What exactly is rewarded."""
        return format_signature("repetition", n_gram=self.n_gram, case="lower")

    def _values(self, texts: Sequence[str], given: Tensor, columns: Mapping[str, Any]) -> list[float]:  # noqa: ARG002
        return [self._penalty(_WORD.findall(text.lower())) for text in texts]

    def _penalty(self, words: Sequence[str]) -> float:
        grams = [tuple(words[start : start + self.n_gram]) for start in range(len(words) - self.n_gram + 1)]
        return len(set(grams)) / len(grams) - 1.0 if grams else 0.0


class FormatReward(TextReward):
    r"""A reward of reports that have the sections they should have, in their order.

    The reward is the share of sections that are there, each headed by its name and a colon at the start of a line and
    followed by text, as far as they stand in the given order: the longest rising sequence of them counts. In [0, 1].

    Args:
        sections: Names of the sections, in order; case does not matter.
        name: ``__name__`` of the reward.

    Raises:
        ValueError: If there is no section, or two are the same.

    Example:
        >>> from rrg_rewards.rewards import FormatReward
        >>> reward = FormatReward(["Findings", "Impression"])
        >>> reward(["Findings: Clear.\nImpression: Normal.", "Impression: Normal.\nFindings: Clear.", "Clear."])
        [1.0, 0.5, 0.0]
    """

    def __init__(self, sections: Sequence[str], *, name: str = "format") -> None:
        super().__init__(name)
        if isinstance(sections, str) or not sections:
            raise ValueError(f"sections must be a list of names, got {sections!r}")
        self.sections = tuple(section.strip().casefold() for section in sections)
        if len(set(self.sections)) < len(self.sections):
            raise ValueError(f"sections must differ, got {', '.join(sections)}")
        names = "|".join(re.escape(section) for section in self.sections)
        # Text must follow before the next line that is a header.
        self._header = re.compile(rf"^[ \t]*({names})[ \t]*:(?=\s*\S)(?!\s*(?:{names})[ \t]*:)", re.I | re.M)

    @property
    def signature(self) -> str:
        """What exactly is rewarded."""
        return format_signature("format", sections=",".join(self.sections))

    def _values(self, texts: Sequence[str], given: Tensor, columns: Mapping[str, Any]) -> list[float]:  # noqa: ARG002
        return [self._share(text) for text in texts]

    def _share(self, text: str) -> float:
        places: dict[int, int] = {}
        for match in self._header.finditer(text):
            places.setdefault(self.sections.index(match[1].casefold()), match.start())
        longest: list[int] = []
        # Few sections: for each, the longest sequence that ends with it.
        for number in range(len(self.sections)):
            before = [
                length
                for earlier, length in enumerate(longest)
                if earlier in places and number in places and places[earlier] < places[number]
            ]
            longest.append(1 + max(before, default=0) if number in places else 0)
        return max(longest) / len(self.sections)
