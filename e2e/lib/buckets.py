"""EC2's request throttling: a token bucket per action. Sizes and rates are those that EC2 documents for most of its actions,
per account and region."""

import time

# Tokens, and tokens per second.
READING = (100, 20)
READING_ALL = (50, 10)
CHANGING = (50, 5)


def size_and_rate(operation, asked):
    if not operation.startswith(("Describe", "Get", "List")):
        return CHANGING
    is_narrow = any(key in asked for key in ("Filters", "MaxResults")) or any(key.endswith(("Ids", "Names")) for key in asked)
    return READING if is_narrow else READING_ALL


class Buckets:
    def __init__(self, percent, clock=time.monotonic):
        """`percent`: how much of each bucket is left by other callers of the account."""
        self.share, self.clock, self.filled = percent / 100, clock, {}

    def take(self, operation, asked):
        """Takes a token for a call; returns whether there was one."""
        size, rate = (self.share * documented for documented in size_and_rate(operation, asked))
        now = self.clock()
        tokens, at = self.filled.get((operation, size), (size, now))
        tokens = min(size, tokens + (now - at) * rate)
        is_allowed = tokens >= 1
        self.filled[operation, size] = (tokens - is_allowed, now)
        return is_allowed
