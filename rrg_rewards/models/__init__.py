"""Neural networks as Hugging Face models.

Names are imported lazily because their modules need transformers. Importing a CT-CHAT name registers its classes with
transformers' auto classes.
"""

from rrg_rewards.utilities.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
