"""What the servers' logs may not have: an assertion, a panic, an internal error, a process that crashed or had to be killed."""
import re

# log_line_prefix is '%m [%p] %e %b %a: '
BAD = re.compile(r' XX[0-9A-Z]{3} |PANIC|TRAP: |was terminated by signal (?!9\b)|issuing SIGKILL to recalcitrant')


class Mark:
    """Where the logs were when a fault began."""

    def __init__(self, nodes):
        self.sizes = {node.name: size(node) for node in nodes}


def size(node):
    try:
        with open(node.log, 'rb') as file:
            return file.seek(0, 2)
    except FileNotFoundError:
        return 0


def findings(nodes, spans):
    """
    (node, line, None or the fault that explains it) of each bad line. `spans` are (fault, what it explains, Mark of its beginning,
    Mark of its end): times would not do, since clocks are stepped. A server that panics says on its next lines of which signal it died, and
    that is explained by whatever explains the panic.
    """
    for node in nodes:
        with open(node.log, 'rb') as file:
            place = 0
            for raw in file:
                line = raw.decode(errors='replace').rstrip()
                if BAD.search(line):
                    yield node.name, line, next(
                        (name for name, explains, begin, end in spans
                         if begin.sizes[node.name] <= place < end.sizes[node.name] and any(text in line for text in explains)), None)
                place += len(raw)
