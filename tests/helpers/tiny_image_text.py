"""An image-text model of transformers with random weights, and its processor, made without a download."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tiny_policy import tiny_model, tiny_tokenizer
from transformers import (
    AutoTokenizer,
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)

TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }} {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image> {% else %}{{ part['text'] }} {% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)


def save_tiny_image_text(folder: Path) -> Path:
    """Write an image-text model and its processor as one folder."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<image>"], special_tokens=True)
    images = CLIPImageProcessorPil(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8})
    processor = LlavaProcessor(
        images, tokenizer, 4, "default", chat_template=TEMPLATE, image_token="<image>", num_additional_image_tokens=1
    )
    text = tiny_model([*"abcdefghijk"]).config
    vision = CLIPVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4
    )
    torch.manual_seed(0)
    token = tokenizer.convert_tokens_to_ids("<image>")
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=token, vision_feature_layer=-1)
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    processor.save_pretrained(folder)
    assert AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids("<image>") == token
    return folder


def save_images(folder: Path, count: int) -> list[str]:
    """Write images of random pixels, and return their names."""
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 255, (10 + number, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return [f"{number}.png" for number in range(count)]
