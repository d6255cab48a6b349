from rrg_rewards.analysis.metric_choice import make_metrics as make_metrics
from rrg_rewards.analysis.pairs import PairBatch as PairBatch
from rrg_rewards.analysis.pairs import PairReader as PairReader
from rrg_rewards.analysis.settings import MetricChoice as MetricChoice
from rrg_rewards.analysis.settings import PairColumns as PairColumns
