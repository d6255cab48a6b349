"""Prompts of judges, as text."""
