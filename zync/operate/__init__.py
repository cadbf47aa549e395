"""What an operator does, a module a command: look, explain, replay, diff, decide, verify, maintain."""
