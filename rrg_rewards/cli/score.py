r"""``rrg-rewards score``: score report pairs, per pair and over the corpus.

Score predicted reports against reference reports, and print the corpus value of each metric with a bootstrap 95 %
interval. --output writes the input columns and, for each pair, its score, the parts of the score and explanations. The
crg score of a pair is its contribution; if the mean contribution is m, the corpus CRG is 1/(2 - m).

For crimson, a judge decides which findings a report misses, invents or misdescribes, and how much each error matters:
rules, a language model (--judge), or rules and a language model for the pairs that they cannot read (cascade:JUDGE). It
also uses the columns age, sex and indication that --context names, as in --context age=COLUMN. A pair on which a judge
fails is unscorable, with the reason in a column of --output. What judges have used is printed at the end.

It prints the number of distinct texts, and warns if the references have far more. Beside each value it prints the value
if every study had the same text: the system's commonest text, if it occurs twice, or a normal chest report.

A pair with a missing prediction, or a missing or blank reference, is unscorable: its cells are empty, and it is counted
and left out of the corpus value. An empty CSV cell is missing; see --missing-prediction.

All rows are checked before the first one is scored, and are kept in a temporary file meanwhile. Memory grows by about
0.2 kB a row for two metrics, from which intervals and distinct texts are computed. --output is written while rows are
scored; for crg without a prior it is written at the end, because contributions depend on all references. If the run
fails, the rows scored so far are kept in NAME.partial.csv. - reads standard input and writes standard output.

--layout vlm3d evaluates the predictions.json of the VLM3D challenge as its official scripts do, without --metrics:
--references is ground_truth.json, --label-table ground_truth.csv, and --labeler radbert:CHECKPOINT labels the
predictions. --json writes the official metrics.json, and --output the labels of the predictions.

With --engine ray, the workers of a Ray cluster score the table, a file or a folder of files, and --output is a folder,
which gets Parquet files of 1024 rows in rows/. Repeat the same command if it was killed: finished files are not
computed again. There is no interval, and crg needs a prior, because its scores depend on all pairs.

--dry-run scores nothing and sends nothing. For crimson with a language model it estimates requests, tokens, cost and
time, of all runs, without what the cache of the judge may hold; for ct_finebench and for labels by a language model
(--labeler judge:SCHEMA) it says how many requests there are at most.

Examples:
  rrg-rewards score pairs.csv --metrics crg,crimson --output scores.csv --json summary.json --html scores.html
  rrg-rewards score pairs.csv --metrics crg --prediction-column Pred --reference-column GT --labeler rules:chexbert
  rrg-rewards score pairs.csv --metrics crg --reference-label-prefix GT_     (labels set by hand: GT_Cardiomegaly, ...)
  rrg-rewards score submission.json --prediction-column report --references truth.csv --reference-column Findings_EN \
      --key input_image_name=VolumeName --metrics crg
  rrg-rewards score predictions.json --prediction-column model_prediction --metrics bleu --missing-section None \
      --reference-column "Findings: {section_findings} Impression: {section_impression}"
  generate-reports | rrg-rewards score - --format jsonl --metrics bleu,rouge --output - | head
  rrg-rewards score pairs.csv --metrics crimson --context age=PatientAge \
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1}"
  rrg-rewards score pairs.csv --metrics crimson --judge cascade:my_judge.yaml --set crimson.runs=5 --dry-run
  rrg-rewards score pairs.csv --metrics my_metrics:overlap --set my_metrics:overlap.higher_is_better=false
  rrg-rewards score pairs/ --metrics crg,rouge --set crg.prior=0.2 --engine ray --address auto --workers 64 \
      --output scores/ --json summary.json

exit codes: 0 success (a warning counts pairs on which a judge failed); 1 error, or no pair has a score, or a metric has
none because its judge failed (outputs are written); 2 wrong command line; 130 interrupted
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rrg_rewards.analysis.settings import MetricChoice, PairColumns, ScoreSettings, VLM3DSettings
from rrg_rewards.cli.options import (
    DryRun,
    Outputs,
    PageOptions,
    RunInstead,
    UsageError,
    add_command_parser,
    add_settings,
    add_shared_options,
    add_table_argument,
    destination,
    settings_from,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.settings import SettingError, Settings, setting
from rrg_rewards.utilities.worker_pool import prepare_workers

if TYPE_CHECKING:
    from rrg_rewards.analysis.report_pairs import PairBatch, PairReader
    from rrg_rewards.analysis.scoring import Scoring
    from rrg_rewards.metrics.base import ReportMetric
    from rrg_rewards.metrics.scores import Scores
    from rrg_rewards.pages.score_page import ScoreRows


def _list(args: argparse.Namespace, terminal: Terminal) -> int:  # noqa: ARG001 (as every command)
    """Show the metrics."""
    from rrg_rewards.metrics.registry import available_metrics

    for name in available_metrics():
        terminal.show(name, *_description(name))
    return 0


def _description(name: str) -> list[str]:
    """Return what a metric needs, its context and its options, as lines."""
    from rrg_rewards.metrics.registry import metric_maker

    try:
        maker = metric_maker(name)
    except (ImportError, ValueError) as error:
        # A broken plug-in must not hide the other metrics.
        return [f"  error    {error}"]
    needs = [f"--set {name}.{option}=..." for option in maker.required]
    defaults = {"labeler": "rules:ct_rate", "judge": "rules"}
    return [
        f"  needs    {', '.join(needs) or 'nothing'}",
        *(f"  {option:8} {default} (default)" for option, default in defaults.items() if option in maker.options),
        f"  context  {', '.join(maker.context) or 'none'}",
        f"  options  {', '.join(maker.options) or 'none'}",
    ]


@dataclass(frozen=True, eq=False, repr=False)
class _Cluster(Settings):
    """Where to score."""

    engine: Literal["local", "ray"] = setting("local", "where to compute (default: local, this process)")
    address: str | None = setting(
        None, "Ray cluster, for example auto (default: a new one on this machine)", metavar="ADDRESS"
    )
    gpus_per_worker: float | None = setting(
        None, "GPUs of each worker on Ray (default: 0)", metavar="X", minimum=0, maximum=64
    )


@dataclass(frozen=True, eq=False, repr=False)
class _Layout(Settings):
    """The layout of a challenge."""

    layout: Literal["vlm3d"] | None = setting(None, "evaluate a file of predictions as its challenge does")


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``score`` to the command line."""
    parser = add_command_parser(commands, "score", _run, summary, __doc__)
    add_table_argument(parser, "PAIRS", "report pairs")
    add_settings(parser, MetricChoice, "metrics")
    listed = "show the metrics, what each needs, its context and its options, and exit"
    parser.add_argument("--list", action=RunInstead, nargs=0, const=_list, help=listed)
    columns = ("prediction_column", "reference_column", "missing_section", "references", "key")
    add_settings(parser, PairColumns, *columns)
    output = {"default": None, "help": "write the scores of each pair to FILE; - is standard output"}
    add_shared_options(parser, output=output)
    add_settings(parser, PairColumns, "missing_prediction")
    add_metric_options(parser)
    add_settings(parser, ScoreSettings, "bootstrap")
    add_shared_options(parser, "json", "format")
    add_settings(parser, ScoreSettings, "prefix")
    add_shared_options(parser, "overwrite", "spreadsheet_safe")
    add_settings(parser, ScoreSettings, "constant_text", "batch_size", "seed")
    add_settings(parser, DryRun)
    add_settings(parser, PageOptions)
    challenge = parser.add_argument_group("evaluation of the VLM3D challenge")
    add_settings(challenge, _Layout)
    tables = {"label_table": {"required": False, "default": None}}
    add_settings(challenge, VLM3DSettings, "label_table", "prediction_label_table", "no_meteor", **tables)
    add_settings(parser, ScoreSettings, "workers")
    add_settings(parser.add_argument_group("several machines (extra ray)"), _Cluster)


def add_metric_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of metrics, and those of their context and reference labels."""
    add_settings(parser, MetricChoice, "labeler", "judge")
    add_settings(parser, PairColumns, "context")
    add_settings(parser, MetricChoice, "set")
    add_settings(parser, PairColumns, "reference_labels", "reference_label_prefix")


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    if args.layout is not None:
        return _evaluate_vlm3d(args, terminal)
    if not args.metrics:
        raise UsageError("the following arguments are required: --metrics")
    for option in ("label_table", "prediction_label_table", "no_meteor"):
        if getattr(args, option):
            raise SettingError(option, "requires --layout vlm3d")
    if args.engine == "ray":
        return _score_on_ray(args, terminal)
    for option in ("address", "gpus_per_worker"):
        if getattr(args, option) is not None:
            raise SettingError(option, "requires --engine ray")
    if args.workers != 1:
        prepare_workers()
    from rrg_rewards.analysis.metric_choice import make_metrics
    from rrg_rewards.analysis.report_pairs import opened_pairs
    from rrg_rewards.analysis.scoring import Scoring

    outputs, page = settings_from(args, Outputs), settings_from(args, PageOptions)
    outputs.check(html=page.html)
    metrics = make_metrics(settings_from(args, MetricChoice))
    columns, settings = settings_from(args, PairColumns), settings_from(args, ScoreSettings)
    with opened_pairs(
        args.table, metrics, columns, settings.batch_size, format=args.format, sink=outputs.sink, log=terminal
    ) as pairs:
        if args.dry_run:
            return _show_estimates(pairs, metrics, outputs, terminal)
        rows = None if page.html is None else _page_rows(page.with_text, pairs.rows)
        keep = None if rows is None else _keeper(rows, columns.id_column)
        scoring = Scoring(pairs, settings, keep=keep, log=terminal)
        try:
            scoring.run(outputs.sink)
        finally:
            # A full disk must not lose the result of a long run.
            if scoring.is_complete:
                _show_results(scoring, rows, outputs, page, terminal)
    return terminal.exit_code(scoring.errors())


def _show_results(
    scoring: "Scoring", rows: "ScoreRows | None", outputs: Outputs, page: PageOptions, terminal: Terminal
) -> None:
    """Print the summary of all pairs, and write it and the page to the files of the options."""
    from rrg_rewards.analysis.tables import score_grids
    from rrg_rewards.data.tables.writers import write_json

    summary = scoring.summary()
    if scoring.has_scores:
        terminal.show(*score_grids(summary), stderr=outputs.hides_results)
    if outputs.json is not None:
        write_json(summary, outputs.json, outputs.overwrite)
    if rows is not None:
        from rrg_rewards.pages.score_page import score_page

        for name, rescale in scoring.rescaling().items():
            rows.rescale(name, rescale)
        page.write(score_page(summary, rows), outputs.overwrite)


def _score_on_ray(args: argparse.Namespace, terminal: Terminal) -> int:
    """Let the workers of a cluster score and write the table."""
    for option in ("dry_run", "html", "spreadsheet_safe"):
        if getattr(args, option):
            raise SettingError(option, "does not apply to --engine ray")
    if args.output is None or args.output == "-" or Path(args.output).suffix:
        raise SettingError("output", f"must be a folder with --engine ray, such as scores/, got {args.output}")
    outputs = Outputs(json=args.json, overwrite=args.overwrite)
    outputs.check()
    from rrg_rewards.analysis.metric_choice import make_metrics
    from rrg_rewards.analysis.tables import score_grids
    from rrg_rewards.integrations.ray import score_files

    summary = score_files(
        args.table,
        args.output,
        make_metrics(settings_from(args, MetricChoice)),
        columns=settings_from(args, PairColumns),
        settings=settings_from(args, ScoreSettings),
        format=args.format,
        address=args.address,
        num_gpus=args.gpus_per_worker or 0,
        log=terminal,
    )
    if any(entry["scored"] for entry in summary["metrics"].values()):
        terminal.show(*score_grids(summary), stderr=outputs.hides_results)
    outputs.write_summary(summary)
    return terminal.exit_code(summary["errors"])


def _page_rows(with_text: bool, pairs: int) -> "ScoreRows":
    from rrg_rewards.pages.score_page import ScoreRows

    return ScoreRows(with_text, pairs)


# The options of an evaluation with a layout; the others belong to scores of pairs.
_LAYOUT_OPTIONS = {
    *("table", "layout", "references", "label_table", "prediction_label_table", "labeler", "judge", "batch_size"),
    *("no_meteor", "output", "json", "format", "overwrite", "quiet", "traceback", "run", "parser", "more"),
}


def _evaluate_vlm3d(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.analysis.tables import vlm3d_grids
    from rrg_rewards.analysis.vlm3d import evaluate_vlm3d

    for option, value in vars(args).items():
        if option not in _LAYOUT_OPTIONS and value != args.parser.get_default(option):
            raise SettingError(option, f"does not apply to --layout {args.layout}")
    if args.table == "-":
        raise UsageError("argument PAIRS: must be a file with --layout, got -")
    outputs = settings_from(args, Outputs)
    outputs.check()
    found = evaluate_vlm3d(args.table, settings_from(args, VLM3DSettings), terminal)
    terminal.show(*vlm3d_grids(found), stderr=outputs.hides_results)
    outputs.write(found.labels, found.metrics)
    return 0


def _show_estimates(
    pairs: "PairReader", metrics: "Mapping[str, ReportMetric]", outputs: Outputs, terminal: Terminal
) -> int:
    """Show the cost of CRIMSON by a language model, and how many requests other metrics send at most."""
    from rrg_rewards.analysis.evaluating import estimate_crimson
    from rrg_rewards.analysis.outcomes import judge_name, most_requests
    from rrg_rewards.metrics.crimson import CRIMSON

    expected: dict[str, Any] = {}
    to_stderr = outputs.json == "-"
    for name, metric in metrics.items():
        if isinstance(metric, CRIMSON) and not metric.judge.is_immediate:
            queries = [metric.queries(one.predictions, one.references, **one.context[name]) for one in pairs]
            found = estimate_crimson(metric, chain.from_iterable(queries))
            expected[name] = asdict(found)
            lines = (f"{name}: {found.requests:,} requests", str(found), *destination(metric.judge))
            terminal.show(*lines, stderr=to_stderr)
        elif most := most_requests(metric, pairs.rows):
            expected[name] = {role: {"most_requests": number} for role, number in most.items()}
            for role, number in most.items():
                terminal.show(f"{judge_name(name, role)}: at most {number:,} requests", stderr=to_stderr)
        else:
            terminal.show(f"{name}: asks no language model", stderr=to_stderr)
    if expected:
        outputs.write_summary(expected)
    terminal.note("nothing was scored or sent")
    return 0


def _keeper(rows: "ScoreRows", id_column: str | None) -> "Callable[[PairBatch, Mapping[str, Scores]], None]":
    """Return the function that adds batches to the rows of the page."""

    def keep(batch: "PairBatch", scores: "Mapping[str, Scores]") -> None:
        names = None if id_column is None else batch.table.column(id_column)
        rows.add(scores, batch.predictions, batch.references, names)

    return keep
