"""The checks of torchmetrics' own test suite, for metrics whose batches are not tensors.

A subject makes a metric and has batches of arguments of ``update``. The expected value of some batches is that of a new
metric that has seen them in one update. Values must be equal in every setting; sums of float64 in another order may
differ in the last digits.
"""

import copy
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from label_judge import LabelJudge
from tiny_crepe import save_tiny_crepe
from tiny_er2score import save_tiny_er2score
from tiny_records import save_tiny_encoder
from torch import nn
from torchmetrics import Metric, MetricCollection

from rrg_rewards.labelers import JudgeLabeler
from rrg_rewards.metrics import CallableMetric, CRGScore, MultiLevelCRGScore, ReportMetric, make_metric
from rrg_rewards.metrics.preference_accuracy import PreferenceAccuracy
from rrg_rewards.training.metrics.crepe import CountCorrelation
from rrg_rewards.utilities.backend import Backend

Batch = tuple[tuple[Any, ...], dict[str, Any]]

DTYPES = (torch.bfloat16, torch.float16, torch.float64)

# Words of the tiny models' vocabularies, among them findings of the rules.
_REPORTS = [
    "Small left pleural effusion. No nodule.",
    "Nodule of 8 mm in the left upper lobe. Cardiomegaly.",
    "Large right pleural effusion and a mass in the right lung.",
    "The heart is normal. Nodule of 12 mm in the right lower lobe.",
    "Normal heart and lungs.",
    "",
    "Hiatal hernia. Small opacity in the left lung.",
    "New edema with large opacity.",
    None,
]


def _texts(rows: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """Return predictions and references; some of both cannot be scored."""
    return [_REPORTS[row % 9] for row in rows], [_REPORTS[(row * row + 1) % 8] for row in rows]


def _text_batches(context: Callable[[int], dict[str, Any]] = lambda _: {}) -> list[Batch]:
    return [(_texts(range(4 * i, 4 * i + 4)), context(4)) for i in range(6)]


def _labels(seed: int, *shape: int) -> torch.Tensor:
    return torch.randint(2, shape, generator=torch.Generator().manual_seed(seed))


def _counts(seed: int) -> torch.Tensor:
    return torch.randint(4, (4, 2), generator=torch.Generator().manual_seed(seed)).float()


@dataclass(frozen=True)
class Subject:
    """A metric and its batches; ``relative`` is the tolerance for other batches of a model's inputs."""

    make: Callable[[], Metric]
    batches: list[Batch] = field(default_factory=_text_batches)
    relative: float = 1e-12

    def fed(self, batches: Sequence[Batch]) -> Metric:
        metric = self.make()
        for args, kwargs in batches:
            metric.update(*args, **kwargs)
        return metric

    def value(self, batches: Sequence[Batch]) -> float:
        """Return the value of some batches in this process alone."""
        metric = self.fed(batches)
        metric._to_sync = False
        return float(metric.compute())

    @cached_property
    def total(self) -> float:
        return self.value(self.batches)


def save_models(folder: Path) -> dict[str, str]:
    """Write the models of the metrics that have one."""
    return {
        "bertscore": str(save_tiny_encoder(folder / "bertscore")),
        "crepe": str(save_tiny_crepe(folder / "crepe")),
        "er2score": str(save_tiny_er2score(folder / "er2score")),
    }


SUBJECTS = {
    "crg_pooled": lambda _: Subject(
        lambda: CRGScore(3), [((_labels(i, 4, 3), _labels(i + 9, 4, 3)), {}) for i in range(6)]
    ),
    "crg_labels": lambda _: Subject(
        lambda: CRGScore(3, per_label=True), [((_labels(i, 4, 3), _labels(i + 9, 4, 3)), {}) for i in range(6)]
    ),
    "crg_levels": lambda _: Subject(
        lambda: MultiLevelCRGScore([2, 3]),
        [(([_labels(i, 4, 2), _labels(i, 4, 3)], [_labels(i + 9, 4, 2), _labels(i + 7, 4, 3)]), {}) for i in range(6)],
    ),
    "count_correlation": lambda _: Subject(
        lambda: CountCorrelation(["a", "b"]), [((_counts(i) + 0.25, _counts(i + 5)), {}) for i in range(6)]
    ),
    "preference_accuracy": lambda _: Subject(
        lambda: PreferenceAccuracy(["a", "b"]),
        [((_counts(i) + 0.1, -_counts(i + 5), torch.tensor([0, 0, 1, 1])), {}) for i in range(6)],
    ),
    "bleu": lambda _: Subject(lambda: make_metric("bleu", n_gram=2)),
    "callable": lambda _: Subject(lambda: CallableMetric("functions:word_overlap", value="f1", parts=["recall"])),
    "chrf": lambda _: Subject(lambda: make_metric("chrf")),
    "rexrank_bleu": lambda _: Subject(lambda: make_metric("rexrank_bleu")),
    "label_f1": lambda _: Subject(lambda: make_metric("label_f1", average="macro")),
    "rouge": lambda _: Subject(lambda: make_metric("rouge")),
    "crg": lambda _: Subject(lambda: make_metric("crg")),
    "crg_judge": lambda _: Subject(
        lambda: make_metric("crg", labeler=JudgeLabeler("ct_rate", LabelJudge({"12 mm": "inconsistent"})))
    ),
    "crg_levels_of_text": lambda _: Subject(lambda: make_metric("crg", levels=["abnormality", "side"])),
    "crimson": lambda _: Subject(
        lambda: make_metric("crimson"), _text_batches(lambda rows: {"age": torch.full((rows,), 70)})
    ),
    "ct_finebench": lambda _: Subject(lambda: make_metric("ct_finebench", mode="f1")),
    **{
        name: lambda models, name=name, options=options: Subject(
            lambda: make_metric(name, model=models[name], **options), relative=1e-5
        )
        # In bfloat16, which other processes may choose by the processor, the batches change values by more.
        for name, options in {"bertscore": {}, "crepe": {"dtype": "float32"}, "er2score": {"dtype": "float32"}}.items()
    },
}


def check_subject(subject: Subject, rank: int = 0, world_size: int = 1) -> None:
    """Run all checks in this process, one of ``world_size`` that call this function together."""
    for check in (
        _check_class,
        _check_copies,
        _check_empty_batch,
        _check_forward,
        _check_sync_on_step,
        _check_states,
        _check_precisions,
        _check_collection,
    ):
        check(subject, rank, world_size)
    if world_size == 1:
        _check_merging(subject)
        _check_plot(subject)
        _check_inference_mode(subject)


def _same(subject: Subject, found: Any, expected: float) -> None:
    assert float(found) == pytest.approx(expected, rel=subject.relative, abs=1e-12, nan_ok=True)


def _check_class(subject: Subject, *_: int) -> None:
    """The class attributes are constant; the metric pickles, is cloned, hashes, scripts and writes no state."""
    metric = subject.make()
    for name in ("is_differentiable", "higher_is_better"):
        with pytest.raises(RuntimeError, match="Can't change const"):
            setattr(metric, name, not getattr(metric, name))
    assert len(pickle.dumps(metric)) < 100_000
    for other in (pickle.loads(pickle.dumps(metric)), metric.clone(), copy.deepcopy(metric)):
        assert other is not metric
        assert other.metric_state.keys() == metric.metric_state.keys()
    hash(metric)
    torch.jit.script(metric)
    assert metric.state_dict() == {}
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        metric.compute()


def _check_copies(subject: Subject, *_: int) -> None:
    """Copies have the value of the original, share its models and judges, and go their own way."""
    metric = subject.fed(subject.batches[:2])
    metric._to_sync = False
    value = subject.value(subject.batches[:2])
    for other in (pickle.loads(pickle.dumps(metric)), metric.clone(), copy.deepcopy(metric)):
        other._to_sync = False
        _same(subject, other.compute(), value)
        other.reset()
        args, kwargs = subject.batches[2]
        other.update(*args, **kwargs)
        _same(subject, other.compute(), subject.value(subject.batches[2:3]))
    _same(subject, metric.compute(), value)
    shared = {name: one for name, one in vars(metric).items() if isinstance(one, Backend)}
    assert all(vars(metric.clone())[name] is one for name, one in shared.items())


def _check_empty_batch(subject: Subject, *_: int) -> None:
    """A batch without a report pair adds nothing."""
    metric = subject.make()
    if isinstance(metric, ReportMetric):
        assert metric.score([], []).value.shape == (0,)
        metric.update([], [])
        assert not any(state.nan_to_num().any() for state in metric.metric_state.values() if torch.is_tensor(state))


def _check_forward(subject: Subject, rank: int, world_size: int) -> None:
    """``forward`` returns the value of its batch; ``compute`` returns that of all batches of all processes."""
    metric = subject.make()
    for number in range(rank, len(subject.batches), world_size):
        args, kwargs = subject.batches[number]
        _same(subject, metric(*args, **kwargs), subject.value([subject.batches[number]]))
        metric = pickle.loads(pickle.dumps(metric))
    _same(subject, metric.compute(), subject.total)
    _same(subject, metric.compute(), subject.total)


def _check_sync_on_step(subject: Subject, rank: int, world_size: int) -> None:
    """With ``dist_sync_on_step``, ``forward`` returns the value of the batches of all processes."""
    metric = subject.make()
    metric.dist_sync_on_step = True
    for first in range(0, len(subject.batches) - world_size + 1, world_size):
        args, kwargs = subject.batches[first + rank]
        _same(subject, metric(*args, **kwargs), subject.value(subject.batches[first : first + world_size]))
    _same(subject, metric.compute(), subject.total)


def _check_states(subject: Subject, rank: int, world_size: int) -> None:
    """A sync is undone, a reset removes all reports, sums do not grow, and persistent states survive a checkpoint."""
    metric = subject.fed(subject.batches[rank::world_size])
    new = subject.make()
    for name, state in metric.metric_state.items():
        assert isinstance(state, list) or state.shape == getattr(new, name).shape
    if world_size > 1:
        local = copy.deepcopy(metric.metric_state)
        metric.sync()
        metric.unsync()
        torch.testing.assert_close(metric.metric_state, local, rtol=0, atol=0, equal_nan=True)
    metric.persistent(True)
    restored = subject.make()
    restored.load_state_dict(metric.state_dict())
    restored._update_count = 1
    _same(subject, restored.compute(), subject.total)
    metric.reset()
    for args, kwargs in subject.batches[:2]:
        metric.update(*args, **kwargs)
    expected = subject.batches[:2] * world_size
    _same(subject, metric.compute(), subject.value(expected))


def _check_precisions(subject: Subject, rank: int, world_size: int) -> None:
    """Neither the type of a surrounding module nor the default type nor autocast changes a bit."""
    for dtype in (torch.float32, *DTYPES):
        module = nn.Module()
        module.metric = subject.make()
        module.to(dtype)
        for number in range(rank, len(subject.batches), world_size):
            args, kwargs = subject.batches[number]
            with _default_dtype(dtype), torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                module.metric.update(*args, **kwargs)
            module.to(dtype)
        types = {name: state.dtype for name, state in module.metric.metric_state.items() if torch.is_tensor(state)}
        assert types == {name: getattr(subject.make(), name).dtype for name in types}
        assert float(module.metric.half().compute()) == pytest.approx(subject.total, rel=subject.relative, nan_ok=True)
        found = subject.fed(subject.batches[rank::world_size]).compute()
        assert float(module.metric.compute()) == float(found), f"{dtype} changes the value"


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _check_collection(subject: Subject, rank: int, world_size: int) -> None:
    """A collection gives each metric its own columns."""
    collection = MetricCollection({"first": subject.make(), "second": subject.make()})
    for args, kwargs in subject.batches[rank::world_size]:
        collection.update(*args, **kwargs)
    for value in collection.compute().values():
        _same(subject, value, subject.total)
    text = isinstance(subject.batches[0][0][0][0], str | None)
    if text:
        mixed = MetricCollection({"subject": subject.make(), "rouge": make_metric("rouge"), "crg": make_metric("crg")})
        for args, kwargs in subject.batches[rank::world_size]:
            mixed.update(*args, **{"age": [70] * len(args[0]), **kwargs})
        _same(subject, mixed.compute()["subject"], subject.total)


def _check_merging(subject: Subject) -> None:
    first, second = subject.fed(subject.batches[:2]), subject.fed(subject.batches[2:])
    first.merge_state(second)
    _same(subject, first.compute(), subject.total)


def _check_plot(subject: Subject) -> None:
    """The plot shows the bounds that a metric has, and its value."""
    pytest.importorskip("matplotlib").use("Agg", force=True)
    metric = subject.fed(subject.batches)
    figure, axes = metric.plot()
    low, high = axes.get_ylim()
    bounds = [metric.plot_lower_bound, metric.plot_upper_bound, float(metric.compute())]
    assert all(low <= one <= high for one in bounds if one is not None)
    import_module("matplotlib.pyplot").close(figure)


def _check_inference_mode(subject: Subject) -> None:
    """A metric that was reset, updated or made in inference mode is updated outside of it, and the reverse."""
    metric = subject.make()
    with torch.inference_mode():
        metric.reset()
    for number, (args, kwargs) in enumerate(subject.batches):
        with torch.inference_mode(number % 2 == 0):
            metric(*args, **kwargs)
    _same(subject, metric.compute(), subject.total)
    with torch.inference_mode():
        made = subject.make()
    for args, kwargs in subject.batches:
        made.update(*args, **kwargs)
    _same(subject, made.compute(), subject.total)
