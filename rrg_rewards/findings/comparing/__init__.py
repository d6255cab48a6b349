"""Compare two reports finding by finding: matching, attribute errors and clinical significance."""
