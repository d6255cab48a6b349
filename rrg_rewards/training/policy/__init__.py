"""Reinforcement learning of report generators with Lightning: generators, rewards, rollouts and training steps."""
