"""Clinical metrics for radiology report generation: torchmetrics, TRL rewards and Lightning callbacks.

Each metric gives one number per report pair; ``metrics`` accumulates it over a corpus, ``rewards`` hands it to a
trainer and ``callbacks`` logs it during validation.
"""

from rrg_rewards.version import __version__

__all__ = ["__version__"]
