r"""``rrg-rewards attack``: search for texts that earn most without looking at the image.

Before the training, search for texts that earn most without looking at the image: one text for all patients, or the
same edit of each report of an honest system. A policy learns what pays. If such a text earns more than a system that
sees the images, reinforcement learning may find it.

The table has one row per study with the reference report and the other columns that the reward reads. With
--honest-column, the reports of a system that sees the images are the baseline, and edits of them are searched too.

First, the reward itself is checked: against a reference, no other text may score higher than the reference, and an
empty text must score less, unless the reference describes nothing abnormal. Failures are printed first, and the exit
code is 1; the search takes place and all files are written.

Families of texts are searched on one half of the references: normal reports, lists of labels and findings, hedges,
alternatives, sizes, bounds, sides, contradictions, retractions, vague statements, headings, echoed questions,
instructions to a judge, single words and characters, capitals, separators, digits, lengths, other languages,
sentences and whole reports of the references, and combinations of all. The best text of each family is measured on
the other half. The table shows its reward there, its gain over the baseline with a 95 % interval, and the outcome:
"exploit" if the whole interval lies above --threshold, "unclear" if only the gain does.

Examples:
  rrg-rewards attack pairs.csv --reward crg --honest-column prediction --json attack.json --html attack.html
  rrg-rewards attack pairs.csv --reward crg --set average=macro --honest-column prediction
  rrg-rewards attack pairs.csv --reward crimson --against blank --threshold 0.15
  rrg-rewards attack pairs.csv --reward crimson --honest-column prediction --workers 8
  rrg-rewards attack pairs.csv --reward crimson --judge openai:my-model --budget 8000 --max-references 40
  rrg-rewards attack pairs.csv --reward composed --families labels,hedges,evolved \
      --set "parts=[{name: crg, prior: 0.2}, {name: repetition, weight: 0.1}]"

--budget counts calls of the reward: one text scored against one reference. --reward accepts module:Class of your own
reward or metric. From Python, attack_reward accepts any function. The texts are also written to --json; texts that
contain sentences of your reports have "quotes_reports": true, and --no-quotes leaves them out. The page of --html
contains these only with --with-text.

If the search is interrupted, the results of the families so far are written. If you repeat the command, a judge with a
cache answers known questions from it.

exit codes: 0 success, whatever the search finds; 1 error, also if the reward itself fails its check (all files are
written); 2 wrong command line; 130 interrupted
"""

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal

from rrg_rewards.analysis.settings import Batches, RewardChoice, Seed, Workers
from rrg_rewards.cli.options import (
    InputTable,
    Outputs,
    PageOptions,
    add_command_parser,
    add_settings,
    add_shared_options,
    add_table_argument,
    settings_from,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.settings import SettingError, Settings, setting
from rrg_rewards.utilities.worker_pool import prepare_workers
from rrg_rewards.utilities.yaml_files import is_yaml_path

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from rrg_rewards.attack import AttackResult, RewardCheck
    from rrg_rewards.data.tables.table import Table

# Number of characters of a text that the printed table shows.
_SHOWN = 160


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Search(Seed, Batches, Workers):
    """The search, as for :func:`rrg_rewards.attack.attack_reward`."""

    against: Literal["blank", "honest"] | None = setting(
        None, "baseline of constant texts (default: honest if there is one)"
    )
    blank: str = setting("", "text of the blank report (default: no text)", metavar="TEXT")
    families: Sequence[str] | None = setting(
        None, "families to search (default: all)", metavar="NAME[,NAME...]", separator=","
    )
    lexicon: str | None = setting(
        None,
        "lexicon whose findings, organs and labels fill the texts (default: the file of `labeler`, or chest)",
        metavar="FILE",
    )
    threshold: float = setting(0.1, "gain above which a text is an exploit", metavar="X")
    budget: int = setting(100_000, "calls of the reward", metavar="N", minimum=1)
    max_references: int = setting(200, "number of references to sample", metavar="N", minimum=1)
    held_out: float = setting(
        0.5, "share of the references that are not searched", metavar="SHARE", minimum=0, maximum=1
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Files(Settings):
    """What else is read and written."""

    honest_column: str | None = setting(None, "column of reports of a system that sees the images", metavar="NAME")
    no_quotes: bool = setting(False, "leave texts with sentences of your reports out of `json`")


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``attack`` to the command line."""
    parser = add_command_parser(commands, "attack", _run, summary, __doc__)
    add_table_argument(parser, "PAIRS", "references")
    add_settings(parser, RewardChoice)
    add_settings(parser, _Files)
    add_settings(parser, _Search)
    add_shared_options(parser, "json", "format", "overwrite")
    text = {"help": "let the page of --html contain texts with sentences of your reports"}
    add_settings(parser, PageOptions, "html", "with_text", with_text=text)


def _attack(
    choice: RewardChoice, search: _Search, honest: str | None, table: "Table", terminal: Terminal
) -> "AttackResult":
    from rrg_rewards.analysis.metric_choice import choose_reward, reward_inputs
    from rrg_rewards.attack import attack_reward
    from rrg_rewards.judges.base import JudgeWarning

    reward = choose_reward(choice)
    columns = reward_inputs(reward, table, choice.reference_column)
    reward.fit(**columns)
    if choice.reference_column not in columns:
        columns[choice.reference_column] = table.texts(choice.reference_column)
    with terminal.progress("attacking") as report, warnings.catch_warnings():
        # A failure of the judge is a missing reward, which the result counts.
        warnings.simplefilter("ignore", JudgeWarning)
        return attack_reward(
            reward,
            columns,
            reference_column=choice.reference_column,
            honest=None if honest is None else table.texts(honest),
            report_progress=report,
            report_check=lambda check: _say_check(check, terminal),
            **vars(replace(search, lexicon=search.lexicon or _lexicon_of(choice.labeler))),
        )


def _lexicon_of(labeler: Any) -> str:
    """Return the lexicon of a labeler of the user's, otherwise that of the findings."""
    return labeler if isinstance(labeler, str) and is_yaml_path(labeler) else "chest"


def _say_check(check: "RewardCheck", terminal: Terminal) -> None:
    """Say what the check of the reward itself found, before the search; a failure is also the exit code."""
    for failure in check.failures:
        terminal.error(f"the reward itself: {failure}")
    for note in check.notes:
        terminal.warn(note)


def _grid(result: "AttackResult") -> "Grid":
    from rich.table import Table as Grid

    honest = "" if result.honest is None else f", honest {result.honest:.3f}"
    title = f"blank {result.blank:.3f}{honest}, reference {result.reference:.3f}; gain over {result.baseline}"
    grid = Grid(title=title, title_justify="left")
    grid.add_column("family", no_wrap=True)
    for heading in ("reward", "gain", "95 % interval"):
        grid.add_column(heading, justify="right", no_wrap=True)
    grid.add_column("outcome", no_wrap=True)
    grid.add_column("text")
    for family in result.families:
        low, high = family.interval
        text = shorten(family.text, _SHOWN, placeholder=" ...")
        interval = f"{low:.3f} to {high:.3f}"
        grid.add_row(family.family, f"{family.reward:.3f}", f"{family.gain:+.3f}", interval, family.outcome, text)
    return grid


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    search, files = settings_from(args, _Search), settings_from(args, _Files)
    if search.workers != 1:
        prepare_workers()
    from rrg_rewards.data.tables.writers import write_json
    from rrg_rewards.pages.attack_page import attack_page

    if search.against == "honest" and files.honest_column is None:
        raise SettingError("against", "honest needs `honest_column`")
    outputs, page = settings_from(args, Outputs), settings_from(args, PageOptions)
    outputs.check(html=page.html)
    table = settings_from(args, InputTable).read(terminal)
    result = _attack(settings_from(args, RewardChoice), search, files.honest_column, table, terminal)
    if outputs.json is not None:
        write_json(result.to_dict(quotes=not files.no_quotes), outputs.json, outputs.overwrite)
    if page.html is not None:
        page.write(attack_page(result, page.with_text), outputs.overwrite)
    line = f"{result.verdict}; {result.calls} calls"
    failures = () if result.check is None else result.check.failures
    said = [f"the reward itself fails its check: {failure}" for failure in failures]
    terminal.show(*said, _grid(result), line, result.signature, stderr=outputs.hides_results)
    if not result.complete:
        terminal.error(f"interrupted after {result.calls} calls, results are of the families so far")
        return 130
    return 1 if failures else 0
