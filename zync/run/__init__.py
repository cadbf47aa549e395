"""`zync run`: supervises the parts of the pipeline, each a process; live view and metrics of all of them."""
