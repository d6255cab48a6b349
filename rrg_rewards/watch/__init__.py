"""Detection of reward hacking in training, and search of exploits before it; independent of any framework.

Names are imported lazily, because ``pages`` and ``callbacks``, which write the results of a watch, import this package.
"""

from rrg_rewards.utilities.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
