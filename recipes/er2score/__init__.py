"""Recipes that train ER²Score, a language model with a reward head for each criterion of a scoring system."""
