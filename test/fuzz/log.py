"""What a server's log must not have."""
import re

# Lines that are findings by themselves.
FATAL = re.compile(r'PANIC|TRAP: |was terminated by signal|terminating any other active server processes|could not fork|AddressSanitizer|runtime error:|exited with exit code [2-9]|stuck spinlock')
# An internal error, with log_error_verbosity = verbose; where it is from and what it was in come on the next lines of the process.
INTERNAL = re.compile(r'(ERROR|FATAL|WARNING|LOG):  XX[0-9A-Z]{3}: ')
BELONGS = re.compile(r' (DETAIL|HINT|CONTEXT|LOCATION|STATEMENT|QUERY):  ')
PROCESS = re.compile(r' \[(\d+)\] ')

# Internal errors of PostgreSQL's own, with the reason why they are none of ours. Each is matched with its location.
KNOWN = [
    (r'failed to find conversion function from unknown to \w+.*coerce_type, parse_coerce\.c',
     'a string or NULL without a type, as a column of a subquery, is used as another type: PostgreSQL calls that internal'),
    (r'invalid INTERVAL typmod: .*LOCATION:  intervaltypmod\w+, timestamp\.c',
     'intervaltypmodout() is given any number'),
]


class Log:
    """Reads on from where it was."""

    def __init__(self, path):
        self.path = path
        self.place = 0

    def lines(self):
        with open(self.path, errors='replace') as file:
            file.seek(self.place)
            for line in iter(file.readline, ''):
                yield line.rstrip('\n')
            self.place = file.tell()

    def findings(self):
        found = []
        open_errors = {}                # process: an internal error and what belongs to it
        for line in self.lines():
            process = PROCESS.search(line)
            process = process.group(1) if process else None
            if FATAL.search(line):
                found.append([line])
            elif INTERNAL.search(line):
                open_errors[process] = [line]
                found.append(open_errors[process])
            elif process in open_errors and BELONGS.search(line):
                open_errors[process].append(line)
            elif process in open_errors:
                del open_errors[process]
        texts = ['\n'.join(lines)[:4000] for lines in found]
        return [text for text in texts if not any(re.search(pattern, text, re.DOTALL) for pattern, _ in KNOWN)]
