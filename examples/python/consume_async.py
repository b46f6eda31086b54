"""The ledger with asyncio, aiokafka and SQLAlchemy: IdempotentConsumer as it is widely copied, put right."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

CLAIM = text("INSERT INTO inbox (consumer, key, at) VALUES (:consumer, :key, now()) ON CONFLICT DO NOTHING")


class IdempotentConsumer:
    def __init__(self, sessions: async_sessionmaker[AsyncSession], consumer: str) -> None:
        self.sessions = sessions
        self.consumer = consumer  # in the table; no other handler has this name

    async def process(self, record: ConsumerRecord, handler: Callable[[AsyncSession, ConsumerRecord], Awaitable[None]]) -> bool:
        """Claims the key and does the work in one transaction. False: it was done before."""
        async with self.sessions.begin() as session:
            claim = await session.execute(CLAIM, {"consumer": self.consumer, "key": key_of(record)})
            if claim.rowcount:
                await handler(session, record)
                await session.execute(text("SELECT 1"))  # fails if the handler hid a failed statement: COMMIT would roll back without an error
        return bool(claim.rowcount)


def key_of(record: ConsumerRecord) -> str:
    headers = {name: value.decode() for name, value in record.headers if value}
    if headers.get("idempotency_key"):
        return f"{record.topic}/k/{headers['idempotency_key']}"
    return f"{record.topic}/i/{headers['id']}"


async def handle(session: AsyncSession, record: ConsumerRecord) -> None:
    await session.execute(
        text("INSERT INTO ledger (order_id, event, amount) VALUES (:order, :event, :amount)"),
        {"order": record.key.decode(), "event": dict(record.headers)["eventType"].decode(), "amount": json.loads(record.value)["amount"]},
    )


async def main() -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    url = os.environ["DATABASE_URL"].replace("postgres://", "postgresql://", 1)
    engine = create_async_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    ledger = IdempotentConsumer(async_sessionmaker(engine), "billing")
    consumer = AIOKafkaConsumer(
        os.environ.get("TOPIC", "order-events"),
        bootstrap_servers=os.environ.get("KAFKA_BROKERS", "localhost:9092"),
        group_id=os.environ.get("GROUP", "billing"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,  # the offset goes behind the transaction
        isolation_level="read_committed",
    )
    await consumer.start()
    try:
        async for record in consumer:
            # A failure ends the program before the offset is committed; it is started again and
            # gets the record again.
            await ledger.process(record, handle)
            await consumer.commit({TopicPartition(record.topic, record.partition): record.offset + 1})
    except asyncio.CancelledError:
        pass  # what was handled and not committed comes again, and is found
    finally:
        await consumer.stop()
        await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())
