"""Backends of users: they pickle with a metric, or say what to implement."""

import pickle

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from rrg_rewards.judges import Judge
from rrg_rewards.metrics import CRIMSON, ReportCRG
from tests.helpers.keyword_labeler import (
    ForgetfulLabeler,
    InheritingLabeler,
    KeywordLabeler,
    NoArguments,
    StrictLabeler,
)

PREDS, TARGET = ["A nodule.", "Effusion."], ["A nodule. Effusion.", "Clear."]


class ReportScores(Dataset):
    """Scores report pairs in the worker processes of a data loader."""

    def __init__(self, metric: ReportCRG) -> None:
        self.metric = metric

    def __len__(self) -> int:
        return len(PREDS)

    def __getitem__(self, row: int) -> torch.Tensor:
        return self.metric.score([PREDS[row]], [TARGET[row]]).value[0]


def test_backend_metric_with_a_labeler_of_the_user_pickles() -> None:
    metric = ReportCRG(KeywordLabeler(["nodule", "effusion"], threshold=1), prior=0.3)
    copied = pickle.loads(pickle.dumps(metric))
    assert copied.signature == metric.signature
    torch.testing.assert_close(copied.score(PREDS, TARGET).value, metric.score(PREDS, TARGET).value)


@pytest.mark.slow
def test_backend_metric_with_a_labeler_of_the_user_scores_in_spawned_workers() -> None:
    metric = ReportCRG(KeywordLabeler(["nodule", "effusion"]), prior=0.3)
    loader = DataLoader(ReportScores(metric), num_workers=1, multiprocessing_context="spawn", batch_size=2)
    torch.testing.assert_close(next(iter(loader)), metric.score(PREDS, TARGET).value)


def test_backend_missing_method_is_shown_in_full() -> None:
    with pytest.raises(NotImplementedError, match="ForgetfulLabeler cannot be pickled") as caught:
        pickle.dumps(ReportCRG(ForgetfulLabeler(["nodule"])))
    assert "def arguments(self): return {'words': self.words, 'threshold': self.threshold}" in str(caught.value)
    assert repr(ForgetfulLabeler(["nodule"])) == "ForgetfulLabeler(...)"


def test_backend_constructor_without_arguments_needs_no_method() -> None:
    assert isinstance(pickle.loads(pickle.dumps(NoArguments())), NoArguments)


class SilentJudge(Judge):
    """A judge of the user without the method ``arguments``."""

    is_immediate = True
    signature = "silent"

    def __init__(self, level: int) -> None:
        self.level = level

    async def evaluate(self, task, items):
        return []


def test_backend_judge_says_the_same() -> None:
    with pytest.raises(NotImplementedError, match=r"return \{'level': self.level\}"):
        pickle.dumps(CRIMSON(judge=SilentJudge(3)))


def test_backend_argument_is_never_lost_silently() -> None:
    with pytest.raises(TypeError, match=r"StrictLabeler cannot be rebuilt: arguments\(\) lacks strict"):
        pickle.dumps(StrictLabeler(strict=True))
    with pytest.raises(TypeError, match=r"InheritingLabeler cannot be rebuilt from arguments\(\).*schema"):
        pickle.dumps(InheritingLabeler())
