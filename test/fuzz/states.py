"""Which SQLSTATEs a hostile call may be answered with, and why. What is not here is a finding."""

# Of revenant: docs/errors.md has each, with what the caller should do. RV005 is not there: the library is preloaded.
OURS = {
    'RV001', 'RV002', 'RV003', 'RV004', 'RV006', 'RV007', 'RV008', '0A000', '22003', '22004', '22007', '22023', '25006', '40001', '40P01', '42501', '42704', '42710',
    '39P01', '42622', '42809', '42883', '42P01', '42P13', '42P17', '53200', '54000', '55000', '55006', '55P03', '2D000',
}

# Of PostgreSQL, also raised while a function of ours runs.
POSTGRESQL = {
    '57014': 'statement_timeout, or a cancel',
    '57P01': 'revoke() with terminate, or a task that ends its process',
    '57P05': 'the same, of a session that was idle',
    '25P02': 'the transaction has failed before',
    '25P01': 'COMMIT without a block, after an error that ended it',
    '25001': 'PREPARE TRANSACTION and the like within a block, a procedure that ends transactions',
    '40001': 'serializable transactions, and rows that changed under REPEATABLE READ',
    '40P01': 'a deadlock',
    '55P03': 'lock_timeout',
    '2D000': 'a procedure that ends its transaction is called in a block',
    '42P03': 'a cursor that exists',
    '3B001': 'a savepoint that an error has ended',
    '42P16': 'a table with a column of type void or record',
    '42501': 'no privilege',
    '42P01': 'a table that another session has dropped',
    '42P07': 'a table that exists',
    '42602': 'a name that cannot be one: create_snapshot_table, handler, planner_function',
    '42622': 'a name that is too long',
    '42601': 'a name with too many dots',
    '3F000': 'a schema that does not exist',
    '42939': 'a name that is reserved: pg_…',
    '42809': 'a relation of the wrong kind',
    '42883': 'a function that does not exist',
    '42P13': 'a function that is not what it should be',
    '42725': 'more than one function has that name',
    '42804': 'a handler of another type',
    '42704': 'a role, or an object that another session has dropped',
    '42710': 'a prepared transaction that exists',
    '54001': 'JSON that is nested too deeply: max_stack_depth',
    '54000': 'a value of more than 1 GB, an array of too many elements',
    '53200': 'the lock table is full',
    '22P02': 'a setting, or JSON, that is none',
    '22023': 'a value that a setting does not take',
    '55000': 'a setting that cannot be changed now',
    '55P02': 'a setting that cannot be changed now',
    '0A000': 'a statement that is not supported there',
    'XY001': "raised by the world's handler",
    'XY002': "raised by the world's terminator",
    '39004': "the world's planner or handler returned null",
}

# What the values themselves raise before a function is called: seen again when they are computed alone.
OF_VALUES = {'22P02', '22008', '22007', '22015', '22003', '22021', '22P05', '22030', '22000', '54000', '54001', '53200', '22012', '42704', '42601', '2201X', '22026', '22001', '42883', '42725', '22023',
             '0A000', '42P01', '25006', '2202E', '22P03', '42501', '34000', '42P03', '42804', '42846'}


def may_be(state, ours):
    """Whether an error, raised by revenant's own code or not, may be answered with this SQLSTATE."""
    return state in OURS if ours else state in POSTGRESQL or state in OURS
