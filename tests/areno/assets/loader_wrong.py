"""A loader whose rows lack the prompt."""


def load_training_dataset(path, **_others):
    """Rows of another contract."""
    return [{"question": "1+1", "answer": "2"} for _ in range(8)]
