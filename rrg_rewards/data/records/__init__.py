"""Records for training and evaluation: error counts, graded reports, preferences and question items."""
