"""Constrained decoding, which allows only tokens that keep an answer valid under a JSON schema."""

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rrg_rewards.utilities.imports import require

__all__ = ["JsonGrammar", "SchemaConstraint", "can_constrain"]

# Enough for JSON with an indentation of 4. Without a limit, a weak model may generate only white space.
_WHITE_SPACE = r"[ \n]{0,20}"


def can_constrain() -> bool:
    """Whether llguidance is installed."""
    return find_spec("llguidance") is not None


class JsonGrammar:
    """A JSON schema compiled to a grammar over a tokenizer's tokens.

    Args:
        tokenizer: A fast tokenizer of transformers.
        vocabulary: Number of the model's logits, which may exceed the size of the tokenizer's vocabulary.
        ends: Ids of the tokens that end an answer.
        schema: JSON schema of the answer.

    Raises:
        ModuleNotFoundError: If llguidance is not installed, naming the pip command.
        ValueError: If llguidance does not support the tokenizer or the schema.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, ends: Sequence[int], schema: Mapping[str, Any]) -> None:
        self.ends = list(ends)
        self._library = require("llguidance", extra="local-judge")
        adapter = require("llguidance.hf", extra="local-judge")
        try:
            self._tokenizer = adapter.from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=self.ends)
        except ValueError as error:
            raise ValueError(f"the tokenizer cannot be constrained, pass constrained=False: {error}") from error
        options = {"whitespace_flexible": True, "whitespace_pattern": _WHITE_SPACE}
        self._grammar = self._library.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=options)
        if problem := self._library.LLMatcher.validate_grammar(self._grammar, self._tokenizer):
            raise ValueError(f"the schema cannot constrain answers: {problem}")

    def matcher(self) -> Any:
        """Make a matcher for one answer."""
        return self._library.LLMatcher(self._tokenizer, self._grammar, log_level=0)


class SchemaConstraint:
    """A logits processor of transformers that allows only tokens of the grammar in each answer of a batch.

    Args:
        grammar: Grammar of the answers.
        rows: Number of answers.
        start: Number of tokens of the padded prompts.
    """

    def __init__(self, grammar: JsonGrammar, rows: int, start: int) -> None:
        self._grammar = grammar
        self._matchers = [grammar.matcher() for _ in range(rows)]
        self._start = start

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Set the scores of tokens that are not allowed to minus infinity.

        Raises:
            RuntimeError: If llguidance cannot parse an answer.
        """
        if input_ids.shape[1] > self._start:
            for matcher, token in zip(self._matchers, input_ids[:, -1].tolist(), strict=True):
                # Padding follows a finished answer.
                if not matcher.is_stopped():
                    matcher.consume_token(token)
        masks = [self._mask(matcher, scores.shape[1]) for matcher in self._matchers]
        allowed = torch.from_numpy(np.stack(masks)).to(scores.device)
        return scores.masked_fill(~allowed, float("-inf"))

    def _mask(self, matcher: Any, vocabulary: int) -> Any:
        if matcher.is_error():
            raise RuntimeError(f"constrained decoding failed: {matcher.get_error()}")
        allowed = np.zeros(vocabulary, dtype=bool)
        if matcher.is_stopped():
            # The JSON is complete.
            allowed[self._grammar.ends] = True
            return allowed
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8), bitorder="little")
        allowed[: len(bits)] = bits[:vocabulary]
        return allowed
