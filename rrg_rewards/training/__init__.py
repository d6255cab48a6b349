"""Training with Lightning: learned metrics, by ``rrg-rewards train``, and report generators, by reinforcement learning.

The names of reinforcement learning are imported at their first use.
"""

from typing import TYPE_CHECKING

from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.lazy import lazy_names

# Before the modules that import them by name: where one is missing, this says which extra installs it.
require("lightning.pytorch", extra="train")
require("transformers", extra="train")

from rrg_rewards.training.crepe import CrepeDataModule, CrepeModule  # noqa: E402
from rrg_rewards.training.er2score import ER2ScoreModule  # noqa: E402
from rrg_rewards.training.er2score_data import ER2ScoreDataModule  # noqa: E402
from rrg_rewards.training.error_sources import ComparedReports, PhantomErrors, ReportErrors  # noqa: E402
from rrg_rewards.training.sources import GradedReports, JsonlRecords, RecordSource, ReportSource  # noqa: E402

if TYPE_CHECKING:
    from rrg_rewards.training.generators import Completions, ReportGenerator, TokenScores
    from rrg_rewards.training.hf_generators import CausalLMGenerator, CTChatGenerator, EncoderDecoderGenerator
    from rrg_rewards.training.policy import PolicyModule
    from rrg_rewards.training.prompts import PolicyDataModule

__all__ = [
    "CTChatGenerator",
    "CausalLMGenerator",
    "ComparedReports",
    "Completions",
    "CrepeDataModule",
    "CrepeModule",
    "ER2ScoreDataModule",
    "ER2ScoreModule",
    "EncoderDecoderGenerator",
    "GradedReports",
    "JsonlRecords",
    "PhantomErrors",
    "PolicyDataModule",
    "PolicyModule",
    "RecordSource",
    "ReportErrors",
    "ReportGenerator",
    "ReportSource",
    "TokenScores",
]

__getattr__ = lazy_names(
    __name__,
    {
        "CTChatGenerator": "hf_generators",
        "CausalLMGenerator": "hf_generators",
        "Completions": "generators",
        "EncoderDecoderGenerator": "hf_generators",
        "PolicyDataModule": "prompts",
        "PolicyModule": "policy",
        "ReportGenerator": "generators",
        "TokenScores": "generators",
    },
)
