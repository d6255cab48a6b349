"""A small CREPE model with random weights in the published layout of BERT, and reports for it."""

import json
import random
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, BertTokenizerFast

WORDS = [
    *("the", "a", "no", "small", "large", "left", "right", "lung", "heart", "effusion"),
    *("nodule", "mass", "opacity", "is", "are", "of", "in", "with", "and", "normal", "new"),
    *("edema", "lungs"),
]
# Pieces, so that words have more tokens than one.
_PIECES = ["##s", "##al", "##ly", "##i", "##o", "##r", "p", "##l", "##e", "##u", "basi", "apic"]
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tiny_bert_tokenizer() -> BertTokenizerFast:
    """WordPiece with BERT's pair template, for a vocabulary of some forty entries."""
    vocabulary = {word: index for index, word in enumerate([*_SPECIAL, *WORDS, *_PIECES, ".", ","])}
    backend = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = BertNormalizer(lowercase=True)
    backend.pre_tokenizer = BertPreTokenizer()
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    # As in published tokenizer files: their truncation must not cut our pairs.
    backend.enable_truncation(max_length=16)
    return BertTokenizerFast(tokenizer_object=backend, model_max_length=512)


def save_tiny_crepe(folder: Path, *, categories: int = 6, presence: bool = True, width: int = 32, **fields) -> Path:
    """Write random weights as the published checkpoint has them: a BERT config with four fields more."""
    tokenizer = tiny_bert_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=2 * width,
        # With the usual 0.02 all pairs would have the same counts.
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    weights = {f"bert.{key}": value for key, value in BertModel(config).state_dict().items()}
    for kind in ("error_regressors", "error_presence")[: 2 if presence else 1]:
        for index in range(categories):
            # Small counts, as of a trained model: for larger ones float32 is not accurate to 1e-5.
            weights[f"{kind}.{index}.weight"] = 0.3 * torch.randn(1, width)
            weights[f"{kind}.{index}.bias"] = 0.3 * torch.randn(1)
    folder.mkdir(parents=True, exist_ok=True)
    own = {
        "num_error_categories": categories,
        "use_presence_loss": presence,
        "presence_loss_weight": 0.5,
        "use_poisson_loss": False,
    }
    (folder / "config.json").write_text(json.dumps({**json.loads(config.to_json_string()), **own, **fields}))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(folder)
    return folder


def random_report(choose: random.Random, words: int) -> str:
    """A report of so many words, in sentences of about eight."""
    text = []
    for index in range(words):
        text.append(choose.choice(WORDS) + choose.choice(["", "", "", "s", "ly"]) + ("." if index % 8 == 7 else ""))
    return " ".join(text)


def random_pairs(number: int, seed: int = 0, longest: int = 60) -> tuple[list[str], list[str]]:
    """Candidates and references of different lengths."""
    choose = random.Random(seed)
    candidates = [random_report(choose, choose.randint(1, longest)) for _ in range(number)]
    return candidates, [random_report(choose, choose.randint(1, longest)) for _ in range(number)]


def plain_counts(folder: Path, candidate: str, reference: str, max_length: int = 512) -> torch.Tensor:
    """Counts of one pair, from the published description alone: pair encoding padded to 512, pooled, six heads."""
    config = BertConfig.from_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    encoder = BertModel(config).eval()
    encoder.load_state_dict({key[5:]: value for key, value in weights.items() if key.startswith("bert.")})
    tokenizer = tiny_bert_tokenizer()
    # Not as lists: the published code passes two texts, of which a tokenizer ignores an empty second one.
    batch = tokenizer(
        reference, candidate, truncation=True, max_length=max_length, padding="max_length", return_tensors="pt"
    )
    with torch.no_grad():
        pooled = encoder(**batch).pooler_output[0]
    heads = [(weights[f"error_regressors.{i}.weight"], weights[f"error_regressors.{i}.bias"]) for i in range(6)]
    return torch.stack([(weight[0] * pooled).sum() + bias[0] for weight, bias in heads])
