"""Training with Lightning: learned metrics (``rrg-rewards train``), and reinforcement learning of report generators.

The names of reinforcement learning are imported lazily.
"""

from rrg_rewards.utilities.imports import lazy_names, require

# Before the modules that import them: the error for a missing package names the extra that installs it.
require("lightning.pytorch", extra="train")
require("transformers", extra="train")

# YAML files may name loaded classes without their path.
import rrg_rewards.training.metrics.crepe  # noqa: E402
import rrg_rewards.training.metrics.er2score  # noqa: E402
import rrg_rewards.training.metrics.sources  # noqa: E402, F401

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
