"""Recipes that train a local judge for CRIMSON on the evaluations of another judge."""
