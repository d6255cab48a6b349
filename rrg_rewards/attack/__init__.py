"""Search of image-free texts that a reward pays, before a policy is trained on it."""

from rrg_rewards.attack.results import AttackResult, FamilyResult, RewardCheck
from rrg_rewards.attack.reward_attack import attack_reward

__all__ = ["AttackResult", "FamilyResult", "RewardCheck", "attack_reward"]
