"""The file that ms-swift loads: ``--external_plugins .../ms_swift/rrg_plugin.py``.

It has a folder of its own, because ms-swift adds the folder of a plugin to the module search path, where files with the
names of other packages would hide them.
"""

import sys

from rrg_rewards.integrations.ms_swift import register_rewards

# Only ms-swift, which has been imported when it loads its plugins, has a registry.
if "swift" in sys.modules:
    from swift.rewards import orms

    register_rewards(orms)
