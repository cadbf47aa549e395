"""`zync run`: supervises the parts of the pipeline, each a process; shows a live view and exports their metrics."""
