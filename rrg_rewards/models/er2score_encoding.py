"""Report pairs as prompts of a decoder: a prefix that candidates of a reference share, and a suffix of each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.models.crepe_encoding import shares
from rrg_rewards.models.er2score_prompt import PromptTemplate
from rrg_rewards.utilities.checks import check_same_length

__all__ = ["PromptEncoder", "TokenizedPrompt"]


@dataclass(frozen=True)
class TokenizedPrompt:
    """A prompt with a report pair as tokens.

    Args:
        prefix: Token ids of the words before the candidate, the reference among them.
        suffix: Token ids of the candidate and the words after it.
        num_cut: Tokens of the two reports that had no place.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    # No part of what makes two prompts one for the model.
    num_cut: int = field(default=0, compare=False)

    def __len__(self) -> int:
        return len(self.prefix) + len(self.suffix)


class PromptEncoder:
    """Make token sequences of report pairs by a template.

    The fixed words, the reference and the candidate are tokenised each by itself, so that a prompt's tokens are the
    same whether the model reads it in one piece or goes on from its prefix, and a report is cut token by token. The
    beginning-of-text token stands first where the tokenizer puts one there. What looks like a special token in a report
    is read as the characters it consists of: a report cannot end the prompt or begin another.

    Where the reports do not fit, each keeps its first tokens: half of the room, and what the other leaves of its half.
    The fixed words are never cut.

    Args:
        tokenizer: A fast tokenizer of transformers. It is not changed.
        template: The prompt, with the criteria in their place.
        max_length: Tokens of a prompt at most.

    Raises:
        ValueError: If the tokenizer is no fast one, or the template leaves no room for two reports.

    Example:
        >>> encoder = PromptEncoder(tokenizer, PromptTemplate(default_prompt()), 2048)      # doctest: +SKIP
        >>> prompts = encoder(["Effusion.", "Effusion."], ["No effusion.", "Clear."])       # doctest: +SKIP
        >>> prompts[0].prefix == prompts[1].prefix                                          # doctest: +SKIP
        True
    """

    def __init__(self, tokenizer: Any, template: PromptTemplate, max_length: int) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(f"{type(tokenizer).__name__} must be a fast tokenizer, one with a tokenizer.json")
        backend = tokenizer.backend_tokenizer
        # A copy: what a tokenizer file says of truncation and padding must not cut the reports, and the tokenizer that
        # was given keeps it.
        self._backend = type(backend).from_str(backend.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        # A template may hold the backbone's own special tokens; a report may not.
        words = [template.before_reference, template.between, template.after_candidate]
        before, self._between, self._after = (list(encoding.ids) for encoding in self._encode(words))
        begin = self._backend.encode("a").ids[:1]
        # Where the tokenizer puts one before a text, and the template does not begin with it.
        has_begin = begin == [tokenizer.bos_token_id] and before[:1] != begin
        self._before = [*(begin if has_begin else []), *before]
        self._backend.encode_special_tokens = True
        self._room = max_length - len(self._before) - len(self._between) - len(self._after)
        if self._room < 2:
            raise ValueError(f"max_length {max_length} leaves no room for two reports beside the words of the prompt")
        pad = tokenizer.pad_token_id
        # It is masked, so any will do.
        self._pad_token_id = 0 if pad is None else pad
        self.max_length = max_length

    def __call__(self, references: Sequence[str], candidates: Sequence[str]) -> list[TokenizedPrompt]:
        """Tokenise report pairs.

        Args:
            references: ``N`` reference reports.
            candidates: ``N`` candidate reports.

        Returns:
            A prompt for each pair.

        Raises:
            ValueError: If lengths differ.
        """
        check_same_length("references", references, "candidates", candidates)
        # Each text once: a GRPO group has one reference.
        texts = list(dict.fromkeys([*references, *candidates]))
        tokens = {text: tuple(encoding.ids) for text, encoding in zip(texts, self._encode(texts), strict=True)}
        return [
            self._prompt(tokens[reference], tokens[candidate])
            for reference, candidate in zip(references, candidates, strict=True)
        ]

    def collate(self, prompts: Sequence[TokenizedPrompt]) -> dict[str, Tensor]:
        """Pad prompts on the right, as ``forward``'s keyword arguments, each int64 ``(N, T)``."""
        ids, mask = self._padded([prompt.prefix + prompt.suffix for prompt in prompts])
        return {"input_ids": ids, "attention_mask": mask}

    def collate_shared(self, prompts: Sequence[TokenizedPrompt]) -> dict[str, Tensor]:
        """Pad prompts as ``forward_shared``'s keyword arguments: each distinct prefix once, in order of appearance.

        Prefixes are ``(B, P)`` and padded on the left, suffixes ``(N, T)`` and padded on the right; ``owner`` ``(N,)``.
        """
        return {**self.collate_prefixes(prompts), **self.collate_suffixes(prompts)}

    def collate_prefixes(self, prompts: Sequence[TokenizedPrompt]) -> dict[str, Tensor]:
        """The part of :meth:`collate_shared` that ``read_prefixes`` takes, and ``owner``."""
        prefixes = {prefix: row for row, prefix in enumerate(dict.fromkeys(prompt.prefix for prompt in prompts))}
        ids, mask = self._padded(list(prefixes), left=True)
        return {
            "prefix_ids": ids,
            "prefix_mask": mask,
            "owner": torch.tensor([prefixes[prompt.prefix] for prompt in prompts]),
        }

    def collate_suffixes(self, prompts: Sequence[TokenizedPrompt]) -> dict[str, Tensor]:
        """The part of :meth:`collate_shared` that ``continue_prefixes`` takes."""
        ids, mask = self._padded([prompt.suffix for prompt in prompts])
        return {"suffix_ids": ids, "suffix_mask": mask}

    def _encode(self, texts: Sequence[str]) -> list[Any]:
        encodings: list[Any] = self._backend.encode_batch(list(texts), add_special_tokens=False)
        return encodings

    def _prompt(self, reference: tuple[int, ...], candidate: tuple[int, ...]) -> TokenizedPrompt:
        kept = shares(len(reference), len(candidate), self._room)
        return TokenizedPrompt(
            (*self._before, *reference[: kept[0]], *self._between),
            (*candidate[: kept[1]], *self._after),
            len(reference) + len(candidate) - sum(kept),
        )

    def _padded(self, rows: Sequence[tuple[int, ...]], left: bool = False) -> tuple[Tensor, Tensor]:
        """Token ids and their mask, each int64 ``(N, T)``."""
        longest = max(map(len, rows))
        ids, mask = [], []
        for row in rows:
            room = longest - len(row)
            filling, nothing = [self._pad_token_id] * room, [0] * room
            there = [1] * len(row)
            ids.append([*filling, *row] if left else [*row, *filling])
            mask.append([*nothing, *there] if left else [*there, *nothing])
        return torch.tensor(ids), torch.tensor(mask)
