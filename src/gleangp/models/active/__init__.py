"""The compression scheme of the informative vector machine: predictions from active points alone."""
