"""Hostile values, as SQL expressions: by the type of an argument, and by what its name says it means."""
import json
import string

NULL = 'NULL'


def literal(text):
    """A text as a literal. What SQL cannot have in one (a zero byte, a lone surrogate) is left out."""
    text = text.replace('\0', '').encode('utf-8', 'ignore').decode()
    return "E'" + text.replace('\\', '\\\\').replace("'", "\\'") + "'"


# Each kind of name, as the world has it, and some that it has not.
NAMES = {
    'lease': ['a', 'b', 'c', 'orders', 'guard', 'plan/p1', 'plan/p2', 'plan/p3', 'task/t1', 'task/t3', 'task/', 'plan/', 'plan', 'TASK/t1', 'task/t1/x'],
    'plan': ['p1', 'p1', 'p1', 'p1', 'p2', 'p2', 'p3', 'p4', 'plan/p1', 'P1'],
    'split': ['s1', 's2', 's3', 's4', 's5', 's17'],
    'worker': ['w1', 'w2', 'w3'],
    'task': ['t1', 't2', 't3', 't4', 'plan/p2', 'task/t1'],
    'type': ['account', 'account', 'page', 'page', 'other', 'new'],
    'id': ['i1', 'i2', 'i3'],
    'role': ['fz_none', 'fz_reader', 'fz_user', 'fz_team', 'fz_nologin', 'fz "quoted\'', 'public', 'PUBLIC', 'none', 'current_user', 'postgres', 'pg_signal_backend',
             'fz_admin', 'nobody_at_all'],
    'level': ['reader', 'user', 'admin', 'owner', 'USER'],
}
# Arguments and what they name.
MEANS = {
    'lease': 'lease', 'election': 'lease', 'plan': 'plan', 'split': 'split', 'worker': 'worker', 'candidate': 'worker', 'holder': 'worker', 'type': 'type', 'id': 'id',
    'role': 'role', 'level': 'level', 'run_as': 'role', 'name': 'task',
}
WORDS = {
    'restart': ['permanent', 'transient', 'temporary', 'always'],
    'catch_up': ['skip', 'once', 'all'],
    'durability': ['strict', 'interval', 'on_stop', 'relaxed'],
    'fingerprint': ['f1', 'f2'],
    'reason': ['normal', 'fail', 'why'],
    'command': ['SELECT 1', 'SELECT pg_catalog.pg_sleep(60)', 'SELECT 1/0', 'BEGIN', 'ROLLBACK', 'COPY (SELECT 1) TO STDOUT', 'SELECT 1; SELECT 2', '--', 'SELECT (', ';;;',
                'SELECT pg_terminate_backend(pg_backend_pid())', 'DO $$ BEGIN COMMIT; END $$', 'CALL nothing()', 'SET ROLE postgres', "NOTIFY x, 'y'", 'PREPARE TRANSACTION \'x\'',
                "SELECT revenant.try_acquire('a')", 'SET search_path = fz; SELECT 1'],
    'timezone': ['UTC', 'Europe/Berlin', 'America/St_Johns', 'Australia/Lord_Howe', 'Antarctica/Troll', '<x>+167:59:59', 'XXX-167:59:59', 'AAA-100BBB,M3.5.0,M10.5.0',
                 'AAA-100BBB-99,0/0,J365/167', 'AAA3BBB-167,M3.5.0/-167,M3.5.0/167', 'right/UTC', '../../etc/passwd', '/etc/passwd', 'utc', 'posixrules', 'PST8PDT', 'Pacific/Apia', 'x' * 300],
    'routine': ['fz.handler', 'fz.start', 'fz.upgrade', 'fz.finish', 'fz.planner', 'fz.bad_planner', 'handler', 'pg_catalog.lower', 'revenant.call', 'revenant._guard', 'fz."handler"',
                '"fz"."handler"', 'fz.handler(text, jsonb, jsonb)', 'a.b.c.d', 'postgres.fz.handler', '.', '..', 'fz.', '.handler', '"', '""', '"".""', 'fz.""', "fz.'x'", 'fz . handler',
                'FZ.HANDLER', 'fz.accounts', '"unterminated', 'pg_catalog.count', 'x' * 64 + '.' + 'y' * 200],
}
for argument in ('handler', 'initializer', 'upgrade', 'terminator', 'planner_function'):
    WORDS[argument] = WORDS['routine']

INTERVALS = ['0', '1 us', '-1 us', '100 ms', '99.999 ms', '300 ms', '1 s', '1 min', '10 years', '10 years 1 us', '3652 days 12 h', '120 months', '1 month -30 days', '-1 month 30 days', '-1 s', '2147483647 months',
             '-2147483648 months', '2147483647 days', '-2147483648 days', '178000000 years', '-178000000 years', '2562047788:00:54.775807', '-2562047788:00:54.775808',
             '178000000 years 2147483647 days 2562047788:00:54', '1 month', '0.0000004 s', 'P1Y', 'PT1S', '5 ms', '20 ms']
TIMES = ['now', 'infinity', '-infinity', 'epoch', '4714-11-24 00:00:00+00 BC', '294276-12-31 23:59:59.999999+00', '0001-01-01', '0044-03-15 BC', '4000-02-29 BC', '2026-03-29 01:30+00',
         '2025-10-26 00:30+00', '1883-11-18 17:00+00', '2100-02-28', 'yesterday', 'tomorrow', '1969-12-31 23:59:59.999999+00', '294276-01-31', '1900-01-01']
INT8 = ['0', '1', '-1', '2', '1000', '9223372036854775807', '-9223372036854775808', '9223372036854775806', '4611686018427387904', '1099511627775', '1099511627776', '1099511627777', '2199023255553',
        '4294967295', '4294967296', '2147483648', '4611684919461249024']
INT4 = ['0', '1', '2', '3', '-1', '5', '100', '1000', '1001', '65536', '2147483647', '-2147483648']
NUMERIC = ["'NaN'", "'Infinity'", "'-Infinity'", '0', '-0.0', '1', '2', '3.5', '-1', '1e131071', '-1e131071', '1e-16383', "repeat('9', 100000)::numeric", "('0.' || repeat('7', 16000))::numeric",
           '9223372036854775807', '9223372036854775808', '1e400', '0.1']
RELATIONS = ['fz.accounts', 'fz.pages', 'fz.guarded', 'fz.plain', 'fz.parted', 'fz.part', 'fz.parent', 'fz.child', 'fz.unlogged', 'fz.seen', 'fz.kept', 'fz.numbers', 'fz.plain_pkey',
             'fz."quo""ted \'é"', 'pg_catalog.pg_class', 'pg_catalog.pg_authid', 'revenant.lease', 'revenant.leases', 'revenant.task', 'revenant.split', 'revenant.snapshot', 'revenant._token_lineage',
             'information_schema.tables', 'fz.accounts_history', 'fz.new1', 'fz.new2']
UUIDS = ['00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'a0000000-0000-4000-8000-000000000001', 'a0000000-0000-4000-8000-000000000002',
         'a0000000-0000-4000-8000-000000000003']
# What alter_… may change, and what it may not.
FIELDS = {
    'alter_task': ['command', 'schedule', 'timezone', 'follower_command', 'run_as', 'restart', 'max_restarts', 'restart_window', 'backoff_min', 'backoff_max', 'timeout', 'catch_up', 'claim_delay',
                   'lease', 'settings', 'enabled', 'metadata', 'name', 'nothing', ''],
    'alter_plan': ['fingerprint', 'planner_function', 'replan_every', 'lease_ttl', 'max_attempts', 'max_in_flight', 'rebalance_delay', 'drain_deadline', 'metadata', 'plan', 'owner', ''],
    'alter_entity_type': ['handler', 'initial_state', 'initializer', 'vsn', 'upgrade', 'durability', 'flush_every', 'idle_timeout', 'terminator', 'snapshots', 'type', ''],
}
SETTINGS = ['search_path', 'work_mem', 'statement_timeout', 'TimeZone', 'DateStyle', 'role', 'session_authorization', 'transaction_isolation', 'default_transaction_read_only', 'synchronous_commit',
            'revenant.enabled', 'revenant.databases', 'revenant.session_leases', 'revenant.nothing', 'fz.mine', 'no_such_setting', 'shared_buffers', 'data_directory', 'client_encoding',
            'server_encoding', 'is_superuser', 'seed', 'lc_messages', 'temp_tablespaces', 'row_security', 'application_name', 'a b', '', '.', 'x.', '"', 'log_min_messages', 'session_replication_role',
            'default_table_access_method', 'event_source', 'unix_socket_directories']
SCHEDULES = ['* * * * *', '*/5 * * * *', '@hourly', '@reboot', '1 s', '5 min', '1 month', '90 s', '1 h 30 min', '0 0 29 2 *', '0 0 30 2 *', '@', '@@', '1', '1:00', '-1 s', '0 s', '1 us', '1 ms',
            '178000000 years', '2147483647 months 2147483647 days', '1 month 1 us', 'infinity', 'P1M', 'PT0.001S', 'P1Y2M3DT4H5M6S', '1.5 months', '1e3 s', '* * * * * *', '1-59/7 0-23 1,2,3 jan-dec mon-sun']

# What a function's answer is called as an argument of others; of the rest it is a token.
ANSWERS = {'lead_plan': 'generation', 'claim_splits': 'epoch', 'join_plan': 'member', 'send': 'message_id', 'send_after': 'timer', 'save': 'expected_version', 'remove': 'expected_version'}

# The server's settings that are text, and what is near to a value of theirs.
TEXT_SETTINGS = {
    'revenant.databases': ['', 'fuzz', 'fuzz, fuzz_ascii', '"fuzz"', '"a""b", c', '"unterminated', ',', 'a,,b', 'a b', 'a,', '"', '""', 'é', 'x' * 5000, 'FUZZ,"Fuzz"'],
    'revenant.log_events': ['off', 'transitions', 'all', 'task.', 'task.held, lease', 'lease,, ,task', ',', '', 'off, all', 'nothing', 'OFF', 't', 'x' * 5000, 'plan.complete,plan.completed'],
    'revenant.node_name': ['', 'node', 'é', 'x' * 5000, '"', "'", '\\', '%s', '\u202e', '{"a": 1}'],
    'revenant.notify': ['on', 'off', '2', '', 'tru'],
}


class Values:
    """Draws values. `random` is seeded; `ascii` is a database without an encoding, `major` the server's version."""

    def __init__(self, random, major=15, raw_bytes=False):
        self.random = random
        self.major = major
        self.raw_bytes = raw_bytes
        self.numbers = []               # answers of earlier calls: tokens, epochs, message ids
        self.known = {}                 # the same by what they are
        self.claims = []                # (split, epoch)

    def remember(self, function, number):
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            for numbers in (self.numbers, self.known.setdefault(ANSWERS.get(function, 'token'), [])):
                numbers.append(number)
                del numbers[:-12]

    def remember_claim(self, split, epoch):
        self.remember('claim_splits', epoch)
        self.claims.append((split, epoch))
        del self.claims[:-12]

    # ---------------------------------------------------------------- text

    def characters(self, length):
        alphabets = (string.ascii_letters, string.printable, 'äöüßéñ', '日本語한국어', '\u202e\u200b\ufeff\u0301', "'\"\\/.,;:%$@*()[]{}", '\x01\x02\x1b\x7f\r\n\t ', '\U0010ffff\U0001f600\ue000')
        return ''.join(self.random.choice(self.random.choice(alphabets)) for _ in range(length))

    def any_text(self):
        r = self.random
        kind = r.randrange(12)
        if kind == 0:
            return NULL
        if kind == 1:
            return literal(r.choice(['', ' ', "'", '"', "''; DROP TABLE x; --", '\\', '%s%n%d', '/', '//', '../..', '\n', '\x01', '\ufeff', '\u202e', 'NULL', 'null', 'true', '-1', '$1', '$$', '--', '/*', '{}', '[]']))
        if kind == 2:
            return f"repeat('x', {r.choice([63, 64, 127, 128, 255, 256, 511, 512, 513, 1023, 8191, 8192])})"
        if kind == 3:
            return f"repeat('é', {r.choice([31, 32, 127, 128, 255, 256, 257, 4096])})"
        if kind == 4:
            return f"repeat({literal(self.characters(r.randint(1, 3)))}, {r.choice([100, 171, 1000, 100000])})"
        if kind == 5:
            return f"chr({r.choice([1, 127, 128, 255, 256, 8232, 55295, 57344, 65535, 65536, 1114111])})"
        if kind == 6 and self.raw_bytes:
            return "convert_from(decode('" + bytes(r.randint(1, 255) for _ in range(r.choice([1, 2, 5, 512]))).hex() + "', 'hex'), 'SQL_ASCII')"
        if kind == 7 and r.randrange(20) == 0:
            return "repeat('y', 5000000)"
        return literal(self.characters(r.choice([1, 2, 3, 8, 30, 200])))

    def word(self, words):
        r = self.random
        chosen = r.choice(words)
        if r.randrange(8) == 0:
            chosen = self.bent(chosen)
        return literal(chosen)

    def bent(self, text):
        """The text with a few accidents."""
        r = self.random
        for _ in range(r.randint(1, 4)):
            place = r.randint(0, len(text))
            change = r.randrange(4)
            if change == 0:
                text = text[:place] + self.characters(1) + text[place:]
            elif change == 1:
                text = text[:place] + text[place + 1:]
            elif change == 2:
                text = text[:place] + text[place:][:r.randint(1, 9)] * r.randint(1, 3) + text[place:]
            else:
                text = text.swapcase()
        return text

    def schedule(self):
        r = self.random
        if r.randrange(2):
            return self.word(SCHEDULES)

        def item(low, high, names):
            if r.randrange(3) == 0:
                base = '*'
            elif names and r.randrange(3) == 0:
                base = r.choice(names)
            else:
                base = str(r.choice([low, high, low - 1, high + 1, r.randint(low, high), 99999999999]) if r.randrange(4) == 0 else r.randint(low, high))
            if r.randrange(4) == 0:
                base += '-' + str(r.randint(low, high))
            if r.randrange(4) == 0:
                base += '/' + str(r.choice([0, 1, 2, 7, high, high + 1]))
            return base

        fields = [(0, 59, None), (0, 59, None), (0, 23, None), (1, 31, None), (1, 12, ['jan', 'Feb', 'DEC', 'foo']), (0, 7, ['sun', 'Mon', 'SAT', 'xyz'])][r.randrange(2):]
        if r.randrange(20) == 0:
            fields = fields[:r.randrange(6)]
        text = r.choice([' ', ' ', '\t', '  ', '\n']).join(','.join(item(*field) for _ in range(r.choice([1, 1, 1, 2, 5]))) for field in fields)
        return literal(self.bent(text) if r.randrange(6) == 0 else text)

    def text(self, function, argument):
        r = self.random
        if r.randrange(10) == 0:
            return self.any_text()
        if argument == 'schedule':
            return self.schedule()
        if argument == 'command' and 'command' in WORDS or argument == 'follower_command':
            return self.word(WORDS['command'])
        if argument in WORDS:
            return self.word(WORDS[argument])
        if function == 'create_snapshot_table':
            return self.word(['fz.new1', 'fz.new2', 'new3', 'revenant.new', 'pg_catalog.new', 'fz."', 'a.b.c', 'pg_temp.t', '"fz"."new1"', 'fz.' + 'x' * 63, 'fz.' + 'x' * 64, 'fz.accounts'])
        if argument in MEANS:
            return self.word(NAMES[MEANS[argument]])
        return self.any_text()

    def server_setting(self):
        """The name of a setting, and a literal for it."""
        r = self.random
        name = r.choice(sorted(TEXT_SETTINGS))
        return name, self.word(TEXT_SETTINGS[name]) if r.randrange(4) else literal(self.characters(r.choice([1, 5, 60])))

    # ---------------------------------------------------------------- JSON

    def json_value(self, depth=0):
        """A Python value for json.dumps()."""
        r = self.random
        kind = r.randrange(10 if depth < 3 else 7)
        if kind == 0:
            return None
        if kind == 1:
            return r.choice([True, False])
        if kind in (2, 3):
            return r.choice([0, 1, -1, 2, 1.5, 1e300, 2**31, 2**63, 2**64, -2**63, 10**40, 1099511627777, 0.1])
        if kind in (4, 5, 6):
            return self.characters(r.choice([0, 1, 5, 40])).replace('\0', '')
        if kind == 7:
            return [self.json_value(depth + 1) for _ in range(r.randrange(5))]
        return {self.characters(r.randrange(4)).replace('\0', ''): self.json_value(depth + 1) for _ in range(r.randrange(4))}

    def any_json(self):
        r = self.random
        kind = r.randrange(14)
        if kind == 0:
            return NULL
        if kind == 1:
            return "(repeat('[', {0}) || repeat(']', {0}))::jsonb".format(r.choice([10, 200, 1000, 3000]))
        if kind == 2:
            depth = r.choice([10, 500, 2000])
            return "(repeat('{\"a\":', " + str(depth) + ") || '1' || repeat('}', " + str(depth) + "))::jsonb"
        if kind == 3:
            return f"to_jsonb(repeat('m', {r.choice([8000, 8188, 8190, 8191, 8192, 70000])}))"
        if kind == 4:
            return f"(SELECT jsonb_agg(g) FROM generate_series(1, {r.choice([10, 1000, 20000])}) AS g)"
        if kind == 5:
            return r.choice(["'null'::jsonb", "'true'::jsonb", "'1'::jsonb", "'\"x\"'::jsonb", "'{}'::jsonb", "'[]'::jsonb", "'1e400'::jsonb", "'[[]]'::jsonb", "'[null]'::jsonb", "'{\"\":null}'::jsonb",
                             "'{\"a\":1,\"a\":2}'::jsonb", "'-0'::jsonb", "'1e-400'::jsonb"])
        return self.as_jsonb(self.json_value())

    @staticmethod
    def as_jsonb(value):
        return literal(json.dumps(value)) + '::jsonb'

    def json_object(self, keys, value_of, share=3):
        """An object with some of the keys; now and then what is none."""
        r = self.random
        if r.randrange(15) == 0:
            return self.json_value()
        value = {key: (self.json_value() if r.randrange(6) == 0 else value_of(key)) for key in keys if r.randrange(share) == 0}
        if r.randrange(12) == 0:
            value[self.characters(2)] = self.json_value()
        return value

    def element(self, key):
        """What a key of a split, a commit or a message is mostly given."""
        r = self.random
        if key in ('id', 'split'):
            return r.choice(NAMES['split'] + ['', 'x' * 512, 'x' * 513, 'é' * 256, 'é' * 257, '\u0001', ' '])
        if key == 'weight':
            return r.choice([0, 1, 2, 5, 1.5, -1, 2**40, 2**40 + 1, 10**30])
        if key == 'epoch':
            return r.choice(self.numbers + [0, 1, -1, 2**63 - 1, 2**63, 1.5])
        if key == 'watermark':
            return r.choice([0, 1, 2, 3, 1.5, -1, 10**30, 1e300])
        if key == 'done':
            return r.choice([True, False])
        if key == 'seed':
            return self.json_object(['progress', 'watermark', 'done'], self.element, 2)
        return self.json_value()

    def change(self, key):
        r = self.random
        if key in ('replan_every', 'lease_ttl', 'rebalance_delay', 'drain_deadline', 'flush_every', 'idle_timeout', 'restart_window', 'backoff_min', 'backoff_max', 'timeout', 'claim_delay'):
            return r.choice(INTERVALS + ['', 'x', '1', 'infinity'])
        if key in ('max_attempts', 'max_in_flight', 'max_restarts', 'vsn'):
            return r.choice([0, 1, 2, 5, 100, 101, -1, 10**6, 10**6 + 1, 2**31 - 1, 2**31, 10**30, 1.0, 1.5])
        if key == 'schedule':
            return r.choice(SCHEDULES)
        if key == 'settings':
            return self.settings()
        if key == 'enabled':
            return r.choice([True, False])
        if key in WORDS:
            return r.choice(WORDS[key])
        if key == 'follower_command':
            return r.choice(WORDS['command'])
        if key in MEANS:
            return r.choice(NAMES[MEANS[key]])
        if key == 'snapshots':
            return r.choice(RELATIONS)
        return self.json_value()

    def settings(self):
        r = self.random
        return {r.choice(SETTINGS): r.choice(['1', 'on', 'off', '', 'x' * 2000, 'UTC', 'fz, public', 1, 1.5, -1, 10**30, True, None, [], {}, '\u0001', '"', 'postgres', '1 min', '64MB', 'serializable'])
                for _ in range(r.randrange(4))}

    def json(self, function, argument):
        r = self.random
        if r.randrange(8) == 0:
            return self.any_json()
        if argument == 'changes':
            return self.as_jsonb(self.json_object(FIELDS[function], self.change, 5))
        if argument == 'splits':
            if r.randrange(20) == 0:
                return f"(SELECT jsonb_agg(jsonb_build_object('id', 's' || g, 'weight', g % 7)) FROM generate_series(1, {r.choice([1000, 1001, 5000])}) AS g)"
            return self.as_jsonb([self.json_object(['id', 'id', 'spec', 'weight', 'seed'], self.element, 2) if r.randrange(10) else self.json_value() for _ in range(r.randrange(6))])
        if argument == 'commits':
            return self.as_jsonb([self.json_object(['split', 'epoch', 'progress', 'watermark', 'done'], self.element, r.choice([1, 1, 2])) for _ in range(r.randrange(5))])
        if argument == 'settings':
            return self.as_jsonb(self.settings())
        if argument == 'message':
            return self.as_jsonb({'do': r.choice(['fail', 'stop', 'keep', 'none', 'call', 'send', 'sleep', 'x']), 'reason': r.choice(['normal', 'fail', '']), 'type': r.choice(NAMES['type']),
                                  'id': r.choice(NAMES['id']), 'message': {'do': r.choice(['keep', 'call', 'fail'])}})
        return self.any_json()

    # ---------------------------------------------------------------- the other types

    def number(self, choices):
        return f'({self.random.choice(choices)})'

    def array(self, element, function, argument):
        r = self.random
        kind = r.randrange(12)
        of = f'::{element}[]'
        if kind == 0:
            return NULL
        if kind == 1:
            return "'{}'" + of
        if kind == 2:
            return f"array_fill({self.value(element, function, argument)}::{element}, ARRAY[{r.choice([1, 1000, 1001, 50000])}])"
        if kind == 3:
            return f"array_fill({self.value(element, function, argument)}::{element}, ARRAY[2,2], ARRAY[{r.choice([-3, 0, 5])},2147483640])"
        if kind == 4 and element == 'text':
            return f"(SELECT array_agg('many' || g) FROM generate_series(1, {r.choice([100, 999, 1000, 1001])}) AS g)"
        if kind == 5:
            return f"array_append('[5:6]={{1,2}}'{of}, NULL)"
        return 'ARRAY[' + ', '.join(self.value(element, function, argument) for _ in range(r.randint(1, 5))) + ']' + of

    def value(self, kind, function, argument):
        """An expression for an argument."""
        r = self.random
        singular = {'leases': 'lease', 'splits': 'split', 'snapshots': 'snapshots'}.get(argument, argument)
        if r.randrange(30) == 0:
            return NULL
        if kind == 'text':
            return self.text(function, argument)
        if kind == 'jsonb':
            return self.json(function, argument)
        if kind == 'interval':
            if r.randrange(10) == 0:
                return f"make_interval(months => {self.number(INT4)}, days => {self.number(INT4)}, secs => {r.choice(['0', '1e9', '-1e9', '0.1', '1e12'])})"
            return f"interval {literal(r.choice(INTERVALS + (['infinity', '-infinity'] if self.major >= 17 else [])))}"
        if kind == 'bigint':
            return self.number(self.known[argument] if self.known.get(argument) and r.randrange(4) else INT8 if not self.numbers or r.randrange(2) else self.numbers)
        if kind == 'integer':
            return self.number(INT4)
        if kind == 'numeric':
            return f"{r.choice(NUMERIC)}::numeric"
        if kind == 'boolean':
            return r.choice(['true', 'false'])
        if kind == 'uuid':
            return f"uuid '{r.choice(UUIDS)}'"
        if kind == 'timestamp with time zone':
            return f"timestamptz {literal(r.choice(TIMES))}"
        if kind == 'regclass':
            if r.randrange(5) == 0:
                return r.choice(["0::regclass", "4294967295::oid::regclass", "'pg_toast.pg_toast_1255'::regclass", "1259::regclass", "to_regclass('fz.new1')"])
            return f"to_regclass({literal(r.choice(RELATIONS))})"
        if kind == 'xid8':
            return f"xid8 '{r.choice(['0', '1', '2', '3', '700', '4294967295', '4294967296', '18446744073709551615', '9223372036854775808'])}'" if r.randrange(4) else 'pg_current_xact_id()'
        if kind == 'pg_lsn':
            return f"pg_lsn '{r.choice(['0/0', '0/1', 'FFFFFFFF/FFFFFFFF', '0/FFFFFFFF', '80000000/0'])}'" if r.randrange(4) else 'pg_current_wal_insert_lsn()'
        if kind.endswith('[]'):
            return self.array(kind[:-2], function, singular)
        return NULL
