"""Training with Lightning: learned metrics, by ``rrg-rewards train``, and report generators, by reinforcement learning.

The names of reinforcement learning are imported at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rrg_rewards.utilities.imports import require

# Before the modules that import them by name: where one is missing, this says which extra installs it.
require("lightning.pytorch", extra="train")
require("transformers", extra="train")

from rrg_rewards.training.crepe import CrepeDataModule, CrepeModule  # noqa: E402
from rrg_rewards.training.sources import (  # noqa: E402
    ComparedReports,
    JsonlRecords,
    PhantomErrors,
    RecordSource,
    ReportErrors,
)

if TYPE_CHECKING:
    from rrg_rewards.training.generators import Completions, ReportGenerator, TokenScores
    from rrg_rewards.training.hf_generators import CausalLMGenerator, CTChatGenerator, EncoderDecoderGenerator
    from rrg_rewards.training.policy import PolicyModule
    from rrg_rewards.training.prompts import PolicyDataModule

_MODULES = {
    "CTChatGenerator": "hf_generators",
    "CausalLMGenerator": "hf_generators",
    "Completions": "generators",
    "EncoderDecoderGenerator": "hf_generators",
    "PolicyDataModule": "prompts",
    "PolicyModule": "policy",
    "ReportGenerator": "generators",
    "TokenScores": "generators",
}

__all__ = [
    "CTChatGenerator",
    "CausalLMGenerator",
    "ComparedReports",
    "Completions",
    "CrepeDataModule",
    "CrepeModule",
    "EncoderDecoderGenerator",
    "JsonlRecords",
    "PhantomErrors",
    "PolicyDataModule",
    "PolicyModule",
    "RecordSource",
    "ReportErrors",
    "ReportGenerator",
    "TokenScores",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
