"""What a check says: the models of ``report.json``, and what a run depends on."""
