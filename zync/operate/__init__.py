"""The commands of an operator, each in a module: inspect, explain, replay, diff, decide, verify, maintain."""
