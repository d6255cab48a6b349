"""Search of image-free texts that a reward pays, before a policy is trained on it."""

from rrg_rewards.watch.attack.attack_reward import attack_reward
from rrg_rewards.watch.attack.families import family_names
from rrg_rewards.watch.attack.results import AttackResult, FamilyResult

__all__ = ["AttackResult", "FamilyResult", "attack_reward", "family_names"]
