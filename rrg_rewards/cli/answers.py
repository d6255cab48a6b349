"""What the commands share that append the answers of a judge to a file."""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rrg_rewards.analysis.settings import LANGUAGE_MODEL
from rrg_rewards.cli.options import (
    InputTable,
    Outputs,
    UsageError,
    add_settings,
    add_shared_options,
    destination,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.settings import setting

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from rrg_rewards.analysis.answers import AnswerRun
    from rrg_rewards.data.tables.table import Table
    from rrg_rewards.judges.base import Judge


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AnswerCommand(InputTable, Outputs):
    """A command that requests answers about the rows of a table, which are appended to its output."""

    judge: str | None = setting(None, f"{LANGUAGE_MODEL}; required without `dry_run`", metavar="JUDGE")
    dry_run: bool = setting(False, "send nothing; show counts, estimates and one prompt")
    is_appended: bool = True

    def model(self, lacks: str) -> "Judge | None":
        """Return the language model; ``None`` for a dry run without one.

        Args:
            lacks: Why the judge must be a language model, as for :func:`rrg_rewards.analysis.answers.choose_model`.

        Raises:
            UsageError: If there is no judge, and no dry run.
            SettingError: If the judge is unknown, or no language model.
        """
        from rrg_rewards.analysis.answers import choose_model

        if self.judge is not None:
            return choose_model(self.judge, lacks)
        if not self.dry_run:
            raise UsageError("--judge is required unless --dry-run is set")
        return None

    def run(
        self,
        judge: "Judge | None",
        make_run: "Callable[[Table], AnswerRun[Any, Any]]",
        terminal: Terminal,
        *,
        grid: "Callable[[Any], Grid] | None" = None,
        summary: Callable[[Any], dict[str, Any]] | None = None,
    ) -> int:
        """Request the answers that the output lacks, or show what they would cost, and return the exit code.

        Args:
            judge: The judge; ``None`` for a dry run without one.
            make_run: Function that makes the run of the input table.
            terminal: Receives results, notes and warnings.
            grid: Function that makes a table of the results.
            summary: Function that makes the summary. Default: the counts of the run.
        """
        self.check()
        run = make_run(self.read(terminal))
        if judge is None or self.dry_run:
            expected = run.estimate()
            if self.json is not None:
                # The plan has a hash of the answer's schema, which needs pydantic.
                self.write_summary({**run.plan(), "estimate": asdict(expected)})
            lines = [run.preview(), run.describe(), str(expected), *destination(judge)]
            terminal.show(*(line for line in lines if line), stderr=self.json == "-")
            terminal.note("nothing was sent")
            return 0
        run.request(terminal)
        self.write_summary(run.to_dict() if summary is None else summary(run))
        if grid is not None:
            terminal.show(grid(run), stderr=self.json == "-")
        run.log_outcome(terminal)
        return run.exit_code


def add_answer_options(parser: argparse.ArgumentParser, items: str, *, model: bool) -> None:
    """Add the options of the outputs, and those of a language model if the judge is one.

    Args:
        parser: Parser of the command.
        items: Name of what the judge is asked about, for the help.
        model: Whether the judge is a language model.
    """
    text = f"JSON lines file to append to (.jsonl); {items} that it contains are not requested again"
    output = {"required": True, "default": None, "help": text}
    overwrite = {"help": "replace a summary that exists; --output is never replaced"}
    add_shared_options(parser, "output", "json", "format", "overwrite", output=output, overwrite=overwrite)
    if model:
        add_settings(parser, AnswerCommand, "judge", "dry_run")
