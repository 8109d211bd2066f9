// An account: deposits that are made once, whatever happens to the connection.
//
//     node account.js ACCOUNT AMOUNT
//
// The connection comes from PGHOST, PGDATABASE and so on. See README.md here.
'use strict';

const { randomUUID } = require('crypto');
const { Client } = require('pg');

const ATTEMPTS = 60;
const account = process.argv[2];
const amount = Number(process.argv[3]);
const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

// Whether an error leaves open what became of the transaction, or is of the kind that the next attempt may not have: the
// connection (not from the server, or of class 08, 53, 57), a deadlock or a failed serialization (40), lock_timeout (55P03).
const again = (error) => error.severity === undefined || /^(08|40|53|57|55P03)/.test(error.code);

// One transaction. What it returns is true once it has committed.
async function once(requestId) {
  const client = new Client();
  client.on('error', () => {}); // the query says it, too
  try {
    await client.connect();
    await client.query('BEGIN');
    const { rows } = await client.query("SELECT revenant.call('account', $1, $2, request_id => $3) AS balance",
      [account, { do: 'deposit', amount }, requestId]);
    await client.query('COMMIT');
    return rows[0].balance;
  } finally {
    await client.end().catch(() => {});
  }
}

// The balance after it. The same request again is answered again, and not done again.
async function deposit() {
  const requestId = randomUUID(); // before the first attempt: it stands for this one deposit
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    try {
      return await once(requestId);
    } catch (error) {
      if (!again(error)) throw error;
      console.log('asks again:', error.code);
      await sleep(0.5);
    }
  }
  throw new Error('nobody knows whether it is done');
}

deposit().then(
  (balance) => console.log('balance:', balance),
  (error) => { console.error(error.message); process.exitCode = 1; });
