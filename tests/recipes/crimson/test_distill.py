"""A local judge that is trained on evaluations by rules, with a model of random weights."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from crimson_package import install_stand_in
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rrg_rewards.analysis.candidates import make_candidates
from rrg_rewards.functional import CrimsonEvaluation, CrimsonFinding
from rrg_rewards.judges import LocalJudge, ReportPair, RuleJudge
from rrg_rewards.judges.evaluations import EvaluatedPair, judge_agreement, read_evaluations
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.recipes.crimson.distill import DistillationArguments, load_examples, parse, run
from rrg_rewards.utilities.settings import SettingError

TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% else %}\n{% endif %}{% endfor %}"
)
TASK = CrimsonTask()


@pytest.fixture
def short_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instructions of one word, because a small model has a vocabulary of few words."""
    layout = "{{patient}} {{reference}} {{candidate}}"
    monkeypatch.setattr("rrg_rewards.judges.tasks.base._read_template", lambda name: ("Compare.", layout))


def write_evaluations(path: Path, reports: list[str], seed: int = 0) -> list[EvaluatedPair]:
    """Label candidates by rules, and write the file of the command line."""
    judge = RuleJudge()
    rows = []
    for row, regime, candidate in make_candidates(reports, modality="ct", seed=seed)[0]:
        pair = ReportPair(reports[row], candidate)
        rows.append(EvaluatedPair(pair, judge.evaluation(pair), judge.signature, source=regime))
    path.write_text("".join(json.dumps(row.to_record()) + "\n" for row in rows), encoding="utf-8")
    return rows


def save_judge(folder: Path, texts: list[str], size: int, context: int = 1024) -> Path:
    """A model of random weights, whose tokenizer is trained on the texts."""
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(texts, vocab_size=700, special_tokens=["<pad>", "<end>"], show_progress=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer, pad_token="<pad>", eos_token="<end>", chat_template=TEMPLATE
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=size,
        intermediate_size=2 * size,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=context,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def train(folder: Path, model: Path, **options: Any) -> Any:
    keys = {
        "config": "crimson/medgemma_4b",
        "model_name_or_path": model,
        "dataset": folder / "train.jsonl",
        "output_dir": folder / "judge",
        "use_peft": "false",
        "dtype": "float32",
        "bf16": "false",
        "use_cpu": "true",
        "gradient_checkpointing": "false",
        "gradient_accumulation_steps": 1,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": 5,
        "save_strategy": "no",
        **options,
    }
    return run(*parse([part for name, value in keys.items() for part in (f"--{name}", str(value))]))


def texts_of(path: Path, task: CrimsonTask = TASK) -> list[str]:
    examples = load_examples(str(path), task, Counter())
    return [message["content"] for one in examples for message in (*one["prompt"], *one["completion"])]


def test_distill_prompts_and_answers_are_those_of_the_judge(tmp_path: Path) -> None:
    rows = write_evaluations(tmp_path / "train.jsonl", ["Nodule of 8 mm in the left upper lobe.", "Hiatal hernia."])
    examples = load_examples(str(tmp_path / "train.jsonl"), TASK, Counter())
    for row, example in zip(rows, examples, strict=True):
        assert example["prompt"] == TASK.messages(row.pair)
        found = TASK.parse(row.pair, example["completion"][0]["content"])
        assert found.missing_findings == row.evaluation.missing_findings


def test_distill_answers_that_would_be_failures_are_counted_and_left_out(tmp_path: Path) -> None:
    pair = ReportPair("Mass. Nodule.", "Nodules.")
    elsewhere = CrimsonEvaluation((CrimsonFinding("R1", "fracture", "urgent"),), missing_findings=("R1",))
    good = RuleJudge().evaluation(pair)
    path = tmp_path / "rows.jsonl"
    records = [EvaluatedPair(pair, evaluation, "rules").to_record() for evaluation in (elsewhere, good)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    dropped: Counter[str] = Counter()
    assert len(load_examples(str(path), TASK, dropped)) == 1
    assert list(dropped) == ["rejected answer: inconsistent"]
    path.write_text(json.dumps(records[0]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no usable row among 1"):
        load_examples(str(path), TASK, Counter())


@pytest.mark.usefixtures("short_prompt")
def test_distill_a_run_writes_a_judge_that_answers(tmp_path: Path) -> None:
    rows = write_evaluations(tmp_path / "train.jsonl", ["Nodule of 8 mm in the left upper lobe.", "Hiatal hernia."])
    model = save_judge(tmp_path / "model", texts_of(tmp_path / "train.jsonl"), size=16)
    template = (model / "chat_template.jinja").rename(tmp_path / "template.jinja")
    with pytest.raises(SettingError, match=r"model_name_or_path: .* has no chat template; .* chat_template_path"):
        train(tmp_path, model, max_steps=2)
    train(tmp_path, model, max_steps=2, per_device_train_batch_size=2, chat_template_path=template)
    described = json.loads((tmp_path / "judge" / "run.json").read_text())
    assert described["rows"] == {"train": 2, "heldout": 0, "left out": {}}
    judge = LocalJudge(str(tmp_path / "judge"), device="cpu", max_new_tokens=8, constrained=False)
    found = judge_agreement([row.evaluation for row in rows], judge.evaluate_now(TASK, [row.pair for row in rows]), 10)
    assert found["failures"] == {"malformed": 2}


@pytest.fixture(params=["stand-in", "package"])
def published_prompt(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt of crimson-score, built by a stand-in or by the package itself."""
    if request.param == "stand-in":
        install_stand_in(monkeypatch)
    else:
        pytest.importorskip("CRIMSON", reason="the published prompt needs: pip install --no-deps crimson-score")


@pytest.mark.usefixtures("published_prompt")
@pytest.mark.parametrize("prompt", ["crimson-score", "crimson-score-guidelines"])
def test_distill_on_the_published_prompt_has_the_messages_and_answers_of_inference(tmp_path: Path, prompt: Any) -> None:
    rows = write_evaluations(tmp_path / "train.jsonl", ["Nodule of 8 mm in the left upper lobe.", "Hiatal hernia."])
    recipe = DistillationArguments(dataset=str(tmp_path / "train.jsonl"), task_prompt=prompt)
    examples = load_examples(recipe.dataset, recipe.task(), Counter())
    inference = CrimsonTask(prompt)
    for row, example in zip(rows, examples, strict=True):
        assert example["prompt"] == inference.messages(row.pair)
        (completion,) = example["completion"]
        assert inference.parse(row.pair, completion["content"]) == row.evaluation
        assert json.loads(completion["content"]) == row.evaluation.to_dict()


@pytest.mark.usefixtures("published_prompt")
def test_distill_on_the_published_prompt_trains_on_the_tokens_of_inference(tmp_path: Path) -> None:
    task = CrimsonTask("crimson-score")
    rows = write_evaluations(tmp_path / "train.jsonl", ["Nodule of 8 mm in the left upper lobe.", "Hiatal hernia."])
    model = save_judge(tmp_path / "model", texts_of(tmp_path / "train.jsonl", task), size=16, context=8192)
    trainer = train(tmp_path, model, max_steps=1, per_device_train_batch_size=2, task_prompt="crimson-score")
    judge = LocalJudge(str(tmp_path / "judge"), device="cpu", max_new_tokens=4, constrained=False)
    results = judge.evaluate_now(task, [row.pair for row in rows])
    assert [result.kind for result in results] == ["malformed"] * 2, "the prompts were answered"
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model)
    for row, example in zip(rows, trainer.train_dataset, strict=True):
        trained = example["input_ids"]
        asked = tokenizer.apply_chat_template(
            task.messages(row.pair), add_generation_prompt=True, tokenize=True, return_dict=True
        )["input_ids"]
        assert trained[: len(asked)] == asked
        assert tokenizer.decode(trained[len(asked) :]) == f"{task.answer(row.evaluation)}<end>"
        labels = trainer.data_collator([example])["labels"][0].tolist()
        assert labels == [-100] * len(asked) + trained[len(asked) :], "the loss is that of the answer"
    assert json.loads((tmp_path / "judge" / "run.json").read_text())["config"]["task_prompt"] == "crimson-score"


def test_distill_checks_decide_which_evaluations_are_left_out(tmp_path: Path) -> None:
    pair = ReportPair("The heart is enlarged.", "Normal.")
    finding = CrimsonFinding("R1", "cardiomegaly", "actionable_not_urgent")
    row = EvaluatedPair(pair, CrimsonEvaluation((finding,), missing_findings=("R1",)), "another judge")
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row.to_record()) + "\n", encoding="utf-8")
    strict = DistillationArguments(dataset=str(path), task_prompt="own")
    with pytest.raises(ValueError, match=r"no usable row among 1.*rejected answer: inconsistent"):
        load_examples(str(path), strict.task(), Counter())
    published = DistillationArguments(dataset=str(path), task_prompt="own", task_checks="published")
    assert len(load_examples(str(path), published.task(), Counter())) == 1
    with pytest.raises(ValueError, match="checks: must be one of"):
        DistillationArguments(dataset=str(path), task_checks="lax")


@pytest.mark.slow
@pytest.mark.usefixtures("short_prompt")
def test_distill_a_trained_judge_agrees_with_its_teacher(tmp_path: Path) -> None:
    """A small model learns the evaluations of a few pairs by heart; untrained, it gives no valid answer."""
    pytest.importorskip("llguidance")
    reports = [
        "Nodule of 8 mm in the left upper lobe.",
        "Hiatal hernia.",
        "Moderate emphysema.",
        "Small left effusion.",
    ]
    rows = write_evaluations(tmp_path / "train.jsonl", reports)
    assert read_evaluations(tmp_path / "train.jsonl") == rows
    model = save_judge(tmp_path / "model", texts_of(tmp_path / "train.jsonl"), size=64)
    train(tmp_path, model, max_steps=150, per_device_train_batch_size=4, learning_rate=5e-3)
    agreement = {}
    for name in ("model", "judge"):
        judge = LocalJudge(str(tmp_path / name), device="cpu", max_new_tokens=400, constrained=True)
        results = judge.evaluate_now(TASK, [row.pair for row in rows])
        agreement[name] = judge_agreement([row.evaluation for row in rows], results, 10)
    assert agreement["model"]["valid"] == 0
    assert agreement["judge"]["valid"] == len(rows)
    assert agreement["judge"]["agreement"]["score"]["equal"] == 1
