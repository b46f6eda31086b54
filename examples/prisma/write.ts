// Places orders and takes payments. Each change and its event are one transaction.
import { randomUUID } from 'node:crypto'
import { PrismaPg } from '@prisma/adapter-pg'
import { PrismaClient, type Prisma } from './generated/client.ts'

const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }) })

async function emit(tx: Prisma.TransactionClient, order: string, type: string, amount: number): Promise<void> {
  await tx.outboxEvent.create({
    data: {
      aggregateType: 'order',
      aggregateId: order,
      eventType: type,
      payload: { amount },
      // The key names the occurrence, not the content: the command run again makes the same key.
      idempotencyKey: `order:${order}:${type}`,
    },
  })
}

function place(total: number): Promise<string> {
  return prisma.$transaction(async (tx) => {
    const order = randomUUID()
    await tx.order.create({ data: { id: order, total } })
    await emit(tx, order, 'OrderPlaced', total)
    return order
  })
}

function pay(order: string): Promise<void> {
  return prisma.$transaction(async (tx) => {
    const { total } = await tx.order.update({ where: { id: order }, data: { paid: true } })
    await emit(tx, order, 'OrderPaid', -total)
  })
}

for (let n = 0; n < Number(process.argv[2] ?? 1); n++) {
  await pay(await place(1 + (n % 100)))
}
await prisma.$disconnect()
