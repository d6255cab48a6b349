"""A language model with fewer than 500,000 parameters, for the compact style of the phantom corpus."""

from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rrg_rewards.data import phantom_vocabulary

_SPECIAL = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}


def compact_tokenizer() -> Any:
    """Make a word-level tokenizer with all words of the compact style.

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
    """Make a Llama model with random weights for a tokenizer.

    Args:
        tokenizer: A tokenizer made by :func:`compact_tokenizer`.

    Example:
        >>> policy = compact_policy(compact_tokenizer())
        >>> policy.num_parameters() < 500_000
        True
    """
    return LlamaForCausalLM(compact_config(tokenizer, len(tokenizer)))


def compact_config(tokenizer: Any, vocab_size: int) -> Any:
    """Return the configuration of the language model.

    Args:
        tokenizer: Tokenizer that defines the padding token and the end token.
        vocab_size: Size of the embedding table.
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
