"""Metrics in real processes: all compute the results of one process, however reports and failures are distributed."""

import functools
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from exam_judge import ExamJudge
from label_judge import LabelJudge
from scripted_judge import ScriptedJudge
from torchmetrics import MetricCollection
from words import WordLabeler

from rrg_rewards.judges import CascadeJudge
from rrg_rewards.labelers import JudgeLabeler
from rrg_rewards.metrics import CRIMSON, CRGScore, CTFineBench, MultiLevelCRGScore, ReportCRG, make_metric
from tests.distributed.helpers import run_distributed
from tests.distributed.shares import ROWS, SHARES, WHOLE, Update, assert_same, exercise, feed, picked, rows_of

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*the judge failed", "ignore:CRG.*is undefined", "ignore:The ``compute`` method"
)

Batch = Callable[[slice, int], tuple[Sequence[Any], dict[str, Any]]]
"""Returns arguments of ``update`` for rows of the corpus of a seed."""


@dataclass(frozen=True)
class Subject:
    """A metric, its batches, its results; another metric for a collection, and batches with context."""

    make: Callable[[], Any]
    batch: Batch
    names: str = ""
    other: Callable[[], Any] | None = None
    with_context: Batch | None = None

    @property
    def update(self) -> Update:
        return updating(self.batch)

    def exercise(self, rows: slice) -> dict[str, Any]:
        """Return the results of every use."""
        found = exercise(self.make, rows, self.update, self.results)
        collection = feed(MetricCollection({"a": self.make(), "b": (self.other or self.make)()}), rows, self.update)
        found["collection"] = {name: value.item() for name, value in collection.compute().items()}
        if self.with_context is not None:
            found["with context"] = self.results(feed(self.make(), rows, updating(self.with_context)))
        return found

    def results(self, metric: Any) -> dict[str, Any]:
        return {name: plain(getattr(metric, name)()) for name in f"compute statistics {self.names}".split()}


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def updating(batch: Batch) -> Update:
    def update(metric: Any, rows: slice, seed: int) -> None:
        args, context = batch(rows, seed)
        metric.update(*args, **context)

    return update


def drawn(reports: Sequence[str | None], **context: Sequence[Any]) -> Batch:
    """Return batches of rows that are drawn from reports, with columns of context."""
    return lambda rows, seed: (picked(reports, rows, seed), {name: [*column][rows] for name, column in context.items()})


def paired(reports: Sequence[str]) -> Batch:
    """Return batches of the pairs of all reports, each report also with itself."""

    def batch(rows: slice, seed: int) -> tuple[Sequence[Any], dict[str, Any]]:
        pairs = [*product(reports, repeat=2)]
        chosen = [pairs[(row + 5 * seed) % len(pairs)] for row in range(ROWS)][rows]
        return [[pred for pred, _ in chosen], [target for _, target in chosen]], {}

    return batch


# --- CRG --------------------------------------------------------------------------------------------------------------

FOUND = ["Effusion.", "A nodule and a hernia.", "Normal.", "", "Nodule, effusion.", "Hernia."]
# Sides differ from report to report.
SIDES = [f"{'Right' if place % 2 else 'Left'} {text.lower()}" for place, text in enumerate(FOUND)]


def labels(rows: slice, seed: int) -> tuple[list[Any], dict[str, Any]]:
    return [WordLabeler()(reports) for reports in picked(FOUND, rows, seed)], {}


def levels(rows: slice, seed: int) -> tuple[list[Any], dict[str, Any]]:
    (preds, target), context = labels(rows, seed)
    return [[preds, target], [target, target]], context


CRG = {
    "pooled": Subject(lambda: CRGScore(3), labels),
    "per label": Subject(lambda: CRGScore(3, per_label=True), labels, "label_statistics"),
    "levels": Subject(lambda: MultiLevelCRGScore([3, 3]), levels, "level_scores"),
    "text": Subject(lambda: ReportCRG(WordLabeler()), drawn(FOUND), "label_statistics"),
    "macro": Subject(lambda: CRGScore(3, average="macro", min_prevalence=0.3), labels, "label_statistics"),
    "macro levels": Subject(lambda: MultiLevelCRGScore([3, 3], average="macro"), levels, "level_scores"),
    "macro text": Subject(lambda: ReportCRG(WordLabeler(), average="macro"), drawn(FOUND), "label_statistics"),
    "levels of text": Subject(
        lambda: ReportCRG(levels=("abnormality", "side")), drawn(SIDES), "label_statistics level_scores"
    ),
    "judge text": Subject(
        lambda: ReportCRG(JudgeLabeler("ct_rate", LabelJudge({"hernia": "inconsistent"}))),
        drawn(FOUND),
        "label_statistics failure_counts",
    ),
}

# --- CRIMSON ----------------------------------------------------------------------------------------------------------

COMPARED = ["Left effusion.", "Right effusion.", "Nodule, scar.", "Edema. Pneumothorax.", "Quorblid.", "", None]
STATED = [
    "No acute abnormality.",
    "Possible 4 mm nodule in the right upper lobe.",
    "Small left pleural effusion. Cardiomegaly.",
    "Large right pneumothorax or bulla. Nodules in the right upper and left lower lobe.",
]
FAILURES: dict[str, dict[str, Any]] = {
    "none": {},
    "some": {"Edema": "deadline", "scar": "malformed"},
    "all": {"": "status"},
    "cascade": {"Edema": "deadline", "scar": "malformed"},
}


def crimson(failures: str, waits: bool, failing_rank: int | None = None) -> CRIMSON:
    judge = ScriptedJudge(waits, FAILURES[failures], failing_rank)
    return CRIMSON(CascadeJudge(judge) if failures == "cascade" else judge)


with_ages = drawn(COMPARED, age=range(ROWS))
CRIMSONS = {
    f"{failures}, {waits=}": Subject(
        functools.partial(crimson, failures, waits),
        with_ages,
        "error_counts",
        functools.partial(crimson, "none", waits),
    )
    for failures in FAILURES
    for waits in (False, True)
}
CRIMSONS["rules"] = Subject(CRIMSON, drawn(STATED, age=[60] * ROWS), "error_counts")
CRIMSONS["training"] = Subject(lambda: CRIMSON(form="training"), paired(STATED), "error_counts")

# --- CT-FineBench -----------------------------------------------------------------------------------------------------

ASKED = [
    "Nodule of 8 mm in the left upper lobe.",
    "Nodule of 10 mm in the right upper lobe. Small left pleural effusion.",
    "Small left pleural effusion.",
    "Large right pleural effusion. Atelectasis in the right lower lobe.",
    *("Normal chest CT.", "", None),
]
ITEM = {
    "finding": "Lung nodule",
    "attribute": "size",
    "question": "What is the size of the nodule?",
    "answer": "9 mm",
    "answer_type": "numeric",
}
ITEMS = [[ITEM], [], None, [ITEM, {**ITEM, "answer": "20 mm"}]]


def finebench(mode: str, judged: bool, failing_rank: int | None = None) -> CTFineBench:
    # If only one process's judge fails, it fails on every report.
    fail_on: Any = {"10 mm": "deadline", "Large": "malformed"} if failing_rank is None else {"": "status"}
    answerer: Any = ExamJudge(True, fail_on, failing_rank) if judged else "engine"
    return CTFineBench(mode=mode, answerer=answerer)  # type: ignore[arg-type]


MODES = [("recall", False), ("recall", True), ("precision", False), ("f1", True)]
FINEBENCH = {
    f"{mode}, {judged=}": Subject(
        functools.partial(finebench, mode, judged),
        drawn(ASKED),
        "counts tables",
        functools.partial(finebench, mode, False),
        None if mode == "precision" else drawn(ASKED, items=ITEMS * (ROWS // len(ITEMS))),
    )
    for mode, judged in MODES
}

# --- Captions ---------------------------------------------------------------------------------------------------------

WORDS = ["no", "small", "left", "right", "effusion", "mass", "nodule", "in", "the", "lower", "lobe", "is", "seen"]


def captions(rows: slice, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Return rows of which some cannot be scored."""
    draw = random.Random(seed)
    preds, target = ([" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(ROWS)] for _ in range(2))
    return [[None, *preds[1:]][rows], [*target[:-1], " "][rows]], {}


CAPTIONS = {
    name: Subject(functools.partial(make_metric, name, **options), captions)
    for name, options in {"coco_bleu": {"n_gram": 2}, "coco_rouge": {}, "cider": {}}.items()
}

# Those of all kinds of states, which the default tests try in two processes; the others have states of the same kinds.
CRG_FIRST = ("pooled", "per label", "text", "levels of text")
CRGS = {
    "crg": {name: CRG[name] for name in CRG_FIRST},
    "other crg": {name: one for name, one in CRG.items() if name not in CRG_FIRST},
}
GROUPS = {**CRGS, "crimson": CRIMSONS, "ct_finebench": FINEBENCH, "captions": CAPTIONS}


def exercise_group(rank: int, world_size: int, group: str) -> dict[str, dict[str, Any]]:
    warnings.simplefilter("ignore")
    return {
        share: {name: subject.exercise(rows) for name, subject in GROUPS[group].items()}
        for share, rows in rows_of(rank, world_size)
    }


@functools.cache
def results_of_one(group: str) -> dict[str, dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: subject.exercise(WHOLE) for name, subject in GROUPS[group].items()}


@pytest.mark.parametrize(
    ("group", "world_size"),
    [
        pytest.param(group, size, marks=() if (group, size) == ("crg", 2) else pytest.mark.distributed)
        for group in GROUPS
        for size in SHARES
    ],
)
def test_all_processes_have_the_results_of_one(group: str, world_size: int) -> None:
    alone = results_of_one(group)
    by_rank = run_distributed(exercise_group, world_size, group)
    for rank, shares in enumerate(by_rank):
        # As texts: NaN equals nothing.
        assert repr(shares) == repr(by_rank[0]), "processes differ"
        for share, found in shares.items():
            if group in CRGS:
                # Equal and not close: counters are added before anything is divided.
                assert repr(found) == repr(alone), (rank, share)
            else:
                assert_same(found, alone, (rank, share))


@pytest.mark.parametrize("group", GROUPS)
def test_data_tell_processes_apart(group: str) -> None:
    """If every share had the values of the whole, the tests above would pass without any sync."""
    for name, subject in GROUPS[group].items():
        whole, share = (feed(subject.make(), rows, subject.update) for rows in (WHOLE, slice(0, 12)))
        assert whole.compute() != share.compute(), name


def test_crimson_of_the_rules_and_its_training_form_find_errors() -> None:
    """Without any, the states of errors and prices would be 0 in all processes."""
    rules, training = (feed(CRIMSONS[name].make(), WHOLE, CRIMSONS[name].update) for name in ("rules", "training"))
    assert rules.error_counts()["false_findings"] > 0
    assert 0 < training.statistics()["training_credit"] < training.statistics()["training_price"]


def forward(rank: int, world_size: int, group: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what ``forward`` gives in this process, and results after it; and whether a sync by hand is kept."""
    warnings.simplefilter("ignore")
    found = {}
    for share, rows in rows_of(rank, world_size):
        for name, subject in CRGS[group].items():
            metric, by_hand = subject.make(), feed(subject.make(), rows, subject.update)
            args, _ = subject.batch(rows, 0)
            found[share, name] = {"own": metric(*args).item(), "results": subject.results(metric)}
            by_hand.sync()
            by_hand.statistics()
            found[share, name]["is synced"] = by_hand._is_synced
            by_hand.unsync(should_unsync=by_hand._is_synced)
    return found


@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.distributed)])
@pytest.mark.parametrize("group", ["crg", pytest.param("other crg", marks=pytest.mark.distributed)])
def test_forward_gives_the_processes_own_batch_and_a_sync_by_hand_outlives_statistics(
    group: str, world_size: int
) -> None:
    for rank, found in enumerate(run_distributed(forward, world_size, group)):
        shares = dict(rows_of(rank, world_size))
        for (share, name), result in found.items():
            own, whole = (feed(CRG[name].make(), rows, CRG[name].update) for rows in (shares[share], WHOLE))
            # As texts: a process without rows has no value of its own.
            assert repr(result["own"]) == repr(own.compute().item()), (rank, share, name)
            assert repr(result["results"]) == repr(CRG[name].results(whole)), (rank, share, name)
            assert result["is synced"], (rank, share, name)


# A subject whose judge may fail, on one process only; where its judge is, and where its failures are counted.
FAILING: dict[str, tuple[Callable[..., Any], Subject, str, str]] = {
    "some": (functools.partial(crimson, "some", True), CRIMSONS["none, waits=True"], "judge", "error_counts"),
    "all": (functools.partial(crimson, "all", True), CRIMSONS["none, waits=True"], "judge", "error_counts"),
    "ct_finebench": (
        functools.partial(finebench, "f1", True),
        Subject(functools.partial(finebench, "f1", False), drawn(ASKED), "counts tables"),
        "examiner",
        "counts",
    ),
}


def exercise_failing(rank: int, world_size: int, name: str) -> dict[str, dict[str, Any]]:
    """Return the results where only the judge of the last process fails."""
    warnings.simplefilter("ignore")
    make, subject, *_ = FAILING[name]
    return {
        share: subject.results(feed(make(world_size - 1), rows, subject.update))
        for share, rows in rows_of(rank, world_size)
    }


@pytest.mark.distributed
@pytest.mark.parametrize("world_size", SHARES)
@pytest.mark.parametrize("name", FAILING)
def test_a_judge_that_fails_on_one_process(name: str, world_size: int) -> None:
    make, subject, judge, counts = FAILING[name]
    by_rank = run_distributed(exercise_failing, world_size, name)
    for share, lengths in SHARES[world_size].items():
        before = ROWS - lengths[-1]
        metric = feed(subject.make(), slice(0, before), subject.update)
        setattr(metric, judge, getattr(make(0), judge))
        expected = subject.results(feed(metric, slice(before, ROWS), subject.update))
        failed = sum(count for kind, count in expected[counts].items() if kind.startswith("failed_"))
        assert (failed > 0) == (lengths[-1] > 0), "the judge fails where there are reports"
        for rank, shares in enumerate(by_rank):
            assert_same(shares[share], expected, (rank, share))
