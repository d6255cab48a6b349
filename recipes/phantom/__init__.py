"""A small policy on the phantom corpus: no download, minutes on two cores."""
