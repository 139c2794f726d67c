"""W1-W5: the programs every quota, share and metric is tried with."""
