"""The commands of docs/judges.md, word for word, against servers with the rules of GPT-5 and vLLM."""

import csv
import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from crimson_package import install_stand_in
from crimson_servers import crimson_server, gpt5, vllm
from fault_server import status

from rrg_rewards.judges import get_judge
from rrg_rewards.judges.base import ReportPair
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.recipes import recipe_path

PAGE = Path(__file__).parents[2] / "docs/judges.md"
MEDGEMMA = "rajpurkarlab/medgemma-4b-it-crimson"
has_package = find_spec("CRIMSON") is not None
needs_package = pytest.mark.skipif(not has_package, reason="needs the package crimson-score")

ROWS = [
    ("Small left pleural effusion. Heart size is normal.", "No pleural effusion.", "66", "Dyspnea", 2),
    ("Small left pleural effusion.", "Small left pleural effusion. Cardiomegaly.", "25", "Fever", 3),
    ("Large right pneumothorax.", "Large right pneumothorax.", "", "", 5),
    ("No acute abnormality.", "Large left pneumothorax.", "41", "Fall", 1),
]
PAIRS = [
    ReportPair(ref, pred, tuple((name, value) for name, value in (("age", age), ("indication", why)) if value))
    for ref, pred, age, why, _ in ROWS
]


def commands(heading=None):
    """Command lines of a section of the page; default: of the whole page."""
    text = PAGE.read_text(encoding="utf-8")
    if heading is not None:
        text = text.split(f"# {heading}\n")[1]
        text = re.split(r"^##+ ", text, maxsplit=1, flags=re.MULTILINE)[0]
    return [line for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) for line in block.strip().splitlines()]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a folder with pairs.csv."""
    if not has_package:
        install_stand_in(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    with Path("pairs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["reference", "prediction", "age", "indication", "rating"])
        writer.writerows(ROWS)
    return tmp_path


def run_all(run, lines, server, codes=()):
    """Run commands of rrg-rewards; settings that they copy get the address of the server and short pauses.

    ``codes`` are the exit codes, 0 by default.
    """
    results = []
    for line, code in zip(lines, codes or [0] * len(lines), strict=True):
        program, *arguments = shlex.split(line)
        assert program == "rrg-rewards"
        result = run(*arguments)
        assert result.code == code, result.err
        results.append(result)
        if arguments[:2] == ["recipes", "cp"]:
            path = Path(arguments[2]).name + ".yaml"
            settings = yaml.safe_load(Path(path).read_text())
            judge = settings.get("second", settings)
            assert "base_url" in judge
            judge.update(base_url=server.url, first_pause=0.01)
            Path(path).write_text(yaml.safe_dump(settings))
    return results


def rows(path):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def rule_scores():
    return CRIMSON().score(
        [row[1] for row in ROWS],
        [row[0] for row in ROWS],
        age=[row[2] for row in ROWS],
        indication=[r[3] for r in ROWS],
    )


def check_scores(path, runs):
    found = [float(row["crimson"]) for row in rows(path)]
    assert found == pytest.approx(rule_scores().value.tolist(), abs=1e-6)
    if runs > 1:
        assert [float(row["crimson_spread"]) for row in rows(path)] == [0.0] * len(ROWS)


def test_score_page_has_no_other_command_of_the_published_judges():
    section = PAGE.read_text(encoding="utf-8").split("\n## Published judges\n")[1].split("\n## ")[0]
    named = ["Install", "A strong model", "Models that refuse `temperature` and `max_tokens`"]
    named += ["The fine-tuned model behind vLLM", "The fine-tuned model in this process"]
    named += ["Rules first, a model for the rest"]
    lines = [line for block in re.findall(r"```\n(.*?)```", section, re.DOTALL) for line in block.splitlines()]
    assert sorted(lines) == sorted(line for heading in named for line in commands(heading))


def test_score_with_the_settings_for_gpt_5_2(run):
    lines = commands("A strong model")
    assert len(lines) == 4

    def behave(body, answer):
        expected = {"model": "gpt-5.2", "seed": 42, "temperature": 0.0, "response_format": {"type": "json_object"}}
        assert {name: value for name, value in body.items() if name != "messages"} == expected
        return gpt5(0)({name: value for name, value in body.items() if name != "temperature"}, answer)

    with crimson_server(PAIRS, behave) as server:
        _, estimate, scored, agreement = run_all(run, lines, server)
        assert len(server.requests) == 5 * len(ROWS)
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer key"}
        run_all(run, [lines[2].replace("scores.csv", "again.csv").replace("summary", "again")], server)
        assert len(server.requests) == 5 * len(ROWS), "all answers are in the cache"
    assert "crimson: 20 requests" in estimate.out
    check_scores("scores.csv", runs=5)
    check_scores("again.csv", runs=5)
    signature = json.loads(Path("summary.json").read_text())["metrics"]["crimson"]["signature"]
    assert "model:gpt-5.2" in signature
    assert "crimson-score-guidelines@" in signature
    assert "runs:5" in signature
    assert "rating" in agreement.out
    assert "crimson" in agreement.out
    assert '"rating"' in Path("agreement.json").read_text()
    assert "failed" not in scored.err


@needs_package
def test_score_requests_of_gpt_5_2_are_those_of_the_package(run, monkeypatch):
    """Also the conversation, for each pair."""
    from CRIMSON import CRIMSONScore

    published = []

    class Completions:
        def create(self, **body):
            published.append(json.loads(json.dumps(body)))
            raise InterruptedError

    scorer = CRIMSONScore.__new__(CRIMSONScore)
    scorer.api, scorer.model_name = "openai", "gpt-5.2"
    scorer.client = type("Client", (), {"chat": type("Chat", (), {"completions": Completions()})()})()
    for pair in PAIRS:
        context = {name.capitalize(): value for name, value in pair.context} or None
        with pytest.raises(InterruptedError):
            scorer.evaluate(pair.reference, pair.candidate, context)

    def behave(body, answer):
        return gpt5(0)({name: value for name, value in body.items() if name != "temperature"}, answer)

    with crimson_server(PAIRS, behave) as server:
        run_all(run, [commands("A strong model")[0], commands("A strong model")[2]], server)
        sent = [request.body for request in server.requests]
    assert len(sent) == 5 * len(PAIRS)
    assert {json.dumps(body, sort_keys=True) for body in sent} == {json.dumps(b, sort_keys=True) for b in published}


def test_score_with_the_settings_for_models_that_refuse_temperature(run):
    lines = commands("Models that refuse `temperature` and `max_tokens`")
    first = PAIRS[0].reference + PAIRS[0].candidate
    busy = {first: [status(429, retry_after=0.2), status(503)]}
    with crimson_server(PAIRS, gpt5(3000), busy) as server:
        run_all(run, lines, server)
        assert len(server.requests) == 5 * len(ROWS) + 2
        assert {request.body["max_completion_tokens"] for request in server.requests} == {16384}
        assert {request.body["seed"] for request in server.requests} == {42}
    check_scores("scores_gpt5.csv", runs=5)


def test_score_estimates_the_longest_answers(run):
    lines = commands("Models that refuse `temperature` and `max_tokens`")
    with crimson_server(PAIRS, gpt5(0)) as server:
        run_all(run, lines[:1], server)
        settings = yaml.safe_load(Path("crimson_gpt5.yaml").read_text())
        Path("crimson_gpt5.yaml").write_text(yaml.safe_dump({**settings, "price": [1.0, 10.0]}))
        (estimate,) = run_all(run, [lines[1] + " --json estimate.json"], server)
        assert not server.requests
    expected = json.loads(Path("estimate.json").read_text())["crimson"]
    assert f"if all answers use up the limit, as reasoning may: {20 * 16384:,} tokens" in estimate.out
    assert "reports would be sent to 127.0.0.1" in estimate.out
    task = CrimsonTask("crimson-score-guidelines")
    characters = sum(len(message["content"]) for pair in PAIRS for message in task.messages(pair))
    assert expected["requests"] == 20
    assert expected["prompt_tokens"] == pytest.approx(5 * characters / 4, rel=0.02)
    assert expected["most_completion_tokens"] == 20 * 16384
    assert expected["most_cost"] == pytest.approx((expected["prompt_tokens"] + 10 * 20 * 16384) / 1e6)
    assert 20 * 30 < expected["completion_tokens"] < 20 * 300


def test_score_names_the_limit_that_reasoning_used_up(run):
    lines = commands("Models that refuse `temperature` and `max_tokens`")
    with crimson_server(PAIRS, gpt5(20_000)) as server:
        scored = run_all(run, [lines[0], lines[2]], server, codes=[0, 1])[1]
        assert len(server.requests) == 5 * len(ROWS), "a rejected answer is not requested again"
    assert all(row["crimson"] == "" for row in rows("scores_gpt5.csv"))
    failure = rows("scores_gpt5.csv")[0]["crimson_failure"]
    assert "all its tokens went to reasoning" in failure
    assert "max_completion_tokens" in failure
    assert "failed on 4 of 4 report pairs (malformed 4); the first: malformed: " in scored.err


def test_score_with_the_defaults_is_refused_by_gpt_5(run):
    """What the settings are for: the server refuses temperature and max_tokens."""
    judge = get_judge(str(recipe_path("judges/crimson_gpt5"))).arguments()
    with crimson_server(PAIRS, gpt5(0)) as server:
        for change in ({"temperature": 0.0}, {"max_tokens": 2048}):
            settings = {**judge, **change, "base_url": server.url, "cache": None}
            with pytest.warns(UserWarning, match="status 1"):
                scores = CRIMSON(judge={"name": "openai", **settings}).score([ROWS[0][1]], [ROWS[0][0]])
            assert "HTTP 400" in scores.explanations["failure"][0]


def test_score_with_medgemma_behind_vllm(run):
    lines = commands("The fine-tuned model behind vLLM")
    serve = shlex.split(next(line for line in lines if line.startswith("vllm")))
    options = dict(zip(serve[3::2], serve[4::2], strict=True))
    assert options["--served-model-name"] == MEDGEMMA
    assert options["--port"] == "8000"
    assert get_judge(str(recipe_path("judges/crimson_medgemma_vllm"))).address.url == "http://localhost:8000/v1"
    with crimson_server(PAIRS, vllm(MEDGEMMA, int(options["--max-model-len"]))) as server:
        run_all(run, [line for line in lines if line.startswith("rrg-rewards")], server)
        sent = [{name: one for name, one in r.body.items() if name != "messages"} for r in server.requests]
    assert sent == [{"model": MEDGEMMA, "temperature": 0.0, "max_tokens": 8192}] * len(ROWS)
    check_scores("scores_medgemma.csv", runs=1)
    assert '"rating"' in Path("agreement_medgemma.json").read_text()


def test_score_with_the_settings_for_a_cascade(run):
    unread = ReportPair("Quorblid. Small left pleural effusion.", "No effusion.")
    with Path("pairs.csv").open("a", newline="") as file:
        csv.writer(file).writerow([unread.reference, unread.candidate, "", "", 2])
    with crimson_server(
        [*PAIRS, unread], lambda body, answer: gpt5(0)({"messages": body["messages"]}, answer)
    ) as server:
        _, estimate, _ = run_all(run, commands("Rules first, a model for the rest"), server)
        sent = [request.item for request in server.requests]
    assert unread.reference + unread.candidate in sent
    assert len(sent) < 1 + len(ROWS)
    assert f"crimson: {len(sent)} requests" in estimate.out
    assert f"rules {5 - len(sent)}, openai:gpt-5.2 {len(sent)}" in estimate.out
    judges = [row["crimson_judge"] for row in rows("scores_cascade.csv")]
    assert judges.count("openai:gpt-5.2") == len(sent)
    assert judges[-1] == "openai:gpt-5.2"
    found = json.loads(Path("summary_cascade.json").read_text())["metrics"]["crimson"]
    assert found["judged_by"] == {"rules": 5 - len(sent), "openai:gpt-5.2": len(sent)}


def test_score_needs_the_context_that_the_page_gives_vllm(run):
    lines = [line for line in commands("The fine-tuned model behind vLLM") if line.startswith("rrg-rewards")]
    with crimson_server(PAIRS, vllm(MEDGEMMA, 8192)) as server:
        run_all(run, lines[:2], server, codes=[0, 1])
    assert "HTTP 400" in rows("scores_medgemma.csv")[0]["crimson_failure"]


@needs_package
def test_score_page_gives_the_lengths_of_the_prompts():
    text = PAGE.read_text(encoding="utf-8")
    for prompt in ("crimson-score", "crimson-score-guidelines"):
        messages = CrimsonTask(prompt).messages(ReportPair("", "", (("age", "82"), ("indication", "Cough"))))
        assert f"{sum(len(message['content']) for message in messages):,} characters without reports" in text


@needs_package
def test_score_page_downloads_the_files_that_the_package_serves(folder, monkeypatch):
    """The excluded file is the one that the package's work-around leaves out."""
    import huggingface_hub
    from CRIMSON.utils import resolve_model_for_vllm

    snapshot = folder / "snapshot"
    snapshot.mkdir()
    names = ["config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json"]
    for name in names:
        (snapshot / name).write_text("{}")
    (snapshot / names[2]).write_text(json.dumps({"weight_map": {"w": "model-00001-of-00002.safetensors"}}))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda _: str(snapshot))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    served = sorted(path.name for path in Path(resolve_model_for_vllm(MEDGEMMA)).iterdir())
    download = shlex.split(commands("The fine-tuned model behind vLLM")[0])
    assert download[:3] == ["hf", "download", MEDGEMMA]
    pattern = download[download.index("--exclude") + 1]
    kept = huggingface_hub.utils.filter_repo_objects(names, ignore_patterns=[pattern])
    assert sorted(kept) == served == ["config.json", "model.safetensors", "tokenizer.json"]


@pytest.mark.parametrize("metric", ["rouge", "ct_finebench"])
def test_score_dry_run_of_a_metric_without_a_language_model_writes_no_summary(folder, run, metric):
    command = ("score", "pairs.csv", "--metrics", metric, "--json", "summary.json")
    assert f"{metric}: asks no language model" in run(*command, "--dry-run").out
    assert not Path("summary.json").exists()


def test_score_dry_run_bounds_the_requests_of_each_judge_of_ct_finebench(folder, run):
    Path("nodules.csv").write_text("reference,prediction\nNodule of 8 mm.,Nodule of 9 mm.\nNormal.,Small nodule.\n")
    with crimson_server(PAIRS, gpt5(0)) as server:
        Path("judge.yaml").write_text(yaml.safe_dump({"name": "openai", "model": "m", "base_url": server.url}))
        roles = [f"ct_finebench.{role}=judge.yaml" for role in ("builder", "answerer", "comparer")]
        options = [part for role in roles for part in ("--set", role)]
        result = run("score", "nodules.csv", "--metrics", "ct_finebench", *options, "--dry-run", "--json", "s.json")
        assert not server.requests
    assert result.code == 0, result.err
    found = {
        role: entry["most_requests"] for role, entry in json.loads(Path("s.json").read_text())["ct_finebench"].items()
    }
    assert found["answers"] == found["grades"] > found["questions"] >= 2
    for role, most in found.items():
        assert f"ct_finebench, {role}: at most {most:,} requests" in result.out
