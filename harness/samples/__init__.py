"""One sample of the last update of a rollout run: found, read, and its reward computed again."""
