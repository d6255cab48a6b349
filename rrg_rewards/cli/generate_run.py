"""The run of ``rrg-rewards generate``: prompts, batches, and the reports that an interrupted run keeps."""

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.cli.generate_backends import BATCH_SIZES, ReportBackend, load_backend
from rrg_rewards.cli.options import UsageError
from rrg_rewards.data.tables.appending import AppendedLines, read_whole_lines
from rrg_rewards.data.tables.table import Table, is_missing
from rrg_rewards.models.ct_chat.system_prompt import MISSING_SYSTEM_PROMPT

__all__ = ["GenerationRun", "read_rows"]

# Settings that change no report.
_NOT_OF_THE_REPORTS = {"run", "parser", "more", "quiet", "traceback", "output", "json", "format", "overwrite", "device"}


def read_rows(table: Table, args: argparse.Namespace) -> list[dict[str, Any] | None]:
    """Return the prompt and the image of each row; ``None`` for a row without input or image.

    Raises:
        TableError: If a column is missing.
        FeatureError: If a feature file is missing or torn.
    """
    from rrg_rewards.recipes._arguments import DataArguments, make_prompt, prompt_columns
    from rrg_rewards.utilities.features import check_features

    arguments = DataArguments(
        dataset=str(args.table),
        input_column=args.input_column,
        image_column=args.image_column,
        system_prompt=args.system_prompt,
        prompt_template=args.prompt_template,
        conversational=not args.plain,
    )
    system, columns = arguments.system_text, {name: table.column(name) for name in sorted(prompt_columns(arguments))}
    images = table.column(args.image_column) if args.image_column else [None] * len(table)
    folder = Path(args.table).parent
    rows: list[dict[str, Any] | None] = []
    for index, image in enumerate(images):
        cells = {name: column[index] for name, column in columns.items()}
        if any(map(_is_blank, cells.values())) or (args.image_column and _is_blank(image)):
            rows.append(None)
            continue
        path = {} if args.image_column is None else {"image": str(folder / image)}
        for file in path.values():
            check_features(file)
        rows.append({"prompt": make_prompt(cells, arguments, system), **path})
    return rows


def _is_blank(cell: Any) -> bool:
    return is_missing(cell) or not str(cell).strip()


class GenerationRun:
    """Generates reports in batches and appends each to ``OUTPUT.partial.jsonl``.

    A batch contains the same rows in every run, so that a resumed run gives the reports of an uninterrupted one.

    Args:
        args: Arguments of the command.
        rows: Rows of :func:`read_rows`.

    Raises:
        UsageError: If the partial output is of other settings or rows.
    """

    def __init__(self, args: argparse.Namespace, rows: Sequence[dict[str, Any] | None]) -> None:
        self.partial = Path(f"{args.output}.partial.jsonl")
        self._args = args
        self._rows = rows
        self._settings = _digest(args, rows)
        self._done = self._read()

    @property
    def num_held(self) -> int:
        """Number of reports of an earlier, interrupted run."""
        return len(self._done)

    def run(
        self, report: Callable[[int, int], None], warn: Callable[[str], None]
    ) -> tuple[list[str | None], list[bool | None]]:
        """Generate the missing reports.

        Args:
            report: Function that :meth:`Terminal.progress` yields.
            warn: Function that prints a warning.

        Returns:
            For each row its report, and whether it was cut off; ``None`` for rows without input.
        """
        size = self._args.batch_size or BATCH_SIZES[self._args.backend]
        todo = [row for row, content in enumerate(self._rows) if content is not None]
        report(self.num_held, len(todo))
        if self.num_held < len(todo):
            backend = load_backend(self._args)
            if getattr(backend.config, "uses_system_prompt", False) and self._args.system_prompt is None:
                warn(MISSING_SYSTEM_PROMPT)
            with AppendedLines(self.partial) as lines:
                for start in range(0, len(todo), size):
                    report(self._complete(backend, todo[start : start + size], lines), 0)
        found = [self._done.get(row, (None, None)) for row in range(len(self._rows))]
        return [text for text, _ in found], [is_cut for _, is_cut in found]

    def _complete(self, backend: ReportBackend, batch: Sequence[int], lines: AppendedLines) -> int:
        """Generate the reports of a batch, unless all are held; return the number of new ones."""
        missing = [row for row in batch if row not in self._done]
        if not missing:
            return 0
        contents = [content for row in batch if (content := self._rows[row]) is not None]
        reports = backend.generate(contents, [self._args.seed + row for row in batch])
        for row, (text, is_finished) in zip(batch, reports, strict=True):
            if row in missing:
                self._done[row] = (text, not is_finished)
                lines.append({"row": row, "prediction": text, "truncated": not is_finished, "settings": self._settings})
        return len(missing)

    def _read(self) -> dict[int, tuple[str, bool]]:
        held = read_whole_lines(self.partial)
        if held is None:
            return {}
        if set(held.column("settings")) != {self._settings}:
            raise UsageError(
                f"{self.partial} is of an interrupted run with other settings or rows; delete it, or choose another "
                "--output"
            )
        columns = (held.column(name) for name in ("row", "prediction", "truncated"))
        return {row: (text, is_cut) for row, text, is_cut in zip(*columns, strict=True)}


def _digest(args: argparse.Namespace, rows: Sequence[Mapping[str, Any] | None]) -> str:
    settings = {name: str(value) for name, value in vars(args).items() if name not in _NOT_OF_THE_REPORTS}
    return hashlib.sha256(json.dumps([settings, rows], sort_keys=True).encode()).hexdigest()[:16]
