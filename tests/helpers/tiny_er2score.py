"""Small ER²Score models with random weights, Llama's architecture and tokenizer, as training writes them."""

from pathlib import Path

import torch
from tiny_crepe import random_pairs
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel, PreTrainedTokenizerFast

from rrg_rewards.models import ER2ScoreModel
from rrg_rewards.models.er2score.prompt import default_prompt

SPECIAL = ["<|begin|>", "<|end|>"]
LORA = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}


def tiny_llama_tokenizer() -> PreTrainedTokenizerFast:
    """Make a byte-level BPE tokenizer with a token before each text, as Llama 3 has it."""
    backend = Tokenizer(BPE())
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = ByteLevelDecoder()
    texts = [default_prompt(), *(report for side in random_pairs(100) for report in side)]
    trainer = BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    backend.post_processor = TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])
    # As in published tokenizer files: their truncation must not cut our prompts.
    backend.enable_truncation(max_length=16)
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<|begin|>", eos_token="<|end|>")


def tiny_llama_config(**fields) -> LlamaConfig:
    sizes = {
        "vocab_size": len(tiny_llama_tokenizer()),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "bos_token_id": 0,
        "eos_token_id": 1,
        # With the usual 0.02 all prompts would have the same rewards.
        "initializer_range": 0.2,
    }
    return LlamaConfig(**{**sizes, **fields})


def save_tiny_llama(folder: Path, **fields) -> Path:
    """Write a language model and its tokenizer: a backbone."""
    torch.manual_seed(0)
    LlamaForCausalLM(tiny_llama_config(**fields)).save_pretrained(folder)
    tiny_llama_tokenizer().save_pretrained(folder)
    return folder


def randomize(model: ER2ScoreModel, seed: int = 0) -> ER2ScoreModel:
    """Set random adapters and biases, which start at zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "lora_B" in name or name.startswith("head."):
                value.copy_(0.3 * torch.randn(value.shape, generator=generator))
    return model


def save_tiny_er2score(root: Path, system="radcliq", **options) -> Path:
    """Write a backbone in ``root/llama`` and a model made of it in ``root/model``."""
    backbone = save_tiny_llama(root / "llama")
    randomize(ER2ScoreModel.from_backbone(backbone, system, **options)).save_pretrained(root / "model")
    return root / "model"


def plain_prompt(reference: str, candidate: str) -> list[int]:
    """Return the tokens of the package's prompt, computed from its text and the tokenizer alone."""
    tokenizer = tiny_llama_tokenizer()
    before, rest = default_prompt().split("{reference}")
    between, after = rest.split("{candidate}")
    settings = {"add_special_tokens": False, "truncation": False}
    pieces = (before, reference, between, candidate, after)
    return [0, *(token for piece in pieces for token in tokenizer(piece, **settings)["input_ids"])]


def plain_rewards(folder: Path, candidate: str, reference: str) -> torch.Tensor:
    """Compute the rewards of one pair of a RadCliQ model by its definition: a Llama, an adapter, a linear layer."""
    from peft import PeftModel
    from safetensors.torch import load_file

    adapted = (folder / "adapter").is_dir()
    model = LlamaModel.from_pretrained(folder.parent / "llama" if adapted else folder / "backbone").eval()
    if adapted:
        model = PeftModel.from_pretrained(model, folder / "adapter").eval()
    head = load_file(folder / "head.safetensors")
    with torch.no_grad():
        hidden = model(input_ids=torch.tensor([plain_prompt(reference, candidate)])).last_hidden_state[0, -1]
    return head["weight"] @ hidden + head["bias"]
