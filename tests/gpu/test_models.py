"""CT-CHAT and the encoders in bfloat16, on the second device and on the GPU against float32 on the CPU.

Errors are relative, in the L2 norm over all values together. Bounds in bfloat16 are about three times the errors
that were measured on the CPU.
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from metric_harness import save_models
from relative_error import relative_error
from second_device import IS_EMULATED, KINDS, WITHOUT_GPU, devices_of
from tiny_crepe import random_pairs, tiny_bert_tokenizer
from tiny_ct_chat import tiny_ct_chat, tiny_processor, volume
from tiny_labeler import save_tiny_labeler
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from rrg_rewards.labelers import RadBertLabeler
from rrg_rewards.metrics import make_metric
from rrg_rewards.models import CrepeModel, ER2ScoreModel
from rrg_rewards.models.ct_chat.processor import CTChatProcessor
from rrg_rewards.models.er2score.prompt import PromptEncoder, PromptTemplate
from rrg_rewards.recipes.ct_chat.phantom import mini_ct_chat, mini_processor

BF16, F32 = torch.bfloat16, torch.float32
PLACES = [
    pytest.param("cpu", BF16, id="cpu-bfloat16"),
    pytest.param("emulated", F32, id="emulated-float32", marks=WITHOUT_GPU),
    pytest.param("cuda", F32, id="cuda-float32", marks=pytest.mark.gpu),
    pytest.param("cuda", BF16, id="cuda-bfloat16", marks=pytest.mark.gpu),
]
# Bounds of CT-CHAT's logits and gradients, and of the encoders' outputs. Measured in bfloat16: 0.008 and 0.019.
BOUNDS = {F32: 1e-4, BF16: 0.03}
ENCODER_BOUNDS = {F32: 1e-4, BF16: 0.06}
KERNELS = [
    pytest.param("cpu", SDPBackend.FLASH_ATTENTION, id="cpu-flash"),
    *(
        pytest.param("cuda", backend, id=f"cuda-{backend.name.lower()}", marks=pytest.mark.gpu)
        for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
    ),
]
PROMPTS = ["<image> Report . <report_generation>", "Nodule of 8 mm in the left upper lobe .", "<image> No nodule ."]


@pytest.fixture(scope="module", autouse=True)
def devices() -> Iterator[None]:
    with devices_of("emulated" if IS_EMULATED else "cuda"):
        yield


@pytest.fixture(scope="module")
def processor() -> Any:
    return mini_processor()


@pytest.fixture(scope="module")
def model(processor: Any) -> Any:
    torch.manual_seed(0)
    return mini_ct_chat(processor).eval()


def inputs_of(processor: CTChatProcessor, rows: list[int]) -> dict[str, Tensor]:
    texts = [PROMPTS[row] for row in rows]
    noise = torch.Generator().manual_seed(0)
    images = [torch.randn(2, 3, 4, 32, generator=noise).numpy() if "<image>" in text else None for text in texts]
    # On the right: the loss would contain the prediction of the first token by padding on the left.
    return dict(processor(text=texts, images=images, padding=True, padding_side="right", return_tensors="pt"))


def logits_and_gradients(model: Any, inputs: dict[str, Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the logits of tokens and the gradients of all parameters."""
    device = next(model.parameters()).device
    moved = {name: value.to(device) for name, value in inputs.items()}
    is_token = moved["attention_mask"].bool()
    model.zero_grad()
    output = model(**moved, labels=moved["input_ids"].masked_fill(~is_token, -100))
    output.loss.backward()
    gradients = [weight.grad.clone() for _, weight in sorted(model.named_parameters())]
    return [output.logits[is_token]], gradients


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(("device", "dtype"), PLACES)
def test_ct_chat_equals_float32_on_the_cpu(
    processor: Any, model: Any, device: str, dtype: torch.dtype, attention: str
) -> None:
    inputs = inputs_of(processor, [0, 1, 2])
    expected = logits_and_gradients(model, inputs)
    moved = copy.deepcopy(model).to(device=device, dtype=dtype)
    moved.set_attn_implementation(attention)
    found = logits_and_gradients(moved, inputs)
    assert found[0][0].device.type == device
    for ours, exact in zip(found, expected, strict=True):
        check_error(relative_error(ours, exact), dtype, BOUNDS)


def check_error(error: float, dtype: torch.dtype, bounds: dict[torch.dtype, float]) -> None:
    """Results in bfloat16 differ, and no result by more than the bound."""
    assert dtype == F32 or error > 0
    assert error < bounds[dtype]


@pytest.mark.parametrize(("device", "kernel"), KERNELS)
def test_a_batch_without_padding_runs_on_every_kernel(
    processor: Any, model: Any, device: str, kernel: SDPBackend
) -> None:
    """Flash attention takes no mask; with another kernel excluded, a mask would raise an error on a GPU."""
    inputs = inputs_of(processor, [0, 0])
    expected = logits_and_gradients(model, inputs)
    moved = copy.deepcopy(model).to(device=device, dtype=BF16)
    with sdpa_kernel(kernel):
        found = logits_and_gradients(moved, inputs)
    for ours, exact in zip(found, expected, strict=True):
        assert relative_error(ours, exact) < BOUNDS[BF16]


def test_a_batch_without_padding_has_no_mask(processor: Any, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    masks, attend = [], torch.nn.functional.scaled_dot_product_attention

    def noted(*args: Any, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
        masks.append(attn_mask)
        return attend(*args, attn_mask=attn_mask, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noted)
    model(**inputs_of(processor, [0, 0]))
    assert masks == [None] * model.config.text_config.num_hidden_layers
    masks.clear()
    model(**inputs_of(processor, [0, 1]))
    assert None not in masks


@pytest.mark.gpu
def test_flash_attention_2_equals_sdpa(processor: Any, model: Any) -> None:
    pytest.importorskip("flash_attn", reason="attn_implementation=flash_attention_2 needs the package flash-attn")
    inputs = inputs_of(processor, [0, 1, 2])
    expected = logits_and_gradients(model, inputs)
    moved = copy.deepcopy(model).to(device="cuda", dtype=BF16)
    moved.set_attn_implementation("flash_attention_2")
    found = logits_and_gradients(moved, inputs)
    for ours, exact in zip(found, expected, strict=True):
        assert relative_error(ours, exact) < BOUNDS[BF16]


@pytest.mark.parametrize("device", KINDS)
def test_greedy_tokens_equal_those_on_the_cpu(device: str) -> None:
    """Padded and unpadded prompts, with and without a volume; some tokens depend on the volume."""
    processor = tiny_processor()
    model = tiny_ct_chat(processor).eval()
    texts = ["<image> edema <report_generation>", "lungs normal heart", "<image> nodule effusion report"]
    inputs = processor(text=texts, images=[volume(0), None, volume(1)], padding=True, return_tensors="pt")
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    expected = model.generate(**inputs, **options)
    assert torch.equal(model.to(device).generate(**inputs.to(device), **options).cpu(), expected)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = Path(tmp_path_factory.mktemp("encoders"))
    return {**save_models(root), "radbert": str(save_tiny_labeler(root / "radbert"))}


@pytest.mark.parametrize("name", ["crepe", "er2score"])
@pytest.mark.parametrize(("device", "dtype"), PLACES)
def test_a_trained_metric_equals_float32_on_the_cpu(
    folders: dict[str, str], device: str, dtype: torch.dtype, name: str
) -> None:
    pairs = random_pairs(16)
    kind = {BF16: "bfloat16", F32: "float32"}[dtype]
    expected, found = (
        make_metric(name, model=folders[name], device=place, dtype=type_).score(*pairs)
        for place, type_ in (("cpu", "float32"), (device, kind))
    )
    details = [[*scores.details.values()] for scores in (found, expected)]
    check_error(relative_error(details[0], details[1]), dtype, ENCODER_BOUNDS)


def gradients(name: str, folder: str, device: str) -> list[Tensor]:
    """Return the gradients of a metric's model in mixed precision, on the CPU."""
    candidates, references = random_pairs(4)
    if name == "crepe":
        model = CrepeModel.from_pretrained(folder)
        batch = dict(tiny_bert_tokenizer()(references, candidates, padding=True, return_tensors="pt"))
    else:
        model = ER2ScoreModel.from_pretrained(folder)
        encoder = PromptEncoder(model.tokenizer, PromptTemplate(model.config.prompt), model.config.max_prompt_length)
        batch = encoder.collate(encoder(references, candidates))
    model = model.to(device).train(False)
    with torch.autocast(device, BF16):
        output = model(**{key: value.to(device) for key, value in batch.items()})
    (output.counts if name == "crepe" else output.rewards).float().square().sum().backward()
    return [weight.grad.cpu() for weight in model.parameters() if weight.grad is not None]


@pytest.mark.parametrize("name", ["crepe", "er2score"])
@pytest.mark.parametrize("device", KINDS)
def test_gradients_of_a_trained_metric_in_mixed_precision_equal_the_cpu(
    folders: dict[str, str], device: str, name: str
) -> None:
    expected, found = (gradients(name, folders[name], place) for place in ("cpu", device))
    assert relative_error(found, expected) < BOUNDS[BF16]


@pytest.mark.parametrize("device", KINDS)
def test_bertscore_equals_the_cpu(folders: dict[str, str], device: str) -> None:
    pairs = random_pairs(16)
    expected, found = (
        make_metric("bertscore", model=folders["bertscore"], device=place).score(*pairs).value
        for place in ("cpu", device)
    )
    torch.testing.assert_close(found.cpu(), expected.cpu(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", KINDS)
def test_radbert_equals_the_cpu(folders: dict[str, str], device: str) -> None:
    reports = ["edema", "edema effusion", "nodule", "normal", "effusion nodule", "heart", "lungs"]
    expected, found = (RadBertLabeler(folders["radbert"], device=place)(reports) for place in ("cpu", device))
    assert expected.any()
    assert torch.equal(found.cpu(), expected)
