"""Reports: what a dataset holds, how fast it is read."""
