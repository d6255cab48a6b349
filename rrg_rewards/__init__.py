"""Clinical metrics for radiology report generation: torchmetrics, TRL reward functions and Lightning callbacks.

Each metric computes one number per report pair. ``metrics`` accumulates it over a corpus, ``rewards`` returns it to a
trainer and ``callbacks`` logs it during validation.

The names below are imported at their first use. ``import rrg_rewards`` alone imports neither torch nor any extra.
"""

from rrg_rewards.utilities.imports import lazy_names
from rrg_rewards.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
