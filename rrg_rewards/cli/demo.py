"""``rrg-rewards demo``: train a small CT-CHAT on the recommended reward, from synthetic data to curves.

Train a small report generator by reinforcement learning on this machine. Nothing is downloaded. The run takes less
than two minutes on two free cores.

1. Write synthetic chest-CT studies (the phantom corpus) with their true labels, and with volumes in which each
   abnormality leaves a mark at its location.
2. Warm start: a mini CT-CHAT learns to write the impression from the volume. It has under half a million parameters
   and the architecture of the published model, which has 8 billion. It imitates impressions with statements left out
   at random, and therefore learns to leave findings out. It recognises half of the findings, and guesses most places.
   With --warm-start-steps 1200 --steps 150, it sees most of them, and all measures rise (about five minutes). The
   model is for this demo only, not for patients.
3. Train with GRPO (PolicyModule, Lightning) on the recommended reward, which compares each generated report with the
   reference by rules. The model learns to report findings that it left out after step 2.

The command prints CRG, macro CRG, CRIMSON, CT-FineBench and the F1 of labels on held-out studies before step 3, after
it, and with the volumes of other studies, with bootstrap 95 % intervals, and three reports. It writes to the run
folder: curves (run.html), evaluations, all held-out reports, the policy and the configuration.

A terminal shows the progress of each step. Without a terminal, each step prints a line when it starts. Set
OMP_NUM_THREADS=1 if other programs use the cores: threads that wait for each other make it several times
slower.

Examples:
  rrg-rewards demo
  rrg-rewards demo --output runs/my_demo --steps 200
"""

import argparse
import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrg_rewards.analysis.settings import Seed
from rrg_rewards.cli.options import add_command_parser, add_settings, settings_from
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.settings import setting

if TYPE_CHECKING:
    from rich.table import Table as Grid


_NUM_REPORTS = 3
# Measures of the held-out evaluation: their names in the table, their metrics, and the statistics of these.
MEASURES = {
    "CRG": ("crg", "crg"),
    "macro CRG": ("crg_macro", "crg"),
    "CRIMSON": ("crimson", "score"),
    "CT-FineBench F1": ("ct_finebench", "score"),
    "F1 of labels": ("crg", "label_f1"),
    "ROUGE-L": ("rouge", "score"),
    "words": ("crg", "words"),
}
_CLINICAL = tuple(MEASURES)[:5]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Demo(Seed):
    """The length of the training, and its folder."""

    output: str | None = setting(None, "folder to write (default: runs/demo-DATE-TIME)", metavar="FOLDER")
    steps: int = setting(45, "GRPO steps", metavar="N", minimum=1)
    warm_start_steps: int = setting(300, "steps of the warm start", metavar="N", minimum=1)
    train_rows: int = setting(6000, "studies to train on", metavar="N", minimum=1)
    heldout_rows: int = setting(300, "held-out studies", metavar="N", minimum=2)


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``demo`` to the command line."""
    parser = add_command_parser(commands, "demo", _run, summary, __doc__)
    add_settings(parser, _Demo)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    settings = settings_from(args, _Demo)
    folder = Path(settings.output or time.strftime("runs/demo-%Y%m%d-%H%M%S"))
    if folder.exists():
        raise FileExistsError(f"{folder} exists; choose another --output")
    start = time.monotonic()
    with _quiet_libraries():
        _train(settings, folder, terminal, start)
    evaluation = json.loads((folder / "grpo" / "evaluation.json").read_text(encoding="utf-8"))
    terminal.show(_grid(evaluation, settings.heldout_rows), *_report_lines(folder))
    terminal.show(_verdict(evaluation))
    terminal.note(
        f"{time.monotonic() - start:.0f} s; curves in {folder / 'grpo' / 'run.html'}, all other files next to it"
    )
    return 0


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Silence progress bars and warnings that say nothing of the demo, and keep libraries from contacting the Hub."""
    from rrg_rewards.metrics import UnreadWarning

    # The demo does not need the Hub, but trainers contact it by default.
    os.environ["HF_HUB_OFFLINE"] = "1"
    for library in ("transformers", "datasets"):
        require(f"{library}.utils.logging", extra="demo").disable_progress_bar()
    for library in ("transformers", "lightning.pytorch", "lightning.fabric"):
        # Lightning sets the level of its loggers when it is imported.
        require(library, extra="demo")
        logging.getLogger(library).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.filterwarnings("ignore", module="lightning")
        # A policy that has hardly learned writes words in any order.
        warnings.simplefilter("ignore", UnreadWarning)
        yield


@contextmanager
def _stage(terminal: Terminal, start: float, name: str, description: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of a stage; without a terminal, print its name and its description."""
    if terminal.is_interactive:
        with terminal.progress(name) as progress:
            yield progress
        return
    terminal.note(f"{name}: {description} ({time.monotonic() - start:.0f} s elapsed)")
    yield lambda finished, added: None  # noqa: ARG005 (as a progress bar)


def _train(settings: _Demo, folder: Path, terminal: Terminal, start: float) -> None:
    require("trl", extra="demo")
    from rrg_rewards.recipes import policy, sft
    from rrg_rewards.recipes.ct_chat.phantom import write_corpus, write_model

    rows = settings.train_rows, settings.heldout_rows
    with _stage(
        terminal, start, "phantom corpus", "write {} training and {} held-out studies".format(*rows)
    ) as progress:
        write_corpus(folder, *rows, seed=settings.seed, progress=progress)
    tables = {"dataset": folder / "train.jsonl", "heldout_file": folder / "heldout.jsonl", "seed": settings.seed}
    warm_start = {
        "config": "ct_chat/mini_sft",
        "model_name_or_path": write_model(folder, settings.seed),
        "output_dir": folder / "sft",
        "max_steps": settings.warm_start_steps,
        **tables,
    }
    reinforcement = {
        "config": "ct_chat/mini_policy",
        "model_name_or_path": folder / "sft",
        "output_dir": folder / "grpo",
        "max_steps": settings.steps,
        "heldout_rows": settings.heldout_rows,
        **tables,
    }
    steps = f"imitate abridged impressions for {settings.warm_start_steps} steps"
    with _stage(terminal, start, "warm start", steps) as progress:
        sft.finish(sft.run(*sft.parse(warm_start), progress=progress).accelerator)
    steps = f"evaluate, train on the recommended reward for {settings.steps} steps, evaluate"
    with _stage(terminal, start, "GRPO", steps) as progress:
        policy.run(*policy.parse(reinforcement), progress=progress)


def _grid(evaluation: Mapping[str, Any], rows: int) -> "Grid":
    from rrg_rewards.utilities.grids import printed_table

    stages, parts = ("before", "after", "change", "images_of_others"), []
    for name, (metric, statistic) in MEASURES.items():
        cells = (_cell(evaluation[stage][metric][statistic]) for stage in stages)
        parts.append((name, *(cell.replace(" (", "\n(", 1) for cell in cells)))
    title = f"{rows} held-out studies, greedy decoding, bootstrap 95 % intervals"
    return printed_table(title, ("", *(stage.replace("_", " ") for stage in stages)), [parts])


def _cell(interval: Mapping[str, float | None]) -> str:
    numbers = [interval[name] for name in ("estimate", "low", "high")]
    estimate, low, high = ("-" if number is None else f"{number:.3f}" for number in numbers)
    return f"{estimate} ({low} to {high})"


def _report_lines(folder: Path) -> list[str]:
    """Return the first held-out studies with several findings, and the reports of the policy before and after."""
    from rrg_rewards.data import read_table

    before, after = (read_table(folder / "grpo" / f"heldout_{stage}.jsonl") for stage in ("before", "after"))
    texts = (before.column("impression"), before.column("report"), after.column("report"))
    lines = []
    chosen = [row for row, labels in enumerate(before.column("labels")) if sum(labels) > 2][:_NUM_REPORTS]
    for row in chosen:
        reference, old, new = (column[row] for column in texts)
        lines += ["", f"reference: {reference}", f"before:    {old}", f"after:     {new}"]
    return lines


def _verdict(evaluation: Mapping[str, Any]) -> str:
    changes = {name: evaluation["change"][metric][statistic] for name, (metric, statistic) in MEASURES.items()}
    # A change that a few studies do not determine has no interval.
    rose = [name for name in _CLINICAL if (changes[name]["low"] or 0) > 0]
    worse = ", ".join(name for name in _CLINICAL if (changes[name]["high"] or 0) < 0)
    others = _cell(evaluation["images_of_others"]["crg_macro"]["crg"])
    control = f"With the volumes of other studies, macro CRG is {others}; guessing scores 1/3."
    found = f"{', '.join(rose)} rose" if rose else "No clinical measure clearly rose; try more --steps"
    return f"\n{found}{f'; {worse} fell' if worse else ''} (intervals of the change without 0). {control}"
