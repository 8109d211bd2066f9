"""
Of those who save one version one wins: each version of a snapshot is the next one after that which it was made from, no save is overwritten by one that had not seen it, and all that were confirmed are in its history.
Versions go on over a removal. Where the row was locked by load(), save() does not fail for somebody else's.
"""
from chain import chained, in_order, versions_of
from found import Found


def check(history):
    found = Found()
    pages = versions_of(found, history.final['page'])
    for id_, versions in pages.items():
        digest = ''
        for row in in_order(found, id_, versions):
            if not row['deleted'] and row['state']['digest'] != chained(digest, row['state']['tag']):
                found.violation(f"version {row['version']} was not made from the one before", versions.get(row['version'] - 1), row)
            digest = '' if row['deleted'] else row['state']['digest']
    for op in history.some('save', 'remove'):
        found.look()
        row = pages[op['id']].get(op['version'])
        if op['version'] != op['base'] + 1:
            found.violation('a version is not the next one after that which it was made from', op)
        there = row is not None and (row['deleted'] if op.f == 'remove' else not row['deleted'] and row['state']['tag'] == op['tag'])
        if not there and history.survives(op):
            found.violation('what was saved is not there', op, row)
    for op in history.some('save', e='fail'):
        if op.get('locked') and op.get('sqlstate') == 'RV003':
            found.violation('a row that was locked was saved by somebody else', op)
    return found
