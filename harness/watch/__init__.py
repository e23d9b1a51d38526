"""What is seen while a run goes on: progress and, later, anomalies and early stopping."""
