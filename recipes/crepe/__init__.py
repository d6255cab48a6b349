"""CREPE: an error-count encoder trained on pairs whose errors are known."""
