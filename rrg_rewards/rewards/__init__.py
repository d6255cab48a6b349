"""Reward callables for TRL."""
