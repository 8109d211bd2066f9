"""
No two fenced effects are out of token order. The rows of a stream have numbers that were given under a row lock, in the transaction that was fenced: so their order
is that of the commits. An exclusive token is no less than any before it; a shared one no less than any exclusive one before it, since many of them live beside each other.
"""
import collections

from found import Found


def check(history):
    found = Found()
    streams = collections.defaultdict(list)
    for row in history.final['effect']:
        streams[row['stream']].append(row)
    last_number = {row['stream']: row['n'] for row in history.final['serial']}
    for stream, rows in streams.items():
        rows.sort(key=lambda row: row['n'])
        exclusive = shared = None           # the row of the greatest token of each until here
        for number, row in enumerate(rows, 1):
            found.look()
            if row['n'] != number:
                found.violation(f'{stream} has no effect {number}, or two', row)
                break
            if row['token'] is None:
                found.violation(f'an effect on {stream} without a token', row)
                continue
            against = [exclusive] if row['shared'] else [exclusive, shared]
            for earlier in against:
                if earlier is not None and row['token'] < earlier['token']:
                    found.violation(f'{stream}: an effect by an older token came after one by a newer', earlier, row)
            if row['shared'] and (shared is None or row['token'] > shared['token']):
                shared = row
            elif not row['shared'] and (exclusive is None or row['token'] > exclusive['token']):
                exclusive = row
        else:
            if last_number.get(stream) != len(rows):
                found.violation(f'{stream} has {len(rows)} effects, and its last number is {last_number.get(stream)}')
    return found
