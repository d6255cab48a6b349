"""Model cards: ``README.md`` beside a checkpoint, with the metadata that the Hugging Face Hub reads."""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from rrg_rewards.data.tables.writers import open_output

logger = logging.getLogger(__name__)

CARD_NAME = "README.md"
_MARK = "<!-- Written by rrg-rewards, which replaces this card only while it is unchanged: {} -->"
_MARKED = re.compile(_MARK.format("([0-9a-f]{64})") + r"\s*")


def write_model_card(
    folder: str | Path, metadata: Mapping[str, Any], results: Sequence[Mapping[str, Any]], text: str
) -> bool:
    """Write ``README.md`` with YAML metadata, unless the user has written or changed the file there.

    Args:
        folder: Folder of the checkpoint.
        metadata: Arguments of ``huggingface_hub.ModelCardData``. With results, ``model_name`` is required.
        results: Arguments of ``huggingface_hub.EvalResult``, which become the ``model-index``.
        text: Markdown after the metadata.

    Returns:
        Whether the card was written.

    Raises:
        ValueError: If the metadata are invalid.
    """
    path = Path(folder) / CARD_NAME
    if path.exists() and not is_written_here(path.read_text(encoding="utf-8")):
        logger.info("%s was not written here or was changed, and is left as it is", path)
        return False
    data = ModelCardData(**metadata, eval_results=[EvalResult(**result) for result in results] or None)
    card = f"---\n{data.to_yaml()}\n---\n\n{text.strip()}\n\n"
    # Read it back, because the Hub rejects a card that it cannot read.
    ModelCard(card)
    with open_output(path, overwrite=True) as file:
        file.write((card + _MARK.format(_digest(card)) + "\n").encode("utf-8"))
    return True


def is_written_here(card: str) -> bool:
    """Return whether a card was written by :func:`write_model_card` and not changed since.

    Example:
        >>> is_written_here("# My model")
        False
    """
    card = card.replace("\r\n", "\n")
    marks = list(_MARKED.finditer(card))
    return bool(marks) and marks[-1].end() == len(card) and marks[-1][1] == _digest(card[: marks[-1].start()])


def _digest(card: str) -> str:
    return hashlib.sha256(card.encode("utf-8")).hexdigest()


def base_model(source: str) -> dict[str, str]:
    """Return the metadata ``base_model``, which must be a Hub id: nothing for a folder.

    Example:
        >>> base_model("HuggingFaceTB/SmolLM2-135M-Instruct")
        {'base_model': 'HuggingFaceTB/SmolLM2-135M-Instruct'}
        >>> base_model("/models/mine")
        {}
    """
    is_id = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source) is not None and not Path(source).exists()
    return {"base_model": source} if is_id else {}


def number(value: float | None, interval: Sequence[float | None] | None = None) -> str:
    """Format a number with its interval.

    Example:
        >>> number(0.51234, (0.4, 0.6)), number(None)
        ('0.512 (0.400 to 0.600)', '-')
    """
    if value is None:
        return "-"
    if interval is None or None in interval:
        return f"{value:.3f}"
    return f"{value:.3f} ({interval[0]:.3f} to {interval[1]:.3f})"
