"""``rrg-rewards demo``: a small CT-CHAT gets better at reports, from nothing to curves, on this machine."""

import argparse
import json
import logging
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import add_common_options, new_parser_options, positive_int
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.imports import require

if TYPE_CHECKING:
    from rich.table import Table as Grid

__all__ = ["add_command"]

_DESCRIPTION = """\
Reinforcement learning of report generation on this machine, without a download, in a few minutes on two CPU cores.

1. Synthetic chest-CT studies (the phantom corpus) are written, with their true labels and with volumes in which each
   abnormality leaves a mark at its place.
2. A mini CT-CHAT of under half a million parameters, built as the published model of 8 billion, learns to write the
   impression from the volume, by imitating impressions that leave statements out at random. It learns to leave findings
   out. It is a model for this demo, not one for patients.
3. GRPO (TRL) on the CRG reward, read off its reports by the rule labeler, mends that.

Printed: CRG, precision and recall on held-out studies before and after, and with the volumes of other studies, with
bootstrap 95 % intervals, and three reports. Written to the run folder: curves as PNG, the evaluations, all held-out
reports, the policy, the configuration.
"""

_EXAMPLE = """\
examples:
  rrg-rewards demo
  rrg-rewards demo --output runs/my_demo --steps 200
"""

_NUM_REPORTS = 3


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``demo`` to the command line."""
    parser = commands.add_parser(
        "demo",
        help="train a small CT-CHAT on a CRG reward, here and now",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        **new_parser_options(),
    )
    parser.add_argument("--output", metavar="FOLDER", type=Path, help="run folder (default: runs/demo-DATE-TIME)")
    parser.add_argument("--steps", type=positive_int, default=100, help="GRPO steps (default: 100)")
    parser.add_argument(
        "--warm-start-steps", type=positive_int, default=600, help="steps of imitation before (default: 600)"
    )
    parser.add_argument("--train-rows", type=positive_int, default=8000, help="studies to train on (default: 8000)")
    parser.add_argument("--heldout-rows", type=positive_int, default=300, help="studies held out (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything (default: 0)")
    add_common_options(parser)
    parser.set_defaults(run=_demo, parser=parser)


def _demo(args: argparse.Namespace, terminal: Terminal) -> int:
    folder = args.output or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    if folder.exists():
        raise FileExistsError(f"{folder} exists; choose another --output")
    start = time.monotonic()
    with _only_our_own_words():
        _train(args, folder, terminal)
    evaluation = json.loads((folder / "grpo" / "evaluation.json").read_text(encoding="utf-8"))
    terminal.show(_grid(evaluation, args.heldout_rows), *_report_lines(folder))
    terminal.show(_verdict(evaluation))
    terminal.note(
        f"{time.monotonic() - start:.0f} s; curves in {folder / 'grpo' / 'curve_crg.png'}, all else beside it"
    )
    return 0


@contextmanager
def _only_our_own_words() -> Iterator[None]:
    """Keep the bars and warnings of the libraries below from the terminal, and the libraries from the Hub."""
    # Nothing here needs the Hub, and trainers report their use to it unless told not to.
    os.environ["HF_HUB_OFFLINE"] = "1"
    for library in ("transformers", "datasets"):
        require(f"{library}.utils.logging", extra="demo").disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def _train(args: argparse.Namespace, folder: Path, terminal: Terminal) -> None:
    require("trl", extra="demo")
    require("matplotlib", extra="demo")
    from rrg_rewards.recipes import grpo, sft
    from rrg_rewards.recipes._parse import command_line
    from rrg_rewards.recipes.ct_chat.phantom import write_corpus, write_model

    with terminal.progress("making phantom volumes") as progress:
        write_corpus(folder, args.train_rows, args.heldout_rows, seed=args.seed, progress=progress)
    tables = {"dataset": folder / "train.jsonl", "heldout_file": folder / "heldout.jsonl", "seed": args.seed}
    warm_start = {
        "config": "ct_chat/mini_sft",
        "model_name_or_path": write_model(folder, args.seed),
        "output_dir": folder / "sft",
        "max_steps": args.warm_start_steps,
        **tables,
    }
    with terminal.progress("imitating abridged impressions") as progress:
        sft.finish(sft.run(*sft.parse(command_line(warm_start)), progress=progress).accelerator)
    reinforcement = {
        "config": "ct_chat/mini_grpo_crg",
        "model_name_or_path": folder / "sft",
        "output_dir": folder / "grpo",
        "max_steps": args.steps,
        "heldout_rows": args.heldout_rows,
        **tables,
    }
    with terminal.progress("GRPO on CRG") as progress:
        grpo.finish(grpo.run(*grpo.parse(command_line(reinforcement)), progress=progress).accelerator)


def _grid(evaluation: Mapping[str, Any], rows: int) -> "Grid":
    from rich.table import Table as Grid

    grid = Grid(title=f"{rows} held-out studies, greedy decoding, bootstrap 95 % intervals", title_justify="left")
    stages = ("before", "after", "change", "images_of_others")
    for heading in ("", *stages):
        grid.add_column(heading.replace("_", " "), justify="left" if not heading else "right")
    for name in ("crg", "precision", "recall", "predicted_positives", "words"):
        cells = (_cell(evaluation[stage]["crg"][name]) for stage in stages)
        grid.add_row(name.replace("_", " "), *(cell.replace(" (", "\n(", 1) for cell in cells))
    return grid


def _cell(interval: Mapping[str, float | None]) -> str:
    numbers = [interval[name] for name in ("estimate", "low", "high")]
    estimate, low, high = ("-" if number is None else f"{number:.3f}" for number in numbers)
    return f"{estimate} ({low} to {high})"


def _report_lines(folder: Path) -> list[str]:
    """The first held-out studies with several findings, and what the policy wrote before and after."""
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
    crg = evaluation["change"]["crg"]["crg"]
    others = evaluation["images_of_others"]["crg"]["crg"]
    reads = f"With the volumes of other studies it is {_cell(others)}; guessing gives about 1/3."
    if crg["low"] > 0:
        return f"\nCRG rose by {_cell(crg)}: more than its interval. {reads}"
    return f"\nCRG changed by {_cell(crg)}: no more than its interval; try more --steps. {reads}"
