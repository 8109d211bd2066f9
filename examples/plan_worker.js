// A worker: of all programs that run this, each split of the plan "example" is done by one, once.
//
//     node plan_worker.js WORKER
//
// The connection comes from PGHOST, PGDATABASE and so on. See README.md here.
'use strict';

const { Client } = require('pg');

const PLAN = 'example';
const worker = process.argv[2];
const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
let claimed; // {split, epoch, spec}: when a connection breaks it may be done, or not

// Whether the connection is gone (what says so is not from the server, or its last word); somebody else has the split, or may have it
// in a moment; another attempt may well go: a deadlock, a failed serialization, a lack of something, a timeout.
const isBroken = (error) => error.severity === undefined || error.severity === 'FATAL';
const isLate = (error) => error.code === 'RV001' || error.code === 'RV002';
const again = (error) => /^(08|40|53|57|55P03)/.test(error.code);

// One transaction: the writes of a split, and that it is done. If somebody else has it, all of it rolls back.
async function work(client, { split, epoch, spec }) {
  await client.query('BEGIN');
  try {
    await client.query('SELECT revenant.fence_split($1, $2, $3)', [PLAN, split, epoch]);
    await client.query('UPDATE customer SET points = points + 10 WHERE id BETWEEN $1 AND $2', [spec.from, spec.to]);
    await client.query('SELECT revenant.commit_split($1, $2, $3, done => true)', [PLAN, split, epoch]);
    await client.query('COMMIT');
  } catch (error) {
    if (!isBroken(error)) await client.query('ROLLBACK');
    throw error;
  }
}

// Anybody can claim it anew, unless it is done or somebody else's already.
async function giveBack(client, { split, epoch }, reason) {
  try {
    await (reason === undefined
      ? client.query('SELECT revenant.release_split($1, $2, $3)', [PLAN, split, epoch])
      : client.query('SELECT revenant.fail_split($1, $2, $3, $4)', [PLAN, split, epoch, reason]));
  } catch (error) {
    if (!isLate(error)) throw error;
  }
}

async function isOver(client) {
  const { rows } = await client.query("SELECT state IN ('complete', 'stalled') AS over FROM revenant.plans WHERE plan = $1", [PLAN]);
  return rows[0].over;
}

// Does one split, or waits for one. False: there will be none any more. An epoch is text: it may be greater than 2^53.
async function step(client) {
  claimed = (await client.query('SELECT split, epoch::text, spec FROM revenant.claim_splits($1, $2)', [PLAN, worker])).rows[0];
  if (!claimed) {
    if (await isOver(client)) return false;
    await client.query("CALL revenant.await_splits($1, NULL, '5 s')", [PLAN]);
    return true;
  }
  try {
    await work(client, claimed);
    console.log('done:', claimed.split);
  } catch (error) {
    if (isBroken(error)) throw error;
    console.log('not done:', claimed.split, error.code);
    if (!isLate(error)) await giveBack(client, claimed, again(error) ? undefined : error.message);
  }
  return true;
}

(async () => {
  for (;;) {
    const client = new Client();
    client.on('error', () => {}); // the query says it, too
    try {
      await client.connect();
      if (claimed) await giveBack(client, claimed); // from before the connection broke: never again by the same epoch
      while (await step(client));
      await client.end();
      return;
    } catch (error) {
      await client.end().catch(() => {});
      if (!isBroken(error) && !again(error)) throw error;
      console.log('connects again:', error.code);
      await sleep(0.2);
    }
  }
})().catch((error) => { console.error(error.message); process.exitCode = 1; });
