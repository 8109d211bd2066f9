"""TAP, and the folder that a test works in."""
import os
import pwd
import shutil
import sys
import tempfile
import traceback


class Tap:
    def __init__(self):
        self.count = 0
        self.failed = 0

    def ok(self, good, name, *evidence):
        """evidence is shown where it is not good."""
        self.count += 1
        print(f'{"ok" if good else "not ok"} {self.count} - {name}', flush=True)
        if not good:
            self.failed += 1
            for item in evidence:
                self.say(item)
        return good

    def none(self, found, name):
        """Good when nothing was found; shows the first of what was."""
        return self.ok(not found, name, f'{len(found)} found', *found[:10])

    def equal(self, got, wanted, name):
        return self.ok(got == wanted, name, f'got:    {got}', f'wanted: {wanted}')

    @staticmethod
    def say(text):
        for line in str(text).splitlines():
            print(f'# {line}', file=sys.stderr, flush=True)

    def end(self):
        print(f'1..{self.count}', flush=True)
        return 1 if self.failed else 0


def user():
    return pwd.getpwuid(os.getuid()).pw_name


def run(test):
    """test(tap, place), in a folder that is gone afterwards, unless it failed and REVENANT_KEEP is set."""
    tap = Tap()
    place = tempfile.mkdtemp(prefix='ha.')
    try:
        test(tap, place)
    except Exception:                               # pylint: disable=broad-exception-caught
        tap.ok(False, 'the test came to its end', traceback.format_exc())
    if tap.failed and os.environ.get('REVENANT_KEEP'):
        tap.say(f'kept: {place}')
    else:
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(tap.end())
