"""Tables of reports in CSV, JSONL and Parquet: reading, writing and appending."""
