// Places orders and takes payments. Each change and its event are one transaction.
import { randomUUID } from 'node:crypto'
import pg from 'pg'

interface Event {
  aggregateType: string
  aggregateId: string
  type: string
  payload: unknown
  idempotencyKey: string
}

async function inTransaction<T>(pool: pg.Pool, work: (tx: pg.PoolClient) => Promise<T>): Promise<T> {
  const tx = await pool.connect()
  let broken: Error | undefined
  try {
    await tx.query('BEGIN')
    const result = await work(tx)
    const end = await tx.query('COMMIT')
    if (end.command !== 'COMMIT') throw new Error('a failed statement was hidden: nothing is committed')
    return result
  } catch (error) {
    await tx.query('ROLLBACK').catch((reason: Error) => { broken = reason })
    throw error
  } finally {
    tx.release(broken) // a connection that cannot roll back does not go back to the pool
  }
}

async function emit(tx: pg.PoolClient, event: Event): Promise<void> {
  await tx.query(
    `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, idempotency_key)
     VALUES ($1, $2, $3, $4, $5, $6)`,
    [randomUUID(), event.aggregateType, event.aggregateId, event.type, JSON.stringify(event.payload), event.idempotencyKey],
  )
}

function about(order: string, type: string, amount: number): Event {
  // The key names the occurrence, not the content: the command run again makes the same key.
  return { aggregateType: 'order', aggregateId: order, type, payload: { amount }, idempotencyKey: `order:${order}:${type}` }
}

function place(pool: pg.Pool, total: number): Promise<string> {
  return inTransaction(pool, async (tx) => {
    const order = randomUUID()
    await tx.query('INSERT INTO orders (id, total) VALUES ($1, $2)', [order, total])
    await emit(tx, about(order, 'OrderPlaced', total))
    return order
  })
}

function pay(pool: pg.Pool, order: string): Promise<void> {
  return inTransaction(pool, async (tx) => {
    const { rows } = await tx.query<{ total: number }>('UPDATE orders SET paid = true WHERE id = $1 RETURNING total', [order])
    if (!rows[0]) throw new Error(`no order ${order}`)
    await emit(tx, about(order, 'OrderPaid', -rows[0].total))
  })
}

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL })
for (let n = 0; n < Number(process.argv[2] ?? 1); n++) {
  await pay(pool, await place(pool, 1 + (n % 100)))
}
await pool.end()
