"""Environments of other frameworks: each folder is a project that pip installs beside this package."""
