"""Child processes: what a runtime does to its process is a verdict about one artifact."""
