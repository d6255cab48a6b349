"""Write phantom studies with volume features, and an untrained mini CT-CHAT.

``python -m rrg_rewards.recipes.ct_chat.phantom --output runs/mini_ct_chat``

The output folder contains:

- ``volumes/``: the features of each study, in the format of CT-CHAT's encoder
- ``train.jsonl`` and ``heldout.jsonl``: studies in the compact style, with impression, abridged impression, true labels
  and the path of the volume
- ``model/``: a mini CT-CHAT with random weights

The column ``abridged`` contains the impression with statements omitted at random, because clinical impressions also
omit findings. A model that is trained on it learns to omit findings. Reinforcement learning on CRG corrects this.

The script takes less than a minute.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers import set_seed

from rrg_rewards.data import phantom_studies
from rrg_rewards.data.phantom.volumes import phantom_volume_rows, write_phantom_volumes
from rrg_rewards.models import CTChatConfig, CTChatForConditionalGeneration, CTChatProcessor
from rrg_rewards.recipes.phantom.corpus import corpus_parser, write_tables
from rrg_rewards.recipes.phantom.policy import compact_config, compact_tokenizer

logger = logging.getLogger(__name__)

CHANNELS = 32


def mini_processor(num_image_tokens: int = 16, feature_size: int = 32) -> Any:
    r"""Make a processor with a word-level tokenizer, CT-CHAT's added tokens and Llama 3's headers.

    Args:
        num_image_tokens: Number of soft tokens per volume.
        feature_size: Number of channels of the volume features.

    Example:
        >>> processor = mini_processor()
        >>> processor.apply_chat_template([{"role": "user", "content": "<image>\nReport. <report_generation>"}])
        '<|start_header_id|>user<|end_header_id|>\n\n<image>\nReport. <report_generation><|eot_id|>'
    """
    return CTChatProcessor.from_tokenizer(mini_tokenizer(), "llama3", num_image_tokens, feature_size)


def mini_tokenizer() -> Any:
    """Make a word-level tokenizer with Llama 3's headers."""
    tokenizer = compact_tokenizer()
    tokenizer.add_tokens(["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], special_tokens=True)
    tokenizer.add_tokens(["user", "assistant", "system", "Report"])
    tokenizer.eos_token = "<|eot_id|>"
    return tokenizer


def mini_ct_chat(processor: Any, head_size: int = 24) -> Any:
    """Make a CT-CHAT with random weights for a processor.

    Args:
        processor: A processor made by :func:`mini_processor`.
        head_size: Width of an attention head of the language model. vLLM on CPU supports 32, but not 24.

    Example:
        >>> model = mini_ct_chat(mini_processor())
        >>> model.num_parameters() < 600_000
        True
    """
    text_config = compact_config(processor.tokenizer, vocab_size=processor.image_token_id)
    text_config.head_dim = head_size
    # Three times the default: with such narrow layers, the warm start needs half as many steps.
    text_config.initializer_range = 0.06
    config = CTChatConfig(
        text_config=text_config,
        num_image_tokens=processor.num_image_tokens,
        feature_size=processor.feature_size,
        pooler_size=text_config.hidden_size,
        pooler_heads=4,
    )
    return CTChatForConditionalGeneration(config)


def write_corpus(
    folder: Path,
    train_rows: int,
    heldout_rows: int,
    omission: float = 0.4,
    grid: int = 4,
    noise: float = 0.5,
    normal: float = 0.3,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write the volumes, ``train.jsonl`` and ``heldout.jsonl``.

    Args:
        folder: Folder to write to; it is created if it does not exist.
        train_rows: Number of studies to train on.
        heldout_rows: Number of studies to evaluate on.
        omission: Probability that a statement of the impression is left out of ``abridged``.
        grid: Number of cells of a volume along each axis.
        noise: Mean length of the noise vector in each cell.
        normal: Probability that a study has no findings, as in :func:`rrg_rewards.data.phantom_studies`.
        seed: Seed of the training studies; ``seed + 1`` is the seed of the held-out studies.
        progress: Function of two numbers: the volumes written since its last call, and the volumes added to the total.
    """
    if progress is not None:
        progress(0, train_rows + heldout_rows)

    def make_rows(count: int, seed: int) -> list[dict[str, Any]]:
        studies = phantom_studies(count, seed=seed, style="compact", normal=normal)
        write_phantom_volumes(
            studies,
            folder / "volumes",
            grid=(grid,) * 3,
            channels=CHANNELS,
            noise=noise,
            progress=None if progress is None else lambda _: progress(1, 0),
        )
        return phantom_volume_rows(studies, "volumes")

    write_tables(folder, (train_rows, heldout_rows), make_rows, omission, seed)


def write_model(folder: Path, seed: int = 0, head_size: int = 24) -> Path:
    """Write an untrained mini CT-CHAT and its processor to ``folder/model`` and return this path.

    Args:
        folder: Parent folder.
        seed: Seed of the weights.
        head_size: Width of an attention head of the language model.
    """
    set_seed(seed)
    processor = mini_processor(feature_size=CHANNELS)
    mini_ct_chat(processor, head_size).save_pretrained(folder / "model")
    processor.save_pretrained(folder / "model")
    return folder / "model"


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = corpus_parser(__doc__)
    parser.add_argument("--grid", type=int, default=4, help="number of cells along each axis of a volume (default: 4)")
    parser.add_argument("--noise", type=float, default=0.5, help="mean length of the noise vectors (default: 0.5)")
    parser.add_argument("--normal", type=float, default=0.3, help="share of studies without findings (default: 0.3)")
    parser.add_argument("--head-size", type=int, default=24, help="width of a head (default: 24; vLLM on CPU: 32)")
    arguments = vars(parser.parse_args(argv))
    folder, head_size = arguments.pop("output"), arguments.pop("head_size")
    if (folder / "train.jsonl").exists():
        parser.error(f"{folder} already contains a corpus; choose another --output")
    write_corpus(folder, **arguments)
    write_model(folder, arguments["seed"], head_size)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logger.info(
        "wrote %d training and %d held-out studies with volumes, and an untrained model, to %s",
        arguments["train_rows"],
        arguments["heldout_rows"],
        folder,
    )


if __name__ == "__main__":
    main()
