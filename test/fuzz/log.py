"""What a server's log must not have."""
import re

# Lines that end a run.
FATAL = re.compile(r'PANIC|TRAP: |was terminated by signal|terminating any other active server processes|could not fork|AddressSanitizer|runtime error:|exited with exit code [2-9]')
INTERNAL = re.compile(r' XX[0-9A-Z]{3} |stuck spinlock')

# Errors of PostgreSQL's own that it calls internal, each with the reason.
KNOWN = []


class Log:
    """Reads on from where it was."""

    def __init__(self, path, known=KNOWN):
        self.path = path
        self.known = known
        self.place = 0

    def lines(self):
        with open(self.path, errors='replace') as file:
            file.seek(self.place)
            for line in iter(file.readline, ''):
                yield line.rstrip('\n')
            self.place = file.tell()

    def findings(self):
        return [line[:3000] for line in self.lines()
                if (FATAL.search(line) or INTERNAL.search(line)) and not any(re.search(pattern, line) for pattern, _ in self.known)]
