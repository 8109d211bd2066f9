"""The digest that an entity's state carries: of all that it was told, in order. As chaos.count_call() makes it."""
import hashlib


def chained(digest, tag):
    return hashlib.md5((digest + tag).encode()).hexdigest()[:12]
