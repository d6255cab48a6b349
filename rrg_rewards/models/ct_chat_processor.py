"""CT-CHAT's prompts and volumes as model inputs."""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rrg_rewards.utilities.features import read_features
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message

# Before its names are imported: where it is missing, this says which extra installs it.
require("transformers", extra="models")

from transformers import AutoTokenizer, BatchFeature, ProcessorMixin  # noqa: E402

__all__ = ["ADDED_TOKENS", "CHAT_FORMATS", "IMAGE_TOKEN", "CTChatProcessor", "chat_format_of", "chat_template"]

# In this order; the fourth is spelt so in the published vocabulary.
ADDED_TOKENS = ("<pad>", "<multiple_choice>", "<long_answer>", "<short_answe>", "<report_generation>")
IMAGE_TOKEN = "<image>"
CHAT_FORMATS = ("llama3", "mistral", "vicuna")

# One volume: the path of its features, or the features themselves.
_Volume = str | Path | NDArray[Any] | Tensor


@cache
def chat_template(chat_format: str) -> str:
    """Jinja template of a chat format.

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
    folder = files("rrg_rewards.models") / "chat_templates"
    parts = (folder.joinpath(f"{name}.jinja").read_text(encoding="utf-8") for name in ("content", chat_format))
    return "".join(parts)


def chat_format_of(tokenizer: Any, model_type: str) -> str:
    """Chat format of a base model: by Llama 3's header tokens, else by the kind of model.

    Raises:
        ValueError: For a kind of model of which no format is known.
    """
    if "<|start_header_id|>" in tokenizer.get_vocab():
        return "llama3"
    known = {"mistral": "mistral", "llama": "vicuna"}
    if model_type not in known:
        raise ValueError(
            f"no chat format is known of a base model of type {model_type!r}; choose one of {', '.join(CHAT_FORMATS)}"
        )
    return known[model_type]


class CTChatProcessor(ProcessorMixin):  # type: ignore[misc]
    """Turns prompts and volume features into the inputs of ``CTChatForConditionalGeneration``.

    A prompt holds at most one ``<image>``. As published, text is split there before it is tokenised; in the token ids
    ``num_image_tokens`` image tokens stand in its place. ``apply_chat_template`` renders messages whose content is
    text, or parts such as ``{"type": "image", "image": "features/train_1_a_1.npz"}``; an image part becomes
    ``<image>`` and a line break. TRL trains with it as it is: its data sets hold paths in a column ``image``.

    Features are read by :func:`rrg_rewards.utilities.features.read_features`: ``.npz``, ``.npy`` or ``.safetensors``
    of shape ``(D, H, W, C)``, with or without a leading axis of 1. Arrays may be given in their place, also flattened
    to ``(tokens, C)``. All volumes of a batch must have the same number of tokens.

    Args:
        tokenizer: Tokenizer whose vocabulary holds ``<image>`` and a padding token.
        chat_template: Jinja template; see :func:`chat_template`.
        num_image_tokens: Soft tokens of a volume, as the model's configuration has it.
        feature_size: Channels of the features, as the model's configuration has it.

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
        """Make a processor of a base model's tokenizer.

        Appends :data:`ADDED_TOKENS` to the vocabulary, in order, and ``<image>`` after them; pads with ``<pad>``.

        Args:
            tokenizer: Tokenizer of the base model; changed.
            chat_format: ``llama3``, ``mistral`` or ``vicuna``.
            num_image_tokens: Soft tokens of a volume.
            feature_size: Channels of the features.
        """
        template = chat_template(chat_format)
        tokenizer.add_tokens([*ADDED_TOKENS, IMAGE_TOKEN], special_tokens=True)
        tokenizer.pad_token = ADDED_TOKENS[0]
        return cls(tokenizer, template, num_image_tokens, feature_size)

    @classmethod
    def from_base_model(
        cls, base_model: str | Path, config: Any, chat_format: str = "auto", revision: str | None = None
    ) -> "CTChatProcessor":
        """Make the processor that goes with a model loaded from the published layout.

        Args:
            base_model: Folder or Hub id with the base model's tokenizer; for a full checkpoint, its folder.
            config: The model's ``CTChatConfig``.
            chat_format: ``llama3``, ``mistral``, ``vicuna``, or ``auto``: ``llama3`` where the tokenizer has its
                headers, ``mistral`` for a Mistral, and ``vicuna`` for any other Llama.
            revision: Revision on the Hub.

        Raises:
            ValueError: If the tokenizer's ids do not fit the model's embeddings, or no chat format is known.
        """
        tokenizer = AutoTokenizer.from_pretrained(base_model, revision=revision)
        if chat_format == "auto":
            chat_format = chat_format_of(tokenizer, config.text_config.model_type)
        processor = cls.from_tokenizer(tokenizer, chat_format, config.num_image_tokens, config.feature_size)
        if processor.image_token_id != config.image_token_id:
            raise ValueError(
                f"{base_model}: with CT-CHAT's tokens the tokenizer has {processor.image_token_id} tokens, the model "
                f"{config.image_token_id} embeddings; is it the base model's tokenizer, and has it none of "
                f"{', '.join(ADDED_TOKENS)} already?"
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
            images: For each prompt its volume, or a list of at most one, or ``None``; or one volume for each
                ``<image>`` of the prompts. A volume is a path or an array of features.
            text: ``N`` prompts, or one.
            videos: Not supported.
            audio: Not supported.
            add_special_tokens: Whether the tokenizer adds what it adds at the start of a text.
            padding: As tokenizers have it.
            padding_side: ``left``, since generation goes on from the last token, or ``right``.
            truncation: Whether to cut token ids to ``max_length``.
            max_length: Greatest number of tokens.
            pad_to_multiple_of: As tokenizers have it.
            return_tensors: ``pt``, or ``None`` for ragged lists.

        Returns:
            ``input_ids`` and ``attention_mask`` ``(N, T)``; where images are given ``pixel_values``
            ``(V, tokens, C)``, always a tensor, of the ``V`` volumes that there are, maybe none.

        Raises:
            ValueError: If a prompt's volumes do not go with its ``<image>``, naming the row; if volumes differ in
                size.
            FeatureError: If a feature file is missing, torn or of the wrong shape, naming the study.
        """
        if videos is not None or audio is not None:
            raise ValueError("CT-CHAT takes volumes and text, no videos and no audio")
        if text is None:
            raise ValueError("text is missing; a prompt is needed")
        texts = [text] if isinstance(text, str) else list(text)
        volumes = _volumes_in_order(images, texts)
        rows = [self._tokenize(prompt, add_special_tokens) for prompt in texts]
        if truncation and max_length is not None:
            left = self.tokenizer.truncation_side == "left"
            rows = [ids[-max_length:] if left else ids[:max_length] for ids in rows]
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

    def _tokenize(self, text: str, add_special_tokens: bool) -> list[int]:
        first, *rest = text.split(IMAGE_TOKEN)
        ids = list(self.tokenizer(first, add_special_tokens=add_special_tokens)["input_ids"])
        for part in rest:
            ids += [self.image_token_id] * self.num_image_tokens
            ids += self.tokenizer(part, add_special_tokens=False)["input_ids"]
        return ids

    def _read(self, volumes: Sequence[_Volume]) -> Tensor:
        if not volumes:
            return torch.zeros(0, 1, self.feature_size)
        # Reinforcement learning asks for the same volume once for each completion of a group.
        by_path: dict[str, NDArray[Any]] = {}
        arrays = []
        for volume in volumes:
            if isinstance(volume, str | Path):
                path = str(volume)
                if path not in by_path:
                    # One number that is none would spoil a whole step, and on a GPU end the run without a name.
                    array = read_features(path, channels=self.feature_size, check_finite=True)
                    by_path[path] = array.reshape(-1, self.feature_size)
                arrays.append(by_path[path])
            else:
                arrays.append(self._flatten(volume))
        sizes = sorted({len(array) for array in arrays})
        if len(sizes) > 1:
            raise ValueError(f"the volumes of a batch must have the same number of tokens, got {sizes}")
        return torch.from_numpy(np.stack(arrays))

    def _flatten(self, volume: NDArray[Any] | Tensor) -> NDArray[Any]:
        array = volume.detach().cpu().float().numpy() if isinstance(volume, Tensor) else np.asarray(volume)
        if array.ndim < 2 or array.shape[-1] != self.feature_size:
            raise ValueError(f"features must have shape (..., {self.feature_size}), got {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError("features must be finite, got NaN or infinity")
        return array.reshape(-1, self.feature_size)

    @property
    def model_input_names(self) -> list[str]:
        """Names of the model's inputs."""
        return ["input_ids", "attention_mask", "pixel_values"]


def _volumes_in_order(images: Any, texts: Sequence[str]) -> list[_Volume]:
    """Volumes in the order of their places in the prompts, checked against the prompts row by row."""
    places = [text.count(IMAGE_TOKEN) for text in texts]
    for row, count in enumerate(places):
        if count > 1:
            raise ValueError(f"text[{row}] holds {IMAGE_TOKEN} {count} times; CT-CHAT reads one volume a prompt")
    if images is None:
        images = [None] * len(texts)
    by_row = [images] if _is_volume(images) else list(images)
    if len(by_row) == sum(places) < len(texts) and all(_is_volume(image) for image in by_row):
        remaining = iter(by_row)
        by_row = [next(remaining) if count else None for count in places]
    if len(by_row) != len(texts):
        raise ValueError(f"images and text must have the same length, got {len(by_row)} and {len(texts)}")
    volumes: list[_Volume] = []
    for row, (image, count) in enumerate(zip(by_row, places, strict=True)):
        own = list(_own_volumes(image))
        if len(own) != count:
            raise ValueError(f"text[{row}] holds {IMAGE_TOKEN} {count} times, but images[{row}] has {len(own)} volumes")
        volumes += own
    return volumes


def _is_volume(image: Any) -> bool:
    return isinstance(image, str | Path | np.ndarray | Tensor)


def _own_volumes(image: Any) -> Iterator[_Volume]:
    if image is None:
        return
    if _is_volume(image):
        yield image
    elif isinstance(image, Sequence):
        for volume in image:
            yield from _own_volumes(volume)
    else:
        raise TypeError(f"a volume must be a path or an array of features, got {type(image).__name__}")
