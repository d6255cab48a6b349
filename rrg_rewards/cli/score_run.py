"""Scoring of report pairs in batches, and the table of their scores."""

import argparse
import pickle
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from tempfile import TemporaryFile
from typing import Any

from rrg_rewards.cli.options import with_new_columns
from rrg_rewards.cli.score_engine import best_reference, scored_batches
from rrg_rewards.cli.score_pairs import PairReader
from rrg_rewards.cli.score_totals import MetricTotals
from rrg_rewards.cli.summary import per_report_columns
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.data.tables.encoders import TableEncoder
from rrg_rewards.data.tables.table import STANDARD, Table
from rrg_rewards.data.tables.writers import open_table, partial_path
from rrg_rewards.metrics.references import signature_with_references
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.pages.page import Page
from rrg_rewards.pages.score_page import ScoreRows, score_page

__all__ = ["ScoreRun"]


class ScoreRun:
    """Scores report pairs once, batch by batch, and writes the table of ``--output``.

    Args:
        args: Arguments of the command.
        pairs: The report pairs, after their check.
        terminal: The terminal.
    """

    def __init__(self, args: argparse.Namespace, pairs: PairReader, terminal: Terminal) -> None:
        self._args = args
        self._pairs = pairs
        self._terminal = terminal
        self._totals = {name: MetricTotals(metric) for name, metric in pairs.metrics.items()}
        self._page_rows = None if args.html is None else ScoreRows(args.with_text)
        self.is_complete = False
        """Whether all pairs are scored."""

    def write(self) -> None:
        """Score all pairs, and write their table if ``--output`` is set.

        If the table cannot be written, the other pairs are scored nevertheless, and the error is raised at the end. If
        scoring fails, the rows scored so far are kept.
        """
        with self._terminal.progress("scoring") as report:
            report(0, self._pairs.rows * len(self._totals))
            if self._args.output is None:
                deque(self._scored(report), maxlen=0)
                return
            tables = self._tables_at_end(report) if self._relative else self._tables(report)
            try:
                self._write(tables)
            except BrokenPipeError:
                raise
            except Exception:
                # Does nothing if it is the scoring that failed.
                deque(tables, maxlen=0)
                raise

    def summaries(self) -> dict[str, Any]:
        """Return the summary of each metric; warn of failures of judges."""
        for name, totals in self._totals.items():
            failed = {kind: count for kind, count in totals.failed.items() if count}
            if failed:
                kinds = ", ".join(f"{kind} {count}" for kind, count in failed.items())
                self._terminal.warn(
                    f"the judge of {name} failed on {sum(failed.values())} of {totals.pairs} report pairs ({kinds}); "
                    f"the column {name}_failure of --output gives the reasons"
                )
        return {name: self._summary(name) for name in self._totals}

    def page(self, summary: Mapping[str, Any]) -> Page:
        """Return the page of ``--html``.

        Args:
            summary: Content of ``--json``.
        """
        assert self._page_rows is not None
        for name in self._relative:
            self._page_rows.rescale(name, self._pairs.metrics[name].rescaling(self._totals[name].statistics))
        return score_page(summary, self._page_rows)

    def _summary(self, name: str) -> dict[str, Any]:
        summary = self._totals[name].summary(self._args.bootstrap, self._args.seed)
        summary["signature"] = signature_with_references(self._pairs.metrics[name], best_reference(self._args))
        return summary

    @property
    def _relative(self) -> list[str]:
        """Metrics whose scores depend on all pairs of the corpus."""
        return [name for name, metric in self._pairs.metrics.items() if not metric.compares_across_batches]

    def _scored(self, report: Any) -> Iterator[tuple[Table, dict[str, Scores]]]:
        """Score the batches, and add the scores to the totals."""
        for batch, scores in scored_batches(self._args, self._pairs.metrics, self._pairs, report):
            for name, totals in self._totals.items():
                totals.add(scores[name])
            if self._page_rows is not None:
                names = None if self._args.id_column is None else batch.table.column(self._args.id_column)
                self._page_rows.add(scores, batch.predictions, batch.references, names)
            yield batch.table, scores
        self.is_complete = True

    def _tables(self, report: Any) -> Iterator[Table]:
        """Yield the rows of the output while pairs are scored."""
        for table, scores in self._scored(report):
            yield self._with_columns(table, scores)

    def _tables_at_end(self, report: Any) -> Iterator[Table]:
        """Score all pairs; then yield the rows of the output, also if scoring failed after some rows."""
        self._terminal.note(
            f"{self._args.output} is written after the last row, because scores of {', '.join(self._relative)} depend "
            "on all references; a prior, as in --set crg.prior=0.2, makes them independent"
        )
        failure: BaseException | None = None
        batches = 0
        with TemporaryFile() as kept:
            try:
                for _, scores in self._scored(report):
                    pickle.dump(scores, kept)
                    batches += 1
            except (Exception, KeyboardInterrupt) as error:
                failure = error
            kept.seek(0)
            # The input has more batches if scoring failed.
            rescale = {name: self._pairs.metrics[name].rescaling(one.statistics) for name, one in self._totals.items()}
            for _, table in zip(range(batches), self._pairs.batches, strict=False):
                relative: dict[str, Scores] = pickle.load(kept)
                yield self._with_columns(table, {name: rescale[name](one) for name, one in relative.items()})
        if failure is not None:
            raise failure

    def _with_columns(self, table: Table, scores: dict[str, Scores]) -> Table:
        columns: dict[str, list[Any]] = {}
        types: dict[str, str] = {}
        for name, one in scores.items():
            found = per_report_columns(name, one)
            columns.update(found)
            # The score and its parts come first, then explanations. A batch may have only missing cells.
            types.update(
                {
                    self._args.prefix + column: "double" if place <= len(one.details) else "string"
                    for place, column in enumerate(found)
                }
            )
        # Warn of replaced columns once.
        terminal = Terminal(quiet=True) if table.first else self._terminal
        wider = with_new_columns(table, columns, self._args.prefix, terminal)
        return replace(wider, types={**wider.types, **types})

    def _write(self, tables: Iterator[Table]) -> None:
        args, writer = self._args, None
        try:
            with open_table(args.output, args.format, args.overwrite, self._pairs.types, keep_partial=True) as writer:
                for table in tables:
                    writer.write(table)
        except BrokenPipeError:
            raise
        except BaseException:
            self._say_what_is_kept(writer)
            raise

    def _say_what_is_kept(self, writer: TableEncoder | None) -> None:
        output = self._args.output
        kept = "standard output" if output == STANDARD else partial_path(output)
        if writer is not None and writer.rows and (output == STANDARD or partial_path(output).exists()):
            self._terminal.warn(f"{kept} contains the scores of the first {writer.rows} of {self._pairs.rows} rows")
