"""Lexicons of the finding engine, as YAML."""
