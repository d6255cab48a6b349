"""Conventions of comparing two reports: one YAML file a profile."""
