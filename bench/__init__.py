"""`python -m bench [NAME…]` (`make bench`): what the figures in docs/figures.md come from.

Each benchmark is a module here with one function, `run(folder) -> list[Result]`, and measures zync beside
something else in the same minutes on the same machine: ratios travel, seconds do not.
"""
