"""Where a command computes: in this process, or on a Ray cluster whose workers read and write the table."""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rrg_rewards.cli.options import Outputs, add_settings, settings_from
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.settings import SettingError, setting

if TYPE_CHECKING:
    from rrg_rewards.analysis.batch_scoring import ScoredBatches, Scorer
    from rrg_rewards.analysis.outcomes import RunUsage
    from rrg_rewards.analysis.pairs import PairBatch
    from rrg_rewards.cli.terminal import Terminal
    from rrg_rewards.integrations.ray_cluster import Cluster
    from rrg_rewards.integrations.ray_tables import TableFiles
    from rrg_rewards.integrations.ray_works import JudgeWork
    from rrg_rewards.metrics.base import ReportMetric
    from rrg_rewards.metrics.scores import Scores
    from rrg_rewards.utilities.run_log import Progress

FOLDER_HELP = """\
With --engine ray and a folder as --output ({folder}), the workers of a Ray cluster read the table, a file or a folder
of files, and write {files} to {folder}rows. Repeat the same command if it was killed: finished rows are not
computed again."""
"""Part of the descriptions of commands."""


@dataclass(frozen=True)
class Engine:
    """Where to compute.

    Args:
        engine: This process (``local``), or Ray.
        address: Address of a Ray cluster.
        workers: Number of workers.
        gpus_per_worker: GPUs of each worker on Ray.
    """

    engine: Literal["local", "ray"] = setting("local", "where to compute (default: local, this process)")
    address: str | None = setting(
        None, "Ray cluster, for example auto (default: a new one on this machine)", metavar="ADDRESS"
    )
    workers: int | None = setting(
        None,
        "processes that score at the same time, on one core each, with the same results as one; 0 for one for each "
        "core (default: 1; on Ray, one for each CPU). Not for models and language models, except on Ray",
        metavar="N",
        minimum=0,
    )
    gpus_per_worker: float | None = setting(None, "GPUs of each process on Ray (default: 0)", metavar="X")

    def __post_init__(self) -> None:
        for option in ("address", "gpus_per_worker"):
            if self.engine == "local" and getattr(self, option) is not None:
                raise SettingError(option, "requires --engine ray")

        if self.engine == "ray":
            require("ray", extra="ray")

    def writes_folder(self, output: str | None, format_name: str | None = None) -> bool:
        """Return whether workers write the output, a folder: one that exists, or a name without ending or with a slash.

        Args:
            output: The output.
            format_name: Format of the output, if it is named; a name without an ending is then that of a file.
        """
        if self.engine == "local" or output is None or output == "-":
            return False
        return output.endswith("/") or Path(output).is_dir() or not (Path(output).suffix or format_name)

    def check_folder(self, args: argparse.Namespace) -> bool:
        """Return whether the command runs on Ray, where its output must be a folder.

        Raises:
            SettingError: If it is a file, or an option does not apply to a folder.
        """
        if self.engine == "local":
            return False
        if not self.writes_folder(args.output):
            raise SettingError("output", f"must be a folder with --engine ray, such as results/, got {args.output}")
        summary_outputs(args)
        return True

    def cluster(self) -> "Cluster":
        """Return the cluster for :func:`~rrg_rewards.integrations.ray_tables.run_table`."""
        from rrg_rewards.integrations.ray_cluster import Cluster

        return Cluster(workers=self.workers or None, address=self.address, num_gpus=self.gpus_per_worker or 0)

    def scorer(self, usage: "RunUsage") -> "Scorer":
        """Return the function that scores batches; ``usage`` gets what judges on other machines use."""
        from rrg_rewards.analysis.batch_scoring import score_batches

        if self.engine == "local":
            return partial(score_batches, workers=1 if self.workers is None else self.workers)
        return partial(self._score_on_ray, usage)

    def _score_on_ray(
        self,
        usage: "RunUsage",
        metrics: "Mapping[str, ReportMetric]",
        batches: "Iterable[PairBatch]",
        progress: "Progress",
        best: bool | None,
    ) -> "ScoredBatches":
        from rrg_rewards.integrations.ray import RayScorers

        gpus = self.gpus_per_worker or 0
        scores: dict[str, Scores]
        with RayScorers(metrics, self.workers or None, self.address, gpus, best, usage) as scorers:
            for batch, scores in scorers.scored(batches):
                progress(len(batch.table) * len(batch.context), 0)
                yield batch, scores


def add_engine_options(parser: argparse.ArgumentParser, *, workers: bool = False) -> None:
    """Add the options of several machines.

    Args:
        parser: Parser of the command.
        workers: Whether the command has no other option ``--workers``.
    """
    remote = parser.add_argument_group("several machines (extra ray)")
    add_settings(remote, Engine, "engine", "address", *(["workers"] if workers else []), "gpus_per_worker")


def table_files(args: argparse.Namespace) -> "TableFiles":
    """Return the files of the table of a command."""
    from rrg_rewards.integrations.ray_tables import TableFiles

    return TableFiles(path=args.table, format=args.format, delimiter=args.delimiter)


def run_judge(work: "JudgeWork", engine: Engine, args: argparse.Namespace, terminal: "Terminal") -> int:
    """Let workers ask a judge about the rows of a table, and return the exit code.

    Args:
        work: The judge and its task.
        engine: Where workers run.
        args: Arguments of the command.
        terminal: Receives notes and warnings.
    """
    from rrg_rewards.integrations.ray_works import judge_files, outcome_summary

    outcome = judge_files(work, table_files(args), args.output, engine.cluster(), log=terminal)
    summary_outputs(args).write_summary(outcome_summary(outcome, work.judge))
    terminal.note(f"{outcome.done:,} of {outcome.rows:,} rows are done, {outcome.held:,} of them before")
    return 0 if outcome.done > outcome.held or outcome.held == outcome.rows else 1


def summary_outputs(args: argparse.Namespace) -> Outputs:
    """Return the outputs of a command whose output is a folder, after a check of its summary."""
    outputs = settings_from(args, Outputs)
    Outputs(json=outputs.json, overwrite=outputs.overwrite).check()
    for option in ("dry_run", "html", "spreadsheet_safe", "max_pairs", "max_reports"):
        if getattr(args, option, None):
            raise SettingError(option, "does not apply to a folder that workers write; write a file")
    return outputs
