"""Callbacks for Lightning, and for the trainers of transformers and TRL.

Names are imported lazily because the callbacks need either Lightning or transformers.
"""

if __name__ != "rrg_rewards.callbacks":
    raise ImportError(f"import this package as rrg_rewards.callbacks, not as {__name__}")

from rrg_rewards.utilities.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
