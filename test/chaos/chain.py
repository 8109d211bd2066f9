"""
What one state is to have from the one before. The digest that an entity's state carries is of all that it was told, in order, as chaos.count_call() makes it; a snapshot table that keeps
all versions has one row for each.
"""
import collections
import hashlib


def chained(digest, tag):
    return hashlib.md5((digest + tag).encode()).hexdigest()[:12]


def versions_of(found, rows):
    """{id: {version: row}} of such a table. None is there twice."""
    ids = collections.defaultdict(dict)
    for row in rows:
        other = ids[row['id']].setdefault(row['version'], row)
        if other is not row:
            found.violation('a version is there twice', other, row)
    return ids


def in_order(found, id_, versions):
    """The rows of an id, the first version first, up to one that is missing, which must not be."""
    for number in range(1, len(versions) + 1):
        found.look()
        if number not in versions:
            found.violation(f'{id_} has no version {number}', *list(versions.values())[-1:])
            return
        yield versions[number]
