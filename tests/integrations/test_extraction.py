"""A report earns the same on every road, however the policy wraps it."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from served import Served
from trainer_inputs import load_file

from rrg_rewards.callbacks import ReportMetricsCallback
from rrg_rewards.integrations import areal, easyr1, openrlhf, slime, unsloth, verifiers, verl
from rrg_rewards.integrations.ms_swift import register_rewards
from rrg_rewards.metrics import make_metric
from rrg_rewards.rewards import Reward, make_reward
from rrg_rewards.rewards.ppo import RewardFunctionModel
from rrg_rewards.training.policy.generators import Completions
from rrg_rewards.training.policy.rewards import RewardSet, TrainerState
from rrg_rewards.utilities.processes import run_coroutine

WRAPPINGS = (
    "{}",
    "<think>Emphysema? Large effusion?</think>\n\n{}",
    "Emphysema?</think>{}",
    "<think>Emphysema?</think><think>No, effusion.</think>{}",
    "<answer>{}</answer>",
    "<think>Emphysema?</think>\n<answer>\n{}\n</answer>",
    "I see an effusion. <answer>Emphysema.</answer> No: <answer>{}</answer>",
    "```\n{}\n```",
    "Here is the report:\n```text\n{}\n```",
    "There may be emphysema. \\boxed{{{}}}",
    "There may be emphysema.\n\n**Final answer:** {}",
    "<|channel|>analysis<|message|>Emphysema?<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>",
)
REPORTS = ("Cardiomegaly. Small right pleural effusion.", "Edema.")
REFERENCES = ("Small right pleural effusion. Hiatal hernia.", "Cardiomegaly.")
TEXTS = [wrapping.format(report) for wrapping in WRAPPINGS for report in REPORTS]
MESSAGES = [[{"role": "assistant", "content": text, "reasoning_content": "Emphysema?"}] for text in TEXTS]
BARE = list(REPORTS) * len(WRAPPINGS)
TARGETS = list(REFERENCES) * len(WRAPPINGS)
PROMPT = "<|im_start|>user\nReport the CT.<|im_end|>\n<|im_start|>assistant\n"


@cache
def recommended() -> dict[str, Any]:
    reward = make_reward("recommended").fit(reference=list(REFERENCES) * 4)
    return {"name": "recommended", **reward.fitted_options()}


REWARDS: dict[str, Callable[[], dict[str, Any]]] = {
    "crg": lambda: {"name": "crg", "prior": 0.2},
    "crimson": lambda: {"name": "crimson"},
    "rouge": lambda: {"name": "rouge"},
    "recommended": recommended,
}


def made(setting: dict[str, Any]) -> Reward:
    return make_reward(setting["name"], **{key: value for key, value in setting.items() if key != "name"})


def settings_of(setting: dict[str, Any]) -> dict[str, Any]:
    return {"reward": setting, "missing": -9.0}


def called(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    rewarded: Any = made(setting)(prompts=[PROMPT] * len(completions), completions=completions, reference=TARGETS)
    return run_coroutine(rewarded) if asyncio.iscoroutine(rewarded) else rewarded


@cache
def expected(name: str) -> list[float]:
    found: list[float] = called(REWARDS[name](), BARE)
    assert len(set(found)) == len(REPORTS)
    return found


def by_trl(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    """Call the method of TRL's trainer that calls rewards, without a model."""
    from trl import GRPOTrainer

    reward = made(setting)
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(device=torch.device("cpu"), is_main_process=False),
        args=SimpleNamespace(report_to=[]),
        environments=None,
        reward_funcs=[reward],
        reward_processing_classes=[None],
        reward_func_names=[reward.__name__],
        state=SimpleNamespace(global_step=0),
        _log_completion_extra=None,
        _log_metric=lambda *_: None,
    )
    inputs = [{"reference": target} for target in TARGETS]
    ids = [[1]] * len(completions)
    return GRPOTrainer._calculate_rewards(trainer, inputs, [PROMPT] * len(inputs), completions, ids)[:, 0].tolist()


def by_verl(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    given = zip(completions, TARGETS, strict=True)
    return [verl.compute_score_sync("ct", *one, {}, **settings_of(setting))["score"] for one in given]


def by_easyr1(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    given = zip(completions, TARGETS, strict=True)
    inputs = [{"response": text, "ground_truth": target} for text, target in given]
    return [one["overall"] for one in load_file(easyr1.__file__).compute_score(inputs, **settings_of(setting))]


def by_openrlhf(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    queries = [f"{PROMPT}{text}<|im_end|>" for text in completions]
    return openrlhf.reward_func(queries, [PROMPT] * len(queries), TARGETS)["rewards"].tolist()


def by_ms_swift(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    orms: dict[str, Any] = {}
    register_rewards(orms, settings_of(setting))
    return orms[setting["name"]](args=None)(list(completions), reference=TARGETS)


def by_unsloth(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    (reward,) = unsloth.make_reward_funcs(settings_of(setting))
    return reward(prompts=[PROMPT] * len(completions), completions=list(completions), reference=TARGETS)


def by_slime(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    pairs = zip(completions, TARGETS, strict=True)
    samples = [SimpleNamespace(prompt=PROMPT, response=text, label=target, metadata={}) for text, target in pairs]
    return asyncio.run(slime.batched_custom_rm(SimpleNamespace(reward_key=None), samples))


def by_areal(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    return [
        areal.reward_fn(PROMPT, text, [1], [1], reference=one) for text, one in zip(completions, TARGETS, strict=True)
    ]


def by_verifiers(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    async def run() -> list[float]:
        traces = [SimpleNamespace(last_reply=text, record_metrics=lambda _: None) for text in completions]
        tasks = [SimpleNamespace(reference=target) for target in TARGETS]
        return [await verifiers.reward(*one) for one in zip(tasks, traces, strict=True)]

    return asyncio.run(run())


def by_server(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    body = {"prompts": [PROMPT] * len(completions), "completions": list(completions), "reference": TARGETS}
    with Served(made(setting)) as served:
        return served.post("/rewards", body)[1]["rewards"]


def by_remote(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    with Served(made(setting)) as served:
        return called({"name": "remote", "urls": served.url}, completions)


def by_slime_server(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    with Served(made(setting), missing=-9.0) as served:
        bodies = [
            {"prompt": PROMPT, "response": text, "label": one} for text, one in zip(completions, TARGETS, strict=True)
        ]
        return [served.post("/remote_rm", body)[1] for body in bodies]


class Characters:
    """A tokenizer whose tokens are characters."""

    pad_token_id, eos_token_id = 0, 1

    def batch_decode(self, ids: Sequence[Sequence[int]], **_: Any) -> list[str]:
        return ["".join(map(chr, one)) for one in ids]


def by_ppo(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    prompts = [[7, row + 1000, *map(ord, PROMPT)] for row in range(len(completions))]
    model = RewardFunctionModel(made(setting), Characters(), prompts, {"reference": TARGETS})
    rows = [torch.tensor([*prompt, *map(ord, text)]) for prompt, text in zip(prompts, completions, strict=True)]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return model(input_ids=ids, attention_mask=ids != 0)[:, -1, 0].tolist()


def by_policy_module(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    """Call the rewards as ``PolicyModule`` does."""
    ids = torch.ones(len(completions), 1, dtype=torch.long)
    batch = {"prompt": [PROMPT] * len(completions), "reference": TARGETS}
    table = RewardSet(made(setting))(batch, Completions(ids, ids.bool()), list(completions), TrainerState(0, 1, 0.0))
    return table.total.tolist()


def by_callback(setting: dict[str, Any], completions: Sequence[Any]) -> Any:
    """Score the reports that a validation step returns."""
    callback = ReportMetricsCallback(made(setting).metric)  # type: ignore[attr-defined]
    output = {"prediction": list(completions), "reference": TARGETS, "prompt": [PROMPT] * len(completions)}
    reports = callback._read(output, "validation_step")
    return callback.metrics[setting["name"]].score(reports.preds, reports.target).value.tolist()


ROADS_OF_MESSAGES = (called, by_trl, by_unsloth, by_ms_swift, by_server, by_remote)
ROADS = (
    *(*ROADS_OF_MESSAGES, by_verl, by_easyr1, by_openrlhf, by_slime, by_areal, by_verifiers),
    *(by_slime_server, by_ppo, by_policy_module, by_callback),
)


@pytest.mark.parametrize("name", REWARDS)
@pytest.mark.parametrize(
    ("road", "completions"),
    [
        *((road, TEXTS) for road in ROADS),
        *((road, MESSAGES) for road in ROADS_OF_MESSAGES),
    ],
    ids=[*(f"{road.__name__}-text" for road in ROADS), *(f"{road.__name__}-messages" for road in ROADS_OF_MESSAGES)],
)
def test_a_wrapped_report_earns_what_the_bare_report_earns(
    road: Callable[..., Any], completions: list[Any], name: str, configure: Callable[..., None]
) -> None:
    if road is by_callback and name == "recommended":
        pytest.skip("a composed reward has no metric")
    setting = REWARDS[name]()
    configure(**settings_of(setting))
    assert road(setting, completions) == pytest.approx(expected(name), abs=1e-6)


WITHOUT_PROMPTS = (by_verl, by_easyr1, by_verifiers, by_ms_swift)


@pytest.mark.parametrize("name", ["crg", "recommended"])
@pytest.mark.parametrize("road", [road for road in ROADS if road not in WITHOUT_PROMPTS])
def test_reasoning_that_the_prompt_has_opened_and_nothing_ends_is_an_empty_report(
    road: Callable[..., Any], name: str, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if road is by_callback and name == "recommended":
        pytest.skip("a composed reward has no metric")
    texts = [f"Emphysema?{end}{report}" for end in (" ", "</think>") for report in REPORTS] * (len(TARGETS) // 4)
    setting = REWARDS[name]()
    configure(**settings_of(setting))
    written = called(setting, [text if "</think>" in text else "" for text in texts])
    monkeypatch.setattr(sys.modules[__name__], "PROMPT", f"{PROMPT}<think>\n")
    assert road(setting, texts) == pytest.approx(written, abs=1e-6)
    assert any(one != other for one, other in zip(written, written[2:], strict=False))


def test_callback_reads_one_prompt_for_all_reports() -> None:
    callback = ReportMetricsCallback(make_metric("rouge"), rewards=make_reward("rouge"))
    for prompt, expected in (("Report.", ["Edema.", ""]), ("Report. <think>", ["", ""]), (None, ["Edema.", ""])):
        reports = callback._read({"prediction": ["Edema.", ""], "reference": ["Edema."] * 2, "prompt": prompt}, "step")
        assert reports.preds == expected
        reward = callback.metrics["reward/rouge"]
        values = reward.score(reports.completions, reports.target, **reports.context["reward/rouge"]).value.tolist()
        assert values == [float(bool(text)) for text in expected]
