"""A language model of under half a million parameters for the phantom corpus's compact style."""

from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rrg_rewards.data import phantom_vocabulary

__all__ = ["compact_config", "compact_policy", "compact_tokenizer"]

_SPECIAL = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}


def compact_tokenizer() -> Any:
    """Word-level tokenizer of the compact style's closed vocabulary.

    Example:
        >>> tokenizer = compact_tokenizer()
        >>> tokenizer.decode(tokenizer("Nodule of 8 mm in the left upper lobe.")["input_ids"])
        'Nodule of 8 mm in the left upper lobe.'
    """
    words = [*_SPECIAL.values(), *phantom_vocabulary("compact")]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=_SPECIAL["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=True, **_SPECIAL)


def compact_policy(tokenizer: Any) -> Any:
    """A Llama model with random weights that fits the tokenizer.

    Args:
        tokenizer: What :func:`compact_tokenizer` gives.

    Example:
        >>> policy = compact_policy(compact_tokenizer())
        >>> policy.num_parameters() < 500_000
        True
    """
    return LlamaForCausalLM(compact_config(tokenizer, len(tokenizer)))


def compact_config(tokenizer: Any, vocab_size: int) -> Any:
    """Configuration of the language model.

    Args:
        tokenizer: Whose padding and end it has.
        vocab_size: Rows of the embedding table.
    """
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=96,
        intermediate_size=288,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
