"""`zync run`: the whole pipeline of a config, as one tree of processes."""
