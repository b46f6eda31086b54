// Keeps a ledger of orders: one line for each event, whatever is delivered twice.
import { Consumer, FetchIsolationLevels, MessagesStreamFallbackModes, MessagesStreamModes, stringDeserializers } from '@platformatic/kafka'
import pg from 'pg'
import { once } from './once.ts'

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL })
const consumer = new Consumer({
  groupId: process.env.GROUP ?? 'billing',
  clientId: 'ledger',
  bootstrapBrokers: (process.env.KAFKA_BROKERS ?? 'localhost:9092').split(','),
  deserializers: stringDeserializers,
  autocommit: false, // the offset goes behind the transaction
  isolationLevel: FetchIsolationLevels.READ_COMMITTED,
  sessionTimeout: 10_000,
  heartbeatInterval: 1_000,
})
const stream = await consumer.consume({
  topics: [process.env.TOPIC ?? 'order-events'],
  mode: MessagesStreamModes.COMMITTED,
  fallbackMode: MessagesStreamFallbackModes.EARLIEST,
  maxWaitTime: 500,
})
process.once('SIGTERM', () => stream.close())

// A failure ends the program before the offset is committed; it is started again and gets the
// record again.
for await (const message of stream) {
  await once(pool, { topic: message.topic, key: message.key, value: message.value, headers: message.headers })
  await message.commit()
}
await consumer.close()
await pool.end()
