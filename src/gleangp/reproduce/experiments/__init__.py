"""One file, one experiment: it defines `EXPERIMENT`. Files that begin with an underscore are shared parts."""
