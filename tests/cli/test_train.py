"""``rrg-rewards train``: help and errors before training. Runs are tested in tests/training."""

import sys

import pytest

from rrg_rewards.utilities.imports import install_command


@pytest.mark.parametrize(("task", "own"), [("crepe", "--model.encoder"), ("er2score", "--model.lora")])
def test_keys_are_shown(run, task, own):
    result = run("train", task, "--keys")
    assert result.code == 0
    for key in (
        "--output_dir",
        "--model.learning_rate",
        "--data.sources",
        "--trainer.max_epochs",
        "--checkpoint.monitor",
        own,
    ):
        assert key in result.out


def test_all_tasks_can_be_chosen(run):
    from rrg_rewards.training.metrics.cli import TASKS

    result = run("train", "nothing", "--config", "x")
    assert all(repr(task) in result.err for task in TASKS)


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("train", "crepe"), 2, "--config FILE is required"),
        (("train", "crep", "--config", "x"), 2, "invalid choice: 'crep'"),
        (
            ("train", "crepe", "--config", "crepe/trian"),
            2,
            "no such file, and unknown recipe 'crepe/trian'; did you mean",
        ),
        (("train", "crepe", "--config", "crepe/train", "--trainer.max_epochz", "1"), 1, "max_epochz"),
        (
            ("train", "crepe", "--config", "crepe/train", "--output_dir=x"),
            1,
            "data.sources[0]: data/pairs.jsonl: no such file",
        ),
        (("score", "pairs.csv", "--metrics", "crg", "--metric", "crg"), 2, "unrecognized arguments: --metric"),
    ],
)
def test_what_is_wrong_is_told(run, argv, code, message):
    result = run(*argv)
    assert result.code == code
    assert message in result.err


@pytest.mark.parametrize(("module", "extra"), [("lightning", "train"), ("jsonargparse", "train")])
def test_a_missing_library_names_its_extra(run, monkeypatch, module, extra):
    for name in [name for name in sys.modules if name.startswith("rrg_rewards.training")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    result = run("train", "crepe", "--config", "crepe/train")
    assert result.code == 1
    assert f"run: {install_command(extra)}" in result.err
