"""Metrics as torchmetrics classes, with states and argument checks. The formulas are in ``functional``.

Names are imported lazily, so that one of them does not wait for the modules of all others.
"""

from rrg_rewards.utilities.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
