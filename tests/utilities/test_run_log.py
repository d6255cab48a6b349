"""The default log of a run: Python warnings, and nothing else."""

import pytest

from rrg_rewards.utilities.run_log import RunLog, RunWarning


def test_run_log_warns_in_the_name_of_the_caller():
    def run(log):
        log.warn("2 of 3 are missing")

    with pytest.warns(RunWarning, match="2 of 3 are missing") as caught:
        run(RunLog())
    assert caught[0].filename == __file__


def test_run_log_ignores_notes_and_progress(capsys):
    log = RunLog()
    log.note("separated by tabs")
    with log.progress("reading") as progress:
        progress(0, 3)
        progress(3, 0)
    assert capsys.readouterr() == ("", "")
