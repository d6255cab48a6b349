"""Write a small checkpoint in the form of CT-CHAT's published one: ``rrg-rewards convert ct-chat --example FOLDER``."""

import json
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaForCausalLM

from rrg_rewards.models import CTChatConfig
from rrg_rewards.models.ct_chat.projector import CTChatProjector
from rrg_rewards.recipes.ct_chat.phantom import CHANNELS, mini_tokenizer
from rrg_rewards.recipes.phantom.policy import compact_config


def write_example(folder: Path) -> dict[str, tuple[int, ...]]:
    """Write a base model and a checkpoint with random weights, and return the shape of each weight of the checkpoint.

    Args:
        folder: Folder of ``base``, a Llama with its tokenizer, and ``checkpoint``: a LoRA adapter and
            ``non_lora_trainables.bin`` with the projector, under the published names.

    Raises:
        FileExistsError: If the folder exists.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as parent:
        ...     shapes = write_example(Path(parent) / "example")
        >>> shapes["base_model.model.model.mm_projector.attn_pool.to_kv.weight"]
        (192, 32)
    """
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    tokenizer = mini_tokenizer()
    text = compact_config(tokenizer, len(tokenizer))
    base = LlamaForCausalLM(text)
    base.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    config = CTChatConfig(text, num_image_tokens=16, feature_size=CHANNELS, pooler_size=text.hidden_size)
    prefix = "base_model.model.model.mm_projector."
    others = {f"{prefix}{name}": tensor for name, tensor in CTChatProjector(config).state_dict().items()}
    adapter = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]))
    adapter.save_pretrained(folder / "checkpoint")
    torch.save(others, folder / "checkpoint" / "non_lora_trainables.bin")
    published = {"model_type": "llava_llama", "mm_hidden_size": CHANNELS}
    (folder / "checkpoint" / "config.json").write_text(json.dumps(published))
    lora = {name: tensor for name, tensor in adapter.named_parameters() if "lora_" in name}
    return {name.replace(".default", ""): tuple(tensor.shape) for name, tensor in {**lora, **others}.items()}
