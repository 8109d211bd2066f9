"""What must hold of a history (lib/load.py) and of the tables at its end. Each returns what it found wrong, as lines to be read."""
import collections
import glob
import json
import re


def read_history(folder):
    events = []
    for name in glob.glob(f'{folder}/*.jsonl'):
        with open(name, encoding='utf-8') as file:
            events.extend(json.loads(line) for line in file)
    events.sort(key=lambda event: event['t'])
    return events


def of(events, what, kind='ok'):
    return [event for event in events if event['f'] == what and event['e'] == kind]


def aliens(events):
    return [f"{event['p']}: {event['f']}: {event['sqlstate']} {event['message']}" for event in events if event['e'] == 'alien']


def grants(events):
    """(invoked, granted, token, what) for each token that a client was given."""
    invoked = {(event['p'], event['op']): event['t'] for event in events if event['e'] == 'invoke'}
    found = []
    for event in events:
        if event['e'] == 'ok' and event['f'] in ('acquire', 'lead', 'claim') and event['result']:
            tokens = [epoch for _, epoch in event['result']] if event['f'] == 'claim' else [event['result']]
            found.extend((invoked[event['p'], event['op']], event['t'], token, f"{event['f']} by {event['p']}") for token in tokens)
    return found


def tokens_that_did_not_grow(events):
    """A token whose request was sent after another one's grant had come back must be greater."""
    all_grants = grants(events)
    moments = sorted([(sent, 1, token, what) for sent, _, token, what in all_grants] + [(got, 0, token, what) for _, got, token, what in all_grants])
    found = []
    highest = (0, 'nobody')
    for _, is_request, token, what in moments:
        if is_request and token <= highest[0]:
            found.append(f'{what} got {token}, after {highest[1]} had got {highest[0]}')
        elif not is_request and token > highest[0]:
            highest = (token, what)
    return found


def overlapping_beliefs(events):
    """Nobody gets a lease while another client may still count on it, by its own deadline from before its request."""
    found = []
    until = {}
    for event in events:
        lease = event.get('lease')
        if event['e'] != 'ok' or lease is None or lease == 'session':
            continue
        if event['f'] in ('hold', 'renew') and (event['f'] == 'hold' or event['result']):
            others = [(who, end) for (name, who), end in until.items() if name == lease and who != event['p'] and end > event['t']]
            found.extend(f"{event['p']} has {lease} {end - event['t']:.3f} s before {who} gave it up" for who, end in others)
            until[lease, event['p']] = event['until']
        elif event['f'] in ('release', 'drop'):
            # once it is asked to be released the holder does not count on it any more
            until[lease, event['p']] = 0
        # what is sent before its grant came back is seen by the order of the lines
    return found


def releases_first(events):
    """An invoked release ends the holder's belief, whether or not the answer arrives."""
    return [dict(event, e='ok') if event['e'] == 'invoke' and event['f'] == 'release' else event for event in events]


def fenced_writes_out_of_order(ledger):
    found = []
    highest = collections.defaultdict(int)
    for number, lease, token, _ in ledger:
        if token < highest[lease]:
            found.append(f'{lease}: row {number} with {token}, after {highest[lease]}')
        highest[lease] = max(highest[lease], token)
    return found


def confirmed_writes_missing(events, ledger):
    times = collections.Counter(identity for *_, identity in ledger)
    return [f"{event['p']}: {event['lease']} {event['token']} {event['id']} is there {times[event['id']]} times"
            for event in of(events, 'write') if times[event['id']] != 1]


def old_tokens_accepted(events):
    found = [f"fence: {event['p']} {event['lease']} {event['token']}" for event in of(events, 'old fence')]
    found += [f"{event['f']}: {event['p']} {event['token']}" for event in of(events, 'old renew') + of(events, 'old release') if event['result']]
    return found + [f"fence: {event['sqlstate']}" for event in of(events, 'old fence', 'fail') if event['sqlstate'] != 'RV001']


def replies_lost(events, states, effects):
    """The replies of an entity with one caller are 1, 2, 3, … as they come; its state and its effects are as many as the last one says, or one more."""
    found = []
    replies = collections.defaultdict(list)
    for event in of(events, 'call'):
        replies[event['id']].append(event['result'])
    done = collections.Counter(identity for identity, kind, _ in effects if kind == 'call')
    for identity, got in replies.items():
        if got != list(range(1, len(got) + 1)):
            first = next(i for i, (a, b) in enumerate(zip(got, range(1, len(got) + 1))) if a != b)
            found.append(f'{identity}: reply {first + 1} is {got[first]}')
        state = states.get(identity, 0)
        if not len(got) <= state <= len(got) + 1 or done[identity] != state:
            found.append(f'{identity}: {len(got)} replies, state {state}, {done[identity]} effects')
    return found


def messages_not_once(events, effects):
    found = []
    times = collections.Counter((what['from'], what['n']) for _, kind, what in effects if kind != 'call')
    for event in of(events, 'send') + of(events, 'send_after'):
        if times.pop((event['p'], event['n']), 0) != 1:
            found.append(f"{event['p']} {event['n']}, {event['f']} confirmed, was not delivered once")
    return found + [f'{who} {number}, whose outcome is not known, was delivered {count} times' for (who, number), count in times.items() if count > 1]


def messages_out_of_order(effects):
    found = []
    highest = collections.defaultdict(int)
    for identity, kind, what in effects:
        if kind == 'send':
            if what['n'] < highest[what['from'], identity]:
                found.append(f"{what['from']} to {identity}: {what['n']} after {highest[what['from'], identity]}")
            highest[what['from'], identity] = what['n']
    return found


def splits_not_once(events, splits, split_effects):
    """What was published is done, and what is done has one effect, by the last epoch."""
    found = []
    epochs = collections.defaultdict(list)
    for split, epoch in split_effects:
        epochs[split].append(epoch)
    for split, (state, epoch) in splits.items():
        if state != 'done' or epochs.pop(split, []) != [epoch]:
            found.append(f'{split}: {state}, epoch {epoch}')
    found += [f'{split}: an effect, and no such split' for split in epochs]
    return found + [f'{split} was published and is not there' for event in of(events, 'publish') for split in event['splits'] if split not in splits]


def runs_that_overlap(beats):
    """The beats of a run lie between those of the one before and those of the one after it."""
    found = []
    highest = 0
    nodes = {}
    for number, token, node in beats:
        if token < highest:
            found.append(f'beat {number}, of {token}, after one of {highest}')
        highest = max(highest, token)
        if nodes.setdefault(token, node) != node:
            found.append(f'beat {number}, of {token}, on {node}, and before on {nodes[token]}')
    return found


def bad_lines(files):
    """What a server says that nothing done to it explains."""
    bad = re.compile(r'PANIC|TRAP:|XX000|cannot go from phase|server process .* was terminated by signal (?!9)')
    found = []
    for name in files:
        with open(name, encoding='utf-8', errors='replace') as file:
            found.extend(f"{name.split('/')[-3]}: {line.rstrip()}" for line in file if bad.search(line))
    return found
