"""``rrg-rewards pairs``, and training on its output."""

import json

import pytest
from tiny_policy import save_tiny_policy

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.judges import registry as judges
from rrg_rewards.rewards import make_reward

HEADER = ["prompt", "completion", "reference", "age", "image"]
BOTH = "Cardiomegaly. Hiatal hernia."
ROWS = [
    ("Report A.", "Cardiomegaly.", BOTH, "60", "a.npz"),
    ("Report A.", BOTH, BOTH, "60", "a.npz"),
    ("Report A.", "Emphysema.", BOTH, "60", "a.npz"),
    ("Report B.", "Emphysema.", "Emphysema.", "70", "b.npz"),
    ("Report B.", "Emphysema. No effusion.", "Emphysema.", "70", "b.npz"),
    ("Report C.", "Emphysema.", "", "", "c.npz"),
    ("Report C.", "Cardiomegaly.", "", "", "c.npz"),
    ("Report A.", "Atelectasis.", "Atelectasis. Emphysema.", "80", "d.npz"),
    ("Report A.", "Emphysema, atelectasis.", "Atelectasis. Emphysema.", "80", "d.npz"),
]
CRG = ["--reward", "crg", "--set", "prior=0.2"]


@pytest.fixture
def samples(write_csv):
    return write_csv("samples.csv", HEADER, *ROWS)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_pairs_for_dpo(run, samples, tmp_path):
    output, summary = tmp_path / "pairs.jsonl", tmp_path / "summary.json"
    result = run("pairs", samples, *CRG, "--output", output, "--json", summary, "--keep", "image")
    assert result.code == 0, result.err
    rows = lines(output)
    # One prompt with two references is two studies.
    assert [(row["prompt"], row["chosen"], row["rejected"]) for row in rows] == [
        ("Report A.", BOTH, "Emphysema."),
        ("Report A.", "Emphysema, atelectasis.", "Atelectasis."),
    ]
    assert [row["image"] for row in rows] == ["a.npz", "d.npz"]
    reward = make_reward("crg", prior=0.2)
    values = reward(completions=[row[1] for row in ROWS], reference=[row[2] or None for row in ROWS])
    assert [row["score_chosen"] for row in rows] == [values[1], values[8]]
    assert [row["score_rejected"] for row in rows] == [values[2], values[7]]
    told = json.loads(summary.read_text())
    assert (told["rows"], told["prompts"], told["pairs"], told["unscorable"]) == (9, 4, 2, 2)
    assert told["prompts_without_pair"] == {"single": 1, "tied": 1}
    assert told["reward"] == reward.signature
    assert told["mean_words_chosen"] == 2.5
    assert told["mean_difference"] == pytest.approx((values[1] - values[2] + values[8] - values[7]) / 2)
    assert "prompts whose completions tie" in result.out


def test_a_margin_and_a_group_column(run, samples, tmp_path):
    output = tmp_path / "pairs.jsonl"
    assert run("pairs", samples, *CRG, "--margin", "0.6", "--output", output).code == 0
    assert [row["chosen"] for row in lines(output)] == [BOTH]
    rows = [*CRG, "--group-column", "prompt", "--per-prompt", 2, "--output", output, "--overwrite"]
    assert run("pairs", samples, *rows).code == 0
    assert (lines(output)[0]["chosen"], lines(output)[0]["rejected"]) == (BOTH, "Emphysema.")
    assert len(lines(output)) == 2
    result = run("pairs", samples, *CRG, "--margin", "9", "--output", output, "--overwrite")
    assert result.code == 1
    assert "no preference: of 4 prompts 3 tie and 1 have less than two" in result.err


def test_a_judge_its_context_and_its_failures(run, write_csv, tmp_path, monkeypatch):
    monkeypatch.setitem(judges._JUDGES, "scripted", "scripted_judge:ScriptedJudge")
    rows = [("P", text, "Edema and effusion.", "60") for text in ("Edema.", "Edema, effusion.", "Broken nodule.")]
    samples, output = write_csv("judged.csv", HEADER[:4], *rows), tmp_path / "pairs.jsonl"
    judge = "{name: scripted, fail_on: {Broken: malformed}}"
    result = run("pairs", samples, "--reward", "crimson", "--judge", judge, "--context", "age=age", "--output", output)
    assert result.code == 0, result.err
    assert "the judge failed on 1 of 3 completions (malformed 1)" in result.err
    assert [(row["chosen"], row["rejected"]) for row in lines(output)] == [("Edema, effusion.", "Edema.")]


def test_a_composed_reward_in_parts(run, samples, tmp_path):
    output = tmp_path / "pairs.jsonl"
    parts = "parts=[{name: crg, prior: 0.2}, {name: repetition, weight: 0.1}]"
    assert run("pairs", samples, "--reward", "composed", "--set", parts, "--output", output).code == 0
    assert lines(output)[0]["chosen"] == BOTH


def test_batches_change_nothing(run, samples, tmp_path):
    found = []
    for size in (1, 4, 256):
        output = tmp_path / f"{size}.jsonl"
        # The prior is measured on all references and does not depend on the batches.
        assert run("pairs", samples, "--reward", "crg", "--batch-size", size, "--output", output).code == 0
        found.append(output.read_text())
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_messages(run, samples, tmp_path, ending):
    output = tmp_path / f"pairs.{ending}"
    options = ["--conversational", "--system-prompt", "You are a radiologist.", "--output", output]
    assert run("pairs", samples, *CRG, *options).code == 0
    table = read_table(output)
    assert [dict(message) for message in table.column("prompt")[0]] == [
        {"role": "system", "content": "You are a radiologist."},
        {"role": "user", "content": "Report A."},
    ]
    assert [dict(message) for message in table.column("chosen")[0]] == [{"role": "assistant", "content": BOTH}]
    again = tmp_path / "again.jsonl"
    rows = [
        {"prompt": prompt, "completion": row[1], "reference": row[2]}
        for row in ROWS[:3]
        for prompt in [[{"role": "user", "content": row[0]}]]
    ]
    source = tmp_path / "messages.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    # Prompts that are messages already are not changed.
    assert run("pairs", source, *CRG, "--output", again).code == 0
    assert lines(again)[0]["rejected"] == [{"role": "assistant", "content": "Emphysema."}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--reward", "crgg"], "did you mean 'crg'"),
        ([*CRG, "--set", "priorr=1"], "did you mean 'prior'"),
        ([*CRG, "--set", "prior"], "must be OPTION=VALUE"),
        ([*CRG, "--margin", "-1"], "argument --margin: must be a number, at least 0"),
        ([*CRG, "--threshold", "0"], "requires --trainer kto"),
        ([*CRG, "--system-prompt", "x"], "needs --conversational"),
        ([*CRG, "--context", "age"], "must be NAME=COLUMN"),
    ],
)
def test_usage_errors(run, samples, tmp_path, arguments, message):
    result = run("pairs", samples, "--output", tmp_path / "pairs.jsonl", *arguments)
    assert result.code == 2
    assert message in result.err
    assert not (tmp_path / "pairs.jsonl").exists()


def test_data_errors(run, samples, write_csv, tmp_path):
    bad = write_csv("bad.csv", HEADER[:3], ("P", "Normal.", "Normal."), ("", "Normal.", "Normal."))
    result = run("pairs", bad, *CRG, "--output", tmp_path / "pairs.jsonl")
    assert result.code == 1
    assert "data row 2 (line 3), column 'prompt': must be a prompt" in result.err
    for option in ("prompt-column", "completion-column", "reference-column", "group-column", "keep"):
        result = run("pairs", samples, *CRG, f"--{option}", "references", "--output", tmp_path / "pairs.jsonl")
        assert "unknown column 'references'; did you mean 'reference'" in result.err
        assert f". --{option} names the column" in result.err


@pytest.mark.parametrize("conversational", [False, True])
def test_trl_trains_on_them(run, samples, tmp_path, conversational, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets, trl = pytest.importorskip("datasets"), pytest.importorskip("trl")
    output = tmp_path / "pairs.jsonl"
    more = ["--conversational"] if conversational else []
    assert run("pairs", samples, *CRG, *more, "--output", output).code == 0
    policy = save_tiny_policy(tmp_path / "policy", ["Cardiomegaly", "Emphysema", "Hiatal", "hernia", ".", "user"])
    options = {
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
    }
    trainer = trl.DPOTrainer(
        model=str(policy),
        args=trl.DPOConfig(output_dir=str(tmp_path / "dpo"), max_steps=1, per_device_train_batch_size=2, **options),
        train_dataset=datasets.load_dataset("json", data_files=str(output), split="train", cache_dir=str(tmp_path)),
    )
    trainer.train()
    assert trainer.state.global_step == 1
    assert "rewards/margins" in trainer.state.log_history[0] or trainer.state.log_history[-1]["train_loss"] > 0
