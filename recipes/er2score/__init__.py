"""ER²Score: a language model with a reward for each criterion of a scoring system, trained on graded reports."""
