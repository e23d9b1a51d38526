"""A reward that raises on a completion without a mark, as every completion here is."""


def reward_fn(record):
    """The number behind the mark."""
    return float(record.completion.split("####")[1])
