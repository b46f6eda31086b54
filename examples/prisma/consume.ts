// Keeps a ledger of orders: one line for each event, whatever is delivered twice.
import { Consumer, FetchIsolationLevels, type Message, MessagesStreamFallbackModes, MessagesStreamModes, stringDeserializers } from '@platformatic/kafka'
import { PrismaPg } from '@prisma/adapter-pg'
import { PrismaClient, type Prisma } from './generated/client.ts'

type Record = Message<string, string, string, string>

const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }) })
const name = 'billing' // in the table; no other handler has this name

function keyOf(record: Record): string {
  const key = record.headers.get('idempotency_key')
  if (key) return `${record.topic}/k/${key}`
  const id = record.headers.get('id')
  if (!id) throw new Error(`a record of ${record.topic} has no header id`)
  return `${record.topic}/i/${id}`
}

async function handle(tx: Prisma.TransactionClient, record: Record): Promise<void> {
  const { amount } = JSON.parse(record.value) as { amount: number }
  await tx.ledger.create({ data: { orderId: record.key, event: record.headers.get('eventType') ?? '', amount } })
}

/** Claims the key and does the work in one transaction. False: it was done before. */
function once(record: Record): Promise<boolean> {
  return prisma.$transaction(async (tx) => {
    // skipDuplicates is ON CONFLICT DO NOTHING. Not findUnique and then create: two deliveries would find nothing.
    const { count } = await tx.inbox.createMany({ data: [{ consumer: name, key: keyOf(record), at: new Date() }], skipDuplicates: true })
    if (count) {
      await handle(tx, record)
      await tx.$queryRaw`SELECT 1` // fails if handle hid a failed statement: COMMIT would roll back without an error
    }
    return count === 1
  })
}

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
for await (const record of stream) {
  await once(record)
  await record.commit()
}
await consumer.close()
await prisma.$disconnect()
