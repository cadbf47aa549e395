"""What operators see of transactions that are not simply done, and what they decide about them. Without Spark."""
