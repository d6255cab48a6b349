"""The processor of CT-CHAT, which converts prompts and volumes to inputs of the model."""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rrg_rewards.utilities.features import read_features
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message

# First, so that the error for a missing package names the extra that installs it.
require("transformers", extra="models")

from transformers import AutoTokenizer, BatchFeature, ProcessorMixin  # noqa: E402

# In the published order; the published vocabulary spells the fourth token this way.
ADDED_TOKENS = ("<pad>", "<multiple_choice>", "<long_answer>", "<short_answe>", "<report_generation>")
IMAGE_TOKEN = "<image>"
CHAT_FORMATS = ("llama3", "mistral", "vicuna")


Volume = str | Path | NDArray[Any] | Tensor
"""One volume: the path of its features, or the features themselves."""


def read_volume(volume: Volume, feature_size: int) -> NDArray[Any]:
    """Return the features of a volume as an array ``(tokens, feature_size)``.

    Args:
        volume: Path of the features, or the features with shape ``(..., feature_size)``.
        feature_size: Channels of the features.

    Raises:
        FeatureError: If a file is missing, damaged or of the wrong shape, naming the study.
        ValueError: If an array has the wrong shape, or contains NaN or infinity.
    """
    # A single NaN would corrupt a training step, and an error on the GPU would not name the file.
    if isinstance(volume, str | Path):
        return read_features(volume, channels=feature_size).reshape(-1, feature_size)
    array = volume.detach().cpu().float().numpy() if isinstance(volume, Tensor) else np.asarray(volume)
    if array.ndim < 2 or array.shape[-1] != feature_size:
        raise ValueError(f"features must have shape (..., {feature_size}), got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("features must be finite, got NaN or infinity")
    return array.reshape(-1, feature_size)


def is_volume(image: Any) -> bool:
    """Whether a value is one volume: the path of its features, or the features."""
    return isinstance(image, str | Path | np.ndarray | Tensor)


def volumes_of(image: Any) -> Iterator[Volume]:
    """Yield the volumes of a prompt.

    Args:
        image: A volume, a list of volumes or of such lists, or ``None`` for no volume.

    Raises:
        TypeError: If something else is given, for example a PIL image.
    """
    if image is None:
        return
    if is_volume(image):
        yield image
    elif isinstance(image, Sequence):
        for volume in image:
            yield from volumes_of(volume)
    else:
        raise TypeError(f"a volume must be a path or an array of features, got {type(image).__name__}")


@cache
def chat_template(chat_format: str) -> str:
    """Return the Jinja template of a chat format.

    Args:
        chat_format: ``llama3`` (published), ``mistral`` or ``vicuna``.

    Raises:
        ValueError: For an unknown format.

    Example:
        >>> "<|start_header_id|>" in chat_template("llama3")
        True
    """
    if chat_format not in CHAT_FORMATS:
        raise ValueError(unknown_name_message("chat format", chat_format, CHAT_FORMATS))
    folder = files("rrg_rewards.models.ct_chat") / "chat_templates"
    parts = (folder.joinpath(f"{name}.jinja").read_text(encoding="utf-8") for name in ("content", chat_format))
    return "".join(parts)


def appended_tokens(tokenizer: Any) -> tuple[str, ...]:
    """Return the tokens that CT-CHAT's code appends to a vocabulary: no ``<pad>`` if there is a padding token.

    Args:
        tokenizer: Tokenizer of the base model.
    """
    return ADDED_TOKENS if tokenizer.pad_token is None else ADDED_TOKENS[1:]


def chat_format_of(tokenizer: Any, text_config: Any, source: str | Path) -> str:
    """Return the chat format of a base model.

    ``llama3`` if the tokenizer has its header tokens; ``mistral`` for a Mistral model, also if CT-CHAT's code saved it
    as a Llama model; ``vicuna`` for a Llama model that is named so.

    Args:
        tokenizer: Tokenizer of the base model.
        text_config: Configuration of the language model.
        source: Folder or Hub id of the tokenizer; its last part may name the model.

    Raises:
        ValueError: If nothing determines the format.
    """
    vocabulary = tokenizer.get_vocab()
    if "<|start_header_id|>" in vocabulary:
        return "llama3"
    names = [Path(name).name.lower() for name in (str(source), str(getattr(text_config, "_name_or_path", "")))]
    # Only Mistral's configuration has a sliding window; CT-CHAT's code keeps it when it saves the model as a Llama.
    kind = text_config.model_type
    is_mistral = kind == "mistral" or (kind == "llama" and hasattr(text_config, "sliding_window"))
    if is_mistral or "[INST]" in vocabulary or any("mistral" in name for name in names):
        return "mistral"
    if any("vicuna" in name for name in names):
        return "vicuna"
    raise ValueError(
        f"{source} does not tell the chat format of its conversations; choose `chat_format`: {', '.join(CHAT_FORMATS)}"
    )


class CTChatProcessor(ProcessorMixin):  # type: ignore[misc]
    """Converts prompts and volume features to the inputs of ``CTChatForConditionalGeneration``.

    As in the published code, the text is split at each ``<image>`` before it is tokenised, and ``num_image_tokens``
    image tokens replace ``<image>`` in the token ids. A prompt may contain several, for example an examination and an
    earlier one.

    ``apply_chat_template`` renders messages whose content is a text or parts such as
    ``{"type": "image", "image": "features/train_1_a_1.npz"}``; an image part becomes ``<image>`` and a line break. TRL
    can use the processor with data sets that have paths in a column ``image``.

    :func:`rrg_rewards.utilities.features.read_features` reads the features: ``.npz``, ``.npy`` or ``.safetensors`` of
    shape ``(D, H, W, C)``, with or without a leading axis of 1. The processor also accepts arrays, of this shape or
    flattened to ``(tokens, C)``. All volumes of a batch must have the same number of tokens.

    Args:
        tokenizer: Tokenizer whose vocabulary contains ``<image>`` and a padding token.
        chat_template: Jinja template; see :func:`chat_template`.
        num_image_tokens: Number of soft tokens of a volume, equal to that of the model's configuration.
        feature_size: Channels of the features, equal to that of the model's configuration.

    Raises:
        ValueError: If the tokenizer lacks ``<image>`` or a padding token.
    """

    def __init__(
        self,
        tokenizer: Any,
        chat_template: str | None = None,
        num_image_tokens: int = 256,
        feature_size: int = 512,
    ) -> None:
        if IMAGE_TOKEN not in tokenizer.get_vocab():
            raise ValueError(
                f"the tokenizer has no token {IMAGE_TOKEN}; make the processor by CTChatProcessor.from_tokenizer"
            )
        if tokenizer.pad_token_id is None:
            raise ValueError("the tokenizer has no padding token; set tokenizer.pad_token")
        self.num_image_tokens = num_image_tokens
        self.feature_size = feature_size
        super().__init__(tokenizer, chat_template=chat_template)

    @property
    def image_token_id(self) -> int:
        """Id of ``<image>``."""
        return int(self.tokenizer.convert_tokens_to_ids(IMAGE_TOKEN))

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Any, chat_format: str, num_image_tokens: int = 256, feature_size: int = 512
    ) -> "CTChatProcessor":
        """Make a processor from the tokenizer of a base model.

        Appends :func:`appended_tokens` in order and ``<image>`` to the vocabulary. If the tokenizer has no padding
        token, it is ``<pad>``.

        Args:
            tokenizer: Tokenizer of the base model; modified in place.
            chat_format: ``llama3``, ``mistral`` or ``vicuna``.
            num_image_tokens: Number of soft tokens of a volume.
            feature_size: Channels of the features.
        """
        template = chat_template(chat_format)
        tokenizer.add_tokens([*appended_tokens(tokenizer), IMAGE_TOKEN], special_tokens=True)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = ADDED_TOKENS[0]
        return cls(tokenizer, template, num_image_tokens, feature_size)

    @classmethod
    def from_base_model(
        cls, base_model: str | Path, config: Any, chat_format: str = "auto", revision: str | None = None
    ) -> "CTChatProcessor":
        """Make the processor of a model that was loaded from a published checkpoint.

        Args:
            base_model: Folder or Hub id of the tokenizer of the base model; for a full checkpoint, its folder.
            config: The model's ``CTChatConfig``.
            chat_format: ``llama3``, ``mistral``, ``vicuna``, or ``auto`` for that of :func:`chat_format_of`.
            revision: Revision on the Hub.

        Raises:
            ValueError: If the ids of the tokenizer do not fit the embeddings of the model, or no chat format is known.
        """
        tokenizer = AutoTokenizer.from_pretrained(base_model, revision=revision, trust_remote_code=False)
        if chat_format == "auto":
            chat_format = chat_format_of(tokenizer, config.text_config, base_model)
        if config.tokenizer_model_max_length is not None:
            tokenizer.model_max_length = config.tokenizer_model_max_length
        processor = cls.from_tokenizer(tokenizer, chat_format, config.num_image_tokens, config.feature_size)
        if processor.image_token_id != config.image_token_id:
            raise ValueError(
                f"{base_model}: with CT-CHAT's tokens the tokenizer has {processor.image_token_id} tokens, but the "
                f"model has {config.image_token_id} embeddings; use the tokenizer of the base model without "
                f"{', '.join(ADDED_TOKENS)}"
            )
        return processor

    def __call__(
        self,
        images: Any = None,
        text: str | Sequence[str] | None = None,
        videos: None = None,
        audio: None = None,
        *,
        add_special_tokens: bool = True,
        padding: bool | str = False,
        padding_side: str = "left",
        truncation: bool = False,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        return_tensors: str | None = None,
    ) -> BatchFeature:
        """Tokenise prompts and read their volumes.

        Args:
            images: One entry for each prompt: a volume, a list of volumes, or ``None``; or one volume for each
                ``<image>`` of the prompts. A volume is a path or an array of features.
            text: ``N`` prompts, or a single prompt.
            videos: Not supported.
            audio: Not supported.
            add_special_tokens: Whether the tokenizer adds special tokens at the start of a text.
            padding: See the tokenizers of transformers.
            padding_side: ``left`` for generation, which continues from the last token, or ``right``.
            truncation: Whether to truncate token ids to ``max_length``.
            max_length: Maximum number of tokens; default: the tokenizer's ``model_max_length``.
            pad_to_multiple_of: See the tokenizers of transformers.
            return_tensors: ``pt``, or ``None`` for ragged lists.

        Returns:
            ``input_ids`` and ``attention_mask`` ``(N, T)``. If images are given, also the tensor ``pixel_values``
            ``(V, tokens, C)`` of the ``V`` volumes; ``V`` may be 0.

        Raises:
            ValueError: If the volumes of a prompt do not match its ``<image>``, naming the row, or if volumes differ in
                size.
            FeatureError: If a feature file is missing, truncated or of the wrong shape, naming the study.
        """
        if videos is not None or audio is not None:
            raise ValueError("CT-CHAT takes volumes and text, no videos and no audio")
        if text is None:
            raise ValueError("text is missing; a prompt is needed")
        texts = [text] if isinstance(text, str) else list(text)
        volumes = _volumes_in_order(images, texts)
        rows = tokenize_prompts(self.tokenizer, texts, self.num_image_tokens, add_special_tokens)
        if truncation:
            longest = self.tokenizer.model_max_length if max_length is None else max_length
            left = self.tokenizer.truncation_side == "left"
            rows = [ids[-longest:] if left else ids[:longest] for ids in rows]
        inputs = self.tokenizer.pad(
            {"input_ids": rows},
            padding=padding,
            padding_side=padding_side,
            max_length=max_length,
            pad_to_multiple_of=pad_to_multiple_of,
            return_attention_mask=True,
        )
        features = BatchFeature(dict(inputs), tensor_type=return_tensors)
        if images is not None:
            features["pixel_values"] = self._read(volumes)
        return features

    def _read(self, volumes: Sequence[Volume]) -> Tensor:
        if not volumes:
            return torch.zeros(0, 1, self.feature_size)
        # Read each file once: in reinforcement learning, all completions of a group have the same volume.
        by_path: dict[str, NDArray[Any]] = {}
        arrays = []
        for volume in volumes:
            if isinstance(volume, str | Path):
                path = str(volume)
                if path not in by_path:
                    by_path[path] = read_volume(path, self.feature_size)
                arrays.append(by_path[path])
            else:
                arrays.append(read_volume(volume, self.feature_size))
        sizes = sorted({len(array) for array in arrays})
        if len(sizes) > 1:
            raise ValueError(f"the volumes of a batch must have the same number of tokens, got {sizes}")
        return torch.from_numpy(np.stack(arrays))

    @property
    def model_input_names(self) -> list[str]:
        """Names of the model's inputs."""
        return ["input_ids", "attention_mask", "pixel_values"]


def tokenize_prompts(
    tokenizer: Any, texts: Sequence[str], num_image_tokens: int, add_special_tokens: bool = True
) -> list[list[int]]:
    """Return the token ids of each prompt, with ``num_image_tokens`` image tokens for each ``<image>``.

    A text is split at each ``<image>`` and its parts are tokenised separately, as in the published code.

    Args:
        tokenizer: Tokenizer whose vocabulary contains ``<image>``.
        texts: The prompts.
        num_image_tokens: Number of soft tokens of a volume.
        add_special_tokens: Whether the tokenizer adds special tokens at the start.
    """
    parts = [text.split(IMAGE_TOKEN) for text in texts]
    firsts = _ids_by_text(tokenizer, [first for first, *_ in parts], add_special_tokens)
    others = _ids_by_text(tokenizer, [other for _, *rest in parts for other in rest], False)
    image = [int(tokenizer.convert_tokens_to_ids(IMAGE_TOKEN))] * num_image_tokens
    rows = []
    for first, *rest in parts:
        ids = list(firsts[first])
        for other in rest:
            ids += image + others[other]
        rows.append(ids)
    return rows


def _ids_by_text(tokenizer: Any, texts: Sequence[str], add_special_tokens: bool) -> dict[str, list[int]]:
    """Tokenise each distinct text once: in reinforcement learning, all completions of a group have the same prompt."""
    distinct = list(dict.fromkeys(texts))
    ids = tokenizer(distinct, add_special_tokens=add_special_tokens)["input_ids"] if distinct else []
    return dict(zip(distinct, ids, strict=True))


def _volumes_in_order(images: Any, texts: Sequence[str]) -> list[Volume]:
    """Return the volumes in the order of the prompts, checked against the prompts row by row."""
    counts = [text.count(IMAGE_TOKEN) for text in texts]
    if images is None:
        images = [None] * len(texts)
    by_row = [images] if is_volume(images) else list(images)
    if len(by_row) == sum(counts) and all(is_volume(image) for image in by_row):
        remaining = iter(by_row)
        by_row = [list(islice(remaining, count)) for count in counts]
    if len(by_row) != len(texts):
        raise ValueError(f"images and text must have the same length, got {len(by_row)} and {len(texts)}")
    volumes: list[Volume] = []
    for row, (image, count) in enumerate(zip(by_row, counts, strict=True)):
        own = list(volumes_of(image))
        if len(own) != count:
            raise ValueError(f"text[{row}] has {IMAGE_TOKEN} {count} times, but images[{row}] has {len(own)} volumes")
        volumes += own
    return volumes
