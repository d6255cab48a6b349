"""Recipes that train a small policy on the phantom corpus in minutes on two cores, without a download."""
