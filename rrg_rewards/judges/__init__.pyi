from rrg_rewards.judges.base import Judge as Judge
from rrg_rewards.judges.base import JudgeFailure as JudgeFailure
from rrg_rewards.judges.base import JudgeTask as JudgeTask
from rrg_rewards.judges.base import ReportPair as ReportPair
from rrg_rewards.judges.local import LocalJudge as LocalJudge
from rrg_rewards.judges.registry import get_judge as get_judge
from rrg_rewards.judges.rules import RuleJudge as RuleJudge
from rrg_rewards.judges.server.judge import OpenAIJudge as OpenAIJudge
