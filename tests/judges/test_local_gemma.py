"""A local judge with a small model that has the architecture, chat template and files of CRIMSON's MedGemma."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from judge_answers import PAIRS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, PreTrainedTokenizerFast

from rrg_rewards.judges import get_judge
from rrg_rewards.judges.base import Message, ReportPair
from rrg_rewards.judges.local import LocalJudge
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.recipes import recipe_path

needs_package = pytest.mark.skipif(find_spec("CRIMSON") is None, reason="needs the package crimson-score")

SPECIAL = ["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"]
# As Gemma 3: the system message begins the user's turn.
TEMPLATE = (
    "{{ bos_token }}{% set ns = namespace(system='') %}{% for message in messages %}"
    "{% if message['role'] == 'system' %}{% set ns.system = message['content'] + '\n\n' %}{% else %}"
    "<start_of_turn>{{ 'model' if message['role'] == 'assistant' else message['role'] }}\n"
    "{{ ns.system }}{{ message['content'] | trim }}<end_of_turn>\n{% set ns.system = '' %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
STALE = {"metadata": {"total_size": 1}, "weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}


class PublishedTask(CrimsonTask):
    """The published conversation, with the answer as it is."""

    def __init__(self) -> None:
        super().__init__("crimson-score")

    def parse(self, item: ReportPair, answer: str) -> Any:
        return answer


def save_gemma(folder: Path) -> Path:
    """A Gemma 3 of random weights that reads and writes bytes, with an index of shards that do not exist."""
    vocabulary = {one: index for index, one in enumerate([*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    backend = Tokenizer(models.BPE(vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    # As Gemma's, the tokenizer begins each text with <bos>, which the template also writes.
    backend.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        additional_special_tokens=SPECIAL[3:],
        chat_template=TEMPLATE,
    ).save_pretrained(folder)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {"vocab_size": 272, "num_key_value_heads": 1, "head_dim": 16, "initializer_range": 0.3, "sliding_window": 64}
    torch.manual_seed(0)
    config = Gemma3Config(
        text_config={**sizes, **text, "max_position_embeddings": 131072},
        vision_config={**sizes, "image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4,
        pad_token_id=0,
        eos_token_id=[1, 4],
        bos_token_id=2,
        boi_token_index=269,
        eoi_token_index=270,
        image_token_index=271,
    )
    model = Gemma3ForConditionalGeneration(config)
    model.save_pretrained(folder)
    # The published code would follow it; without it, it decodes greedily.
    (folder / "generation_config.json").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(STALE))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_gemma(tmp_path_factory.mktemp("gemma"))


def judge(folder: Path, **changes: Any) -> LocalJudge:
    """The judge of the recipe with another model, and short answers."""
    settings = get_judge(str(recipe_path("judges/crimson_medgemma_local"))).arguments()
    made = get_judge(
        {"name": "local", **settings, "model": str(folder), "device": "cpu", "max_new_tokens": 24, **changes}
    )
    assert isinstance(made, LocalJudge)
    return made


def test_local_judge_reads_weights_beside_a_stale_index(folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(folder / name)
    stale, clean = (judge(one)._model.state_dict() for one in (folder, tmp_path))
    assert stale.keys() == clean.keys()
    assert all(torch.equal(stale[name], clean[name]) for name in stale)
    saved = Gemma3ForConditionalGeneration.from_pretrained(folder, dtype=torch.bfloat16).state_dict()
    assert all(torch.equal(stale[name], saved[name]) for name in saved)


def test_local_judge_encodes_a_system_message_as_gemma(folder: Path) -> None:
    conversation: list[Message] = [{"role": "system", "content": "Rate."}, {"role": "user", "content": " A\nB "}]
    made = judge(folder)
    ids = made._encode(conversation)
    text = "<bos><start_of_turn>user\nRate.\n\nA\nB<end_of_turn>\n<start_of_turn>model\n"
    assert made._tokenizer.decode(ids) == text
    assert ids.count(2) == 1, "one <bos>, although the tokenizer adds one to a text"


@needs_package
def test_local_judge_answers_as_the_published_code(folder: Path) -> None:
    """The token ids that the package's pipeline generates from, and its answers, in bfloat16 on the CPU."""
    from CRIMSON import CRIMSONScore

    scorer = CRIMSONScore(api="hf", model_name=str(folder), device="cpu")
    assert not scorer._has_generation_config
    scorer.DEFAULT_MAX_NEW_TOKENS = 24
    seen: list[list[int]] = []
    generate = scorer.pipe.model.generate

    def spy(*arguments: Any, **options: Any) -> Any:
        seen.append(options["input_ids"][0].tolist())
        return generate(*arguments, **options)

    scorer.pipe.model.generate = spy
    made, task = judge(folder), PublishedTask()
    pairs = list(PAIRS.values())[:3]
    for pair in pairs:
        context = {name.capitalize(): value for name, value in pair.context} or None
        prompt = scorer._build_evaluation_prompt(pair.reference, pair.candidate, context, include_guidelines=False)
        expected = scorer._chat_completion(prompt)
        assert made.evaluate_now(task, [pair]) == [expected]
        assert made._encode(task.messages(pair)) == seen[-1]
    assert len(seen) == len(pairs)
    assert len(expected) > 5
