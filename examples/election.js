// An election: of all programs that run this, one at a time appends to the table "work".
//
//     node election.js CANDIDATE [TTL_SECONDS]
//
// The connection comes from PGHOST, PGDATABASE and so on. See README.md here.
'use strict';

const { Client } = require('pg');

const ELECTION = 'example';
const candidate = process.argv[2];
const ttl = Number(process.argv[3] || 30);
const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const now = () => performance.now() / 1000;

// One call of claim() or refresh(). The token is text: it may be greater than 2^53.
async function ask(client, call, ...args) {
  const { rows } = await client.query(
    `SELECT is_leader, token::text, extract(epoch FROM refresh_after)::float8 AS after FROM revenant.${call}`, args);
  return rows[0];
}

// One transaction of what only a leader may do. If fence() returns, nobody else leads before it ends.
async function work(client, token) {
  await client.query('BEGIN');
  await client.query('SELECT revenant.fence($1, $2)', [ELECTION, token]);
  await client.query('INSERT INTO work (candidate, token) VALUES ($1, $2)', [candidate, token]);
  await client.query('COMMIT');
}

async function run(client) {
  let answer = { token: null };
  for (;;) {
    const sent = now(); // one's own deadline counts from before the request
    answer = answer.token === null
      ? await ask(client, 'claim($1, $2, make_interval(secs => $3))', ELECTION, candidate, ttl)
      : await ask(client, 'refresh($1, $2)', ELECTION, answer.token);
    console.log(answer.is_leader ? 'leads' : 'waits');
    while (answer.is_leader && now() < sent + answer.after) {
      await work(client, answer.token);
      await sleep(0.02);
    }
    if (!answer.is_leader) await sleep(answer.after);
  }
}

(async () => {
  for (;;) {
    const client = new Client();
    client.on('error', () => {}); // the next query says it, too
    try {
      await client.connect();
      await run(client);
    } catch (error) { // RV001, RV002: somebody else leads now; else the connection
      console.log('lost:', error.code);
      await client.end().catch(() => {});
      await sleep(0.1);
    }
  }
})();
