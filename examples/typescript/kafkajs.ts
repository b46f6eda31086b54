// The same consumer with kafkajs, which knows no compression but gzip by itself: the relay's default
// is snappy. kafkajs-snappy is JavaScript alone. Without the one line below kafkajs fails with
// "Snappy compression not implemented".
import { createRequire } from 'node:module'
import kafkajs from 'kafkajs'
import pg from 'pg'
import { once } from './once.ts'

const { CompressionCodecs, CompressionTypes, Kafka } = kafkajs // a CommonJS package

if (!process.env.WITHOUT_SNAPPY) {
  CompressionCodecs[CompressionTypes.Snappy] = createRequire(import.meta.url)('kafkajs-snappy')
}

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL })
const kafka = new Kafka({ clientId: 'ledger', brokers: (process.env.KAFKA_BROKERS ?? 'localhost:9092').split(',') })
const consumer = kafka.consumer({ groupId: process.env.GROUP ?? 'billing', sessionTimeout: 10_000, heartbeatInterval: 1_000 })
consumer.on(consumer.events.CRASH, ({ payload }) => {
  console.error(payload.error.message)
  process.exit(1)
})
await consumer.connect()
await consumer.subscribe({ topics: [process.env.TOPIC ?? 'order-events'], fromBeginning: true })
await consumer.run({
  autoCommit: false, // the offset goes behind the transaction
  eachMessage: async ({ topic, partition, message }) => {
    const headers = new Map(Object.entries(message.headers ?? {}).map(([name, value]) => [name, String(value)]))
    await once(pool, { topic, key: String(message.key), value: String(message.value), headers })
    await consumer.commitOffsets([{ topic, partition, offset: (BigInt(message.offset) + 1n).toString() }])
  },
})
