"""Rewards for length, repetition and sections. They measure readability, not clinical correctness."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards.base import Reward
from rrg_rewards.rewards.completions import SPECIAL_TOKENS, Completion, completion_texts
from rrg_rewards.utilities.checks import check_same_length
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.utilities.signature import format_signature

# A word is a run of letters, or a number. Any other character separates words: "nodule,effusion/hernia_mass".
_WORD = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?")
_LETTERS = re.compile(r"[^\W\d_]+")
_LAST_TOKENS = re.compile(rf"(?:\s|{SPECIAL_TOKENS.pattern})+\Z")
# "a)", "(iv)", or "b." at the start of a line or sentence.
_ITEM = r"(?:[a-z]|[ivx]{2,5})"
_COUNTER = re.compile(rf"(?<![^\W_])\(?{_ITEM}\)|(?:^|(?<=[.;:!?\n]))[^\S\n]*{_ITEM}[.:](?=\s)", re.M)
_COUNTING_WORDS = frozenset(
    [
        *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
        *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
    ]
)


def _words(text: str) -> list[str]:
    """Return the words and numbers of a text, whatever separates them."""
    return _WORD.findall(unicodedata.normalize("NFKC", text))


def _uncounted_words(text: str) -> list[str]:
    """Return the words of a text in lower case without numbers and counters: "1. No effusion", "b) No effusion"."""
    lowered = _COUNTER.sub(" ", unicodedata.normalize("NFKC", text).lower())
    return [word for word in _LETTERS.findall(lowered) if word not in _COUNTING_WORDS]


class TextReward(Reward):
    """Base class of rewards that depend only on the text of the completion."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the data set that the reward reads; empty."""
        return ()

    def score(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """Score completions; NaN for completions without an assistant message."""
        texts = self.reports(completions, columns.get("prompts"))
        known = [text for text in texts if text is not None]
        given = torch.tensor([text is not None for text in texts], dtype=torch.bool)
        values = torch.tensor(self._values(known, given, columns), dtype=torch.float64)
        return Scores(values).expand(given)

    def _values(self, texts: Sequence[str], given: Tensor, columns: Mapping[str, Any]) -> list[float]:  # noqa: ARG002
        """Return the rewards of the texts. ``given`` is true for completions that have a text."""
        return [self._value(text) for text in texts]

    def _value(self, text: str) -> float:
        """Return the reward of a text; used by the default :meth:`_values`."""
        raise NotImplementedError


class OverlongPenalty(TextReward):
    r"""A soft penalty for reports that are too long.

    .. math::
        r = \begin{cases} 0 & L \le m - b \\ \frac{(m - b) - L}{b} & m - b < L \le m \\ -1 & L > m \end{cases}

    where :math:`L` is the length, :math:`m` the limit and :math:`b` the buffer. A word is a run of letters or a number;
    spaces, punctuation and all other characters separate words. "5mm" and "ground-glass" have two words.

    Source: Yu et al., "DAPO", Eq. 13 (soft overlong punishment).

    Args:
        max_length: :math:`m`, the length above which the penalty is -1.
        buffer: :math:`b`, the length over which the penalty increases; 0 for a step function.
        unit: ``"words"``, or ``"tokens"`` of the policy, which trainers pass as ``completion_ids``.
        name: Name under which trainers log the reward.

    Raises:
        ValueError: If a number is out of range or the unit is unknown; when called, if ``completion_ids`` is missing.

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
                f"max_length must be positive and buffer must be in [0, max_length], got {max_length}, {buffer}"
            )
        if unit not in ("words", "tokens"):
            raise ValueError(f"unit must be 'words' or 'tokens', got {shown(unit)}")
        self.max_length = max_length
        self.buffer = buffer
        self.unit = unit

    @property
    def signature(self) -> str:
        """Name and settings of the reward."""
        unit = "words:letters-or-number" if self.unit == "words" else self.unit
        settings = {"max_length": self.max_length, "buffer": self.buffer, "unit": unit}
        return format_signature("overlong", **settings) + self.suffix

    @property
    def has_independent_rows(self) -> bool:
        """Whether the length is that of the text; the tokens are known with the whole batch only."""
        return self.unit == "words"

    def _values(self, texts: Sequence[str], given: Tensor, columns: Mapping[str, Any]) -> list[float]:
        if self.unit == "words":
            return [self._penalty(len(_words(text))) for text in texts]
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
    r"""A penalty for repetition: the negated fraction of word n-grams that occurred earlier in the report.

    .. math::
        r = \frac{|\text{distinct n-grams}|}{|\text{n-grams}|} - 1 \in (-1, 0]

    The reward is 0 for a report with fewer than :math:`n` words. Case, punctuation, numbers, counting words and the
    letters of lists ("a)", "iv.") are ignored, so that counters do not hide repetition. Correct reports repeat short
    phrases, such as "there is no", but rarely four or more words.

    Source: distinct-n of Li et al., "A Diversity-Promoting Objective Function for Neural Conversation Models", 2016.

    Args:
        n_gram: :math:`n`, number of words of an n-gram.
        name: Name under which trainers log the reward.

    Raises:
        ValueError: If ``n_gram`` is not positive.

    Example:
        >>> from rrg_rewards.rewards import RepetitionPenalty
        >>> RepetitionPenalty(n_gram=2)(["No effusion. No effusion. No effusion."])
        [-0.6]
        >>> RepetitionPenalty(n_gram=2)(["1. No effusion. 2. No effusion. 3. No effusion."])
        [-0.6]
    """

    has_independent_rows = True

    def __init__(self, n_gram: int = 4, *, name: str = "repetition") -> None:
        super().__init__(name)
        if n_gram < 1:
            raise ValueError(f"n_gram must be positive, got {n_gram}")
        self.n_gram = n_gram

    @property
    def signature(self) -> str:
        """Name and settings of the reward."""
        own = format_signature("repetition", n_gram=self.n_gram, case="lower", counters="ignored")
        return own + self.suffix

    def _value(self, text: str) -> float:
        words = _uncounted_words(text)
        grams = [tuple(words[start : start + self.n_gram]) for start in range(len(words) - self.n_gram + 1)]
        return len(set(grams)) / len(grams) - 1.0 if grams else 0.0


class FormatReward(TextReward):
    r"""A reward for reports that contain the required sections in order, or for completions of a required form.

    With a pattern, the reward is 1 if the whole completion, with its reasoning and tags, matches it, and else 0. Any
    text in this form earns it, so a policy can win it alone, without looking at the image: give it a small weight
    beside a clinical reward. Reasoning that a trainer keeps apart (``reasoning_content``) is no part of the completion.

    With sections, the reward is in [0, 1]: the length of the longest subsequence of sections in the required order,
    divided by the number of required sections. A section begins with its name and a colon at the start of a line, and
    contains at least ``min_words`` different words before the next heading. Names of sections, numbers and punctuation
    are no words: "Findings: -" and "Findings: Findings." are empty sections.

    Args:
        sections: Names of the sections in order, case-insensitive.
        min_words: Number of different words that a section must contain.
        pattern: A regular expression instead of sections, in which ``.`` matches line breaks, too.
        name: Name under which trainers log the reward.

    Raises:
        ValueError: If there is neither a section nor a pattern, or both, two sections are equal, ``min_words`` is not
            positive, or the pattern is no regular expression.

    Example:
        >>> from rrg_rewards.rewards import FormatReward
        >>> reward = FormatReward(["Findings", "Impression"])
        >>> reward(["Findings: Clear.\nImpression: Normal.", "Impression: Normal.\nFindings: Clear.", "Clear."])
        [1.0, 0.5, 0.0]
        >>> reward(["Findings: ...\nImpression: -"])
        [0.0]
        >>> FormatReward(pattern=r"<think>.+</think>.+")(["<think>Effusion?</think>No effusion.", "No effusion."])
        [1.0, 0.0]
    """

    has_independent_rows = True

    def __init__(
        self, sections: Sequence[str] = (), min_words: int = 1, *, pattern: str | None = None, name: str = "format"
    ) -> None:
        super().__init__(name)
        if isinstance(sections, str) or bool(sections) == (pattern is not None):
            raise ValueError(f"sections must be a list of names, if there is no pattern, got {sections!r}, {pattern!r}")
        try:
            self.pattern = None if pattern is None else re.compile(pattern, re.S)
        except (TypeError, re.error) as error:
            raise SettingError("pattern", f"must be a regular expression: {error}") from None
        if min_words < 1:
            raise ValueError(f"min_words must be positive, got {min_words}")
        self.sections = tuple(section.strip().casefold() for section in sections)
        if len(set(self.sections)) < len(self.sections):
            raise ValueError(f"sections must differ, got {', '.join(sections)}")
        self.min_words = min_words
        names = "|".join(re.escape(section) for section in sorted(self.sections, key=len, reverse=True))
        self._header = re.compile(rf"^[ \t]*({names})[ \t]*:", re.I | re.M)
        self._name = re.compile(rf"\b(?:{names})\b", re.I)

    @property
    def signature(self) -> str:
        """Name and settings of the reward."""
        sections = {"sections": ",".join(self.sections), "min_words": self.min_words}
        form = sections if self.pattern is None else {"pattern": self.pattern.pattern}
        return format_signature("format", **form) + self.suffix

    def reports(self, completions: Sequence[Completion], prompts: Sequence[Any] | None = None) -> list[str | None]:
        """Return the reports in completions, or for a pattern the completions as they are."""
        return super().reports(completions, prompts) if self.pattern is None else completion_texts(completions)

    def _value(self, text: str) -> float:
        if self.pattern is not None:
            # Some trainers keep the token that ends a completion.
            written = _LAST_TOKENS.sub("", text).strip()
            return float(self.pattern.fullmatch(written) is not None)
        headers = list(self._header.finditer(text))
        ends = [*(header.start() for header in headers), len(text)]
        places: dict[int, int] = {}
        for header, end in zip(headers, ends[1:], strict=True):
            content = self._name.sub(" ", text[header.end() : end])
            if len(set(_LETTERS.findall(content.casefold()))) >= self.min_words:
                places.setdefault(self.sections.index(header[1].casefold()), header.start())
        longest: list[int] = []
        # For each section, compute the length of the longest ordered subsequence that ends with it.
        for number in range(len(self.sections)):
            before = [
                length
                for earlier, length in enumerate(longest)
                if earlier in places and number in places and places[earlier] < places[number]
            ]
            longest.append(1 + max(before, default=0) if number in places else 0)
        return max(longest) / len(self.sections)
