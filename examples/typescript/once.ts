// Handles an event once: its key and its work are one transaction.
import pg from 'pg'

export interface Received {
  topic: string
  key: string
  value: string
  headers: Map<string, string>
}

const consumer = 'billing' // in the table; no other handler has this name

function keyOf(event: Received): string {
  const key = event.headers.get('idempotency_key')
  if (key) return `${event.topic}/k/${key}`
  const id = event.headers.get('id')
  if (!id) throw new Error(`a record of ${event.topic} has no header id`)
  return `${event.topic}/i/${id}`
}

async function handle(tx: pg.PoolClient, event: Received): Promise<void> {
  const { amount } = JSON.parse(event.value) as { amount: number }
  await tx.query('INSERT INTO ledger (order_id, event, amount) VALUES ($1, $2, $3)', [event.key, event.headers.get('eventType'), amount])
}

/** False: it was done before. */
export async function once(pool: pg.Pool, event: Received): Promise<boolean> {
  const tx = await pool.connect()
  let broken: Error | undefined
  try {
    await tx.query('BEGIN')
    const claim = await tx.query('INSERT INTO inbox (consumer, key, at) VALUES ($1, $2, now()) ON CONFLICT DO NOTHING', [consumer, keyOf(event)])
    if (claim.rowCount) await handle(tx, event)
    const end = await tx.query('COMMIT')
    if (end.command !== 'COMMIT') throw new Error('handle hid a failed statement: nothing is committed')
    return claim.rowCount === 1
  } catch (error) {
    await tx.query('ROLLBACK').catch((reason: Error) => { broken = reason })
    throw error
  } finally {
    tx.release(broken)
  }
}
