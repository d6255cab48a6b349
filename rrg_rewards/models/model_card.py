"""Model cards: ``README.md`` beside a checkpoint, with the metadata that the Hugging Face Hub reads."""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import EvalResult, HfApi, ModelCard, ModelCardData

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
        logger.info("%s was not written here or was changed, and stays", path)
        return False
    data = ModelCardData(**metadata, eval_results=[EvalResult(**result) for result in results] or None)
    card = f"---\n{data.to_yaml()}\n---\n\n{text.strip()}\n\n"
    # Read it back, because the Hub rejects a card that it cannot read.
    ModelCard(card)
    with open_output(path, overwrite=True) as file:
        file.write((card + _MARK.format(_digest(card)) + "\n").encode("utf-8"))
    return True


class CardedModel:
    """Uploads a model of transformers with its model card, in place of the card that transformers makes up."""

    name_or_path: str
    save_pretrained: Any

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, token: str | bool | None = None, **options: Any
    ) -> str:
        """Upload the model to the Hub, with the card in the folder that it was loaded from, if there is one.

        A card that the repository has already is left as it is.

        Args:
            repo_id: Hub id of the repository, which is made if it does not exist.
            private: Whether a new repository is private; default: as its owner has set.
            token: Token of the Hub; default: that of the login on this machine.
            options: ``max_shard_size``, an option of ``save_pretrained``; ``revision``, a branch, which is made if it
                does not exist; and further arguments of ``huggingface_hub.HfApi.upload_folder``, such as
                ``commit_message`` and ``create_pr``.

        Returns:
            The address of the commit.
        """
        hub, revision = HfApi(token=token), options.get("revision")
        repo_id = hub.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if revision is not None and not options.get("create_pr"):
            hub.create_branch(repo_id, branch=revision, exist_ok=True)
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder, max_shard_size=options.pop("max_shard_size", "50GB"))
            card = Path(self.name_or_path) / CARD_NAME
            # A model that was loaded from no folder has no name.
            if self.name_or_path and card.is_file() and not hub.file_exists(repo_id, CARD_NAME, revision=revision):
                copyfile(card, Path(folder) / CARD_NAME)
            options = {"commit_message": "Upload model", **options}
            commit: Any = hub.upload_folder(repo_id=repo_id, folder_path=folder, **options)
        return str(commit.commit_url)


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
