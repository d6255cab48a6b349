"""What the files of all trainers share: settings, completions, columns, and rewards as numbers."""
