"""The command line of the reward server, up to the start of the server."""

import json

import pytest

import rrg_rewards.integrations.serve.run as run
from rrg_rewards.cli.main import main


@pytest.fixture
def served(monkeypatch):
    """The options with which a server would have started."""
    started = []

    def run_server(options, listener):
        listener.close()
        started.append(options)
        return True

    monkeypatch.setattr(run, "run_server", run_server)
    monkeypatch.delenv("RRG_REWARDS_TOKEN", raising=False)
    return started


def serve(*arguments):
    return main(["serve", "--port", "0", *arguments])


def table(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_options_reach_the_server(served, capsys):
    limits = ["--max-batch", "8", "--max-wait-ms", "2", "--timeout", "9", "--max-request-mb", "1", "--workers", "3"]
    assert serve("--reward", "crg", "--set", "prior=0.2", "--missing", "-1", *limits) == 0
    (options,) = served
    assert (options.missing, options.workers, options.timeout) == (-1.0, 3, 9.0)
    assert (options.batch_limits.max_batch, options.batch_limits.max_wait) == (8, 0.002)
    assert options.max_request_bytes == 2**20
    assert f"serving {options.reward.signature} at http://127.0.0.1:" in capsys.readouterr().err.replace("\n", "")


def test_paths_are_refused_without_plugins(served, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RRG_REWARDS_NO_PLUGINS", "")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "stranger.py").write_text("raise SystemExit('the code of a stranger was run')")
    config = tmp_path / "reward.yaml"
    config.write_text("reward: [{name: crg, prior: 0.3}, {name: 'stranger:score'}]\nmissing: 0\n")
    assert serve("--config", str(config), "--no-plugins") == 1
    assert "'stranger:score' is a path" in capsys.readouterr().err.replace("\n", " ")
    assert not served


def test_settings_of_trainers(served, tmp_path):
    config = tmp_path / "reward.yaml"
    config.write_text("reward: {name: crg, prior: 0.3, report: raw}\nreference_column: report\nmissing: -2\n")
    assert serve("--config", str(config)) == 0
    (options,) = served
    assert (options.missing, options.reward.columns, options.reference_column) == (-2, ("report",), "report")
    assert options.reward.reports(["<answer>Clear.</answer>"]) == ["<answer>Clear.</answer>"]


def test_limits_of_a_file_and_options_that_replace_them(served, tmp_path):
    config = tmp_path / "reward.yaml"
    config.write_text("reward: {name: crg, prior: 0.3}\nmax_batch: 4\nmax_wait_ms: 2\n")
    assert serve("--config", str(config)) == 0
    assert serve("--config", str(config), "--max-batch", "9") == 0
    assert serve("--reward", "crg", "--set", "prior=0.3") == 0
    assert [(one.max_batch, one.max_wait_ms) for one in served] == [(4, 2), (9, 2), (64, 5)]


def test_a_fitted_reward(served, tmp_path):
    rows = [{"report": text} for text in ("Cardiomegaly.", "Hiatal hernia.", "Normal.")]
    reports, fitted = table(tmp_path / "train.jsonl", rows), str(tmp_path / "fitted.json")
    assert main(["fit", reports, "--reward", "crg", "--reference-column", "report", "--output", fitted]) == 0
    assert serve("--config", fitted, "--missing", "-1") == 0
    assert served[0].reward.prior == pytest.approx(2 / 54)
    assert (served[0].missing, served[0].reference_column) == (-1, "report")


def test_prompts_and_their_columns(served, tmp_path):
    rows = [{"question": "<image> Report 1. ", "reference": "One."}, {"question": "Report 2.", "reference": None}]
    prompts = table(tmp_path / "prompts.jsonl", [*rows, rows[0]])
    given = ["--reward", "crg", "--set", "prior=0.2", "--prompts", prompts, "--prompt-column", "question"]
    assert serve(*given) == 0
    assert served[0].prompts == {"Report 1.": {"reference": "One."}, "Report 2.": {"reference": None}}


def test_missing_cells_of_prompts(served, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "Report 1.", "reference": "One.", "years": NaN}\n' * 2)
    assert serve("--reward", "crimson", "--context", "age=years", "--prompts", str(path)) == 0
    assert served[0].prompts == {"Report 1.": {"reference": "One.", "years": None}}


def test_a_prompt_with_two_references_is_refused(served, tmp_path, capsys):
    rows = [{"prompt": "Report.", "reference": "One."}, {"prompt": "Report.", "reference": "Two."}]
    prompts = table(tmp_path / "prompts.jsonl", rows)
    assert serve("--reward", "crg", "--set", "prior=0.2", "--prompts", prompts) == 2
    assert "has the prompt of an earlier row and another reference" in capsys.readouterr().err


def test_other_addresses_need_a_token(served, monkeypatch, capsys):
    given = ["--reward", "crg", "--set", "prior=0.2", "--host", "0.0.0.0"]
    assert serve(*given) == 2
    assert "set the environment variable RRG_REWARDS_TOKEN" in capsys.readouterr().err
    monkeypatch.setenv("RRG_REWARDS_TOKEN", "s3cret")
    assert serve(*given) == 0
    assert served[0].token == "s3cret"
    assert "s3cret" not in repr(served[0]) + capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of the arguments --reward --config is required"),
        (["--reward", "crg", "--config", "x.yaml"], "argument --config: not allowed with argument --reward"),
        (["--config", "x.yaml", "--set", "prior=1"], "argument --set: has no effect with --config"),
        (["--config", "x.yaml", "--reference-column", "a"], "argument --reference-column: has no effect with --config"),
        (["--reward", "crg"], "estimates prior from data"),
        (["--reward", "crgg"], "did you mean 'crg'"),
        (["--reward", "crg", "--set", "prior=0.2", "--device", "cuda"], "unknown option of reward 'crg' 'device'"),
        (["--reward", "rouge", "--port", "99999"], "argument --port: must be an integer, at least 0, at most 65,535"),
        (["--reward", "rouge", "--timeout", "0"], "argument --timeout: must be a number, above 0"),
        (["--reward", "rouge", "--max-batch", "9999"], "max_pending must be at least max_batch"),
    ],
)
def test_wrong_command_lines(served, capsys, arguments, message):
    # The last of two --port would be refused as a repetition.
    given = ["serve", *([] if "--port" in arguments else ["--port", "0"]), *arguments]
    assert main(given) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not served


def test_the_mean_of_workers_is_no_missing_reward(served, tmp_path, capsys):
    config = tmp_path / "reward.yaml"
    config.write_text("reward: {name: crg, prior: 0.3}\nmissing: mean\n")
    assert serve("--config", str(config)) == 2
    assert "missing must be a number, because workers share no mean" in capsys.readouterr().err
