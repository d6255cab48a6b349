"""Prompts of ER²Score's model with a reference and a candidate report: template and tokens.

The part of a prompt before the candidate is the same for all candidates of a reference.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.models.pair_predictor import PairTokenizer, shares
from rrg_rewards.schemas import ScoringSystem

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


@dataclass(frozen=True)
class TokenizedPrompt:
    """Tokens of a prompt with a report pair.

    Args:
        prefix: Token ids of the prompt up to the candidate.
        suffix: Token ids from the candidate on.
        num_cut: Number of tokens of both reports that were cut.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    # Not compared, because it does not change the input of the model.
    num_cut: int = field(default=0, compare=False)

    def __len__(self) -> int:
        return len(self.prefix) + len(self.suffix)


class PromptEncoder(PairTokenizer[TokenizedPrompt]):
    """Make prompts of report pairs from a template.

    The fixed words, the reference and the candidate are tokenised separately. The tokens of a prompt are therefore the
    same whether the model reads it whole or continues after its prefix, and reports are cut between tokens. A prompt
    begins with the beginning-of-text token if the tokenizer adds one. Text in a report that looks like a special token
    is read as plain characters, so a report cannot end the prompt or begin another one.

    If the reports do not fit, each keeps its first tokens. A report may use half of the available tokens, plus those
    that the other report does not use. The fixed words are never cut.

    Args:
        tokenizer: A fast tokenizer of transformers. It is not changed.
        template: The prompt, criteria included.
        max_length: Maximum number of tokens of a prompt.

    Raises:
        ValueError: If the tokenizer is not a fast one, or the template leaves no room for two reports.

    Example:
        >>> encoder = PromptEncoder(tokenizer, PromptTemplate(default_prompt()), 2048)      # doctest: +SKIP
        >>> prompts = encoder(["Effusion.", "Effusion."], ["No effusion.", "Clear."])       # doctest: +SKIP
        >>> prompts[0].prefix == prompts[1].prefix                                          # doctest: +SKIP
        True
    """

    def __init__(self, tokenizer: Any, template: PromptTemplate, max_length: int) -> None:
        super().__init__(tokenizer, max_length)
        # A template may contain special tokens of the backbone; a report may not.
        words = [template.before_reference, template.between, template.after_candidate]
        before, self._between, self._after = (list(encoding.ids) for encoding in self._encode(words))
        begin = self._backend.encode("a").ids[:1]
        # Add the token only if the tokenizer adds it and the template does not begin with it.
        has_begin = begin == [tokenizer.bos_token_id] and before[:1] != begin
        self._before = [*(begin if has_begin else []), *before]
        self._backend.encode_special_tokens = True
        self._room = max_length - len(self._before) - len(self._between) - len(self._after)
        if self._room < 2:
            raise ValueError(f"max_length {max_length} leaves no room for two reports next to the words of the prompt")

    def collate(self, prompts: Sequence[TokenizedPrompt]) -> dict[str, Tensor]:
        """Pad prompts on the right; return the keyword arguments of ``forward``, each int64 ``(N, T)``."""
        ids, mask = self._padded([prompt.prefix + prompt.suffix for prompt in prompts])
        return {"input_ids": ids, "attention_mask": mask}

    def collate_shared(self, prompts: Sequence[TokenizedPrompt]) -> dict[str, Tensor]:
        """Pad prompts; return the keyword arguments of ``forward_shared``, with each distinct prefix once.

        Prefixes are ``(B, P)``, in order of appearance and padded on the left. Suffixes are ``(N, T)`` and padded on
        the right. ``owner`` is ``(N,)``.
        """
        return {**self.collate_prefixes(prompts), **self.collate_suffixes(prompts)}

    def collate_prefixes(self, prompts: Sequence[TokenizedPrompt]) -> dict[str, Tensor]:
        """Return the keyword arguments of ``read_prefixes``, and ``owner``; see :meth:`collate_shared`."""
        prefixes = {prefix: row for row, prefix in enumerate(dict.fromkeys(prompt.prefix for prompt in prompts))}
        ids, mask = self._padded(list(prefixes), left=True)
        return {
            "prefix_ids": ids,
            "prefix_mask": mask,
            "owner": torch.tensor([prefixes[prompt.prefix] for prompt in prompts]),
        }

    def collate_suffixes(self, prompts: Sequence[TokenizedPrompt]) -> dict[str, Tensor]:
        """Return the suffixes for ``continue_prefixes``; see :meth:`collate_shared`."""
        ids, mask = self._padded([prompt.suffix for prompt in prompts])
        return {"suffix_ids": ids, "suffix_mask": mask}

    def _tokenize(self, candidate: str, first: Any, second: Any) -> TokenizedPrompt:  # noqa: ARG002
        kept = shares(len(first), len(second), self._room)
        return TokenizedPrompt(
            (*self._before, *first.ids[: kept[0]], *self._between),
            (*second.ids[: kept[1]], *self._after),
            len(first) + len(second) - sum(kept),
        )
