"""Scoring systems that come with the package, as YAML."""
