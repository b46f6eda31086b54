"""The consumer that is widely copied, with what keeps it from running repaired: one transaction,
a zone in the time, the key from the header. Redis is asked first, then the table."""

import datetime
import os
import time

import redis
from confluent_kafka import Consumer
from sqlalchemy import DateTime, Text, create_engine, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class ProcessedEvent(Base):
    __tablename__ = "processed_events"
    idempotency_key: Mapped[str] = mapped_column(Text, primary_key=True)
    processed_at: Mapped[datetime.datetime] = mapped_column(DateTime(timezone=True))


EFFECT = text(
    "INSERT INTO totals (key, n, last) VALUES (:key, 1, :last)"
    " ON CONFLICT (key) DO UPDATE SET n = totals.n + 1, last = :last"
)


def process(session: Session, cache: redis.Redis, key: str, order: str, last: int) -> None:
    if cache.exists(f"processed:{key}"):
        return
    with session.begin():
        if session.scalar(select(ProcessedEvent).where(ProcessedEvent.idempotency_key == key)):
            return
        now = datetime.datetime.now(datetime.timezone.utc)
        session.execute(insert(ProcessedEvent).values(idempotency_key=key, processed_at=now))
        session.execute(EFFECT, {"key": order, "last": last})
    cache.set(f"processed:{key}", "1", ex=86400)


def main() -> None:
    engine = create_engine(os.environ["DATABASE_URL"].replace("postgres://", "postgresql+psycopg://", 1))
    Base.metadata.create_all(engine)
    host, port = os.environ["REDIS"].split(":")
    cache = redis.Redis(host, int(port))
    consumer = Consumer({
        "bootstrap.servers": os.environ["KAFKA_BROKERS"],
        "group.id": "copied",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })
    consumer.subscribe([os.environ["TOPIC"]])
    left, began = int(os.environ["EVENTS"]), None
    with Session(engine) as session:
        while left:
            message = consumer.poll(1.0)
            if message is None or message.error():
                continue
            began = began or time.monotonic()
            key = dict(message.headers())["id"].decode()
            process(session, cache, key, message.key().decode(), int(message.value()))
            consumer.commit(message=message, asynchronous=True)
            left -= 1
    print(time.monotonic() - began)


if __name__ == "__main__":
    main()
