"""Lightning callbacks."""

if __name__ != "rrg_rewards.callbacks":
    raise ImportError(f"import this package as rrg_rewards.callbacks, not as {__name__}")

from rrg_rewards.utilities.imports import require

# Before the modules that import it by name: where it is missing, this says which extra installs it.
require("lightning.pytorch", extra="lightning")

from rrg_rewards.callbacks.report_metrics import ReportMetricsCallback  # noqa: E402
from rrg_rewards.callbacks.samplers import UnpaddedDistributedSampler  # noqa: E402

__all__ = ["ReportMetricsCallback", "UnpaddedDistributedSampler"]
