"""Report text to structured findings."""
