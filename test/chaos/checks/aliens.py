"""No error that nobody foresees, such as an internal one, or a deadlock where there can be none; and every line of the history is one of an operation that was begun."""
from found import Found


def check(history):
    found = Found()
    found.look(sum(len(ops) for ops in history.ops.values()))
    for line in history.aliens:
        found.violation(f"{line['sqlstate']}: {line['message']}", line)
    for line in history.broken:
        found.violation('an operation ended that was not begun, or ended twice', line)
    return found
