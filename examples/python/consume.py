"""Keeps a ledger of orders: one line for each event, whatever is delivered twice."""

import json
import os
import signal
import time

import psycopg
from confluent_kafka import Consumer, KafkaException, Message

CONSUMER = "billing"  # in the table; no other handler has this name
TOPIC = os.environ.get("TOPIC", "order-events")


def key_of(message: Message) -> str:
    headers = {name: value.decode() for name, value in message.headers() or [] if value}
    if headers.get("idempotency_key"):
        return f"{message.topic()}/k/{headers['idempotency_key']}"
    return f"{message.topic()}/i/{headers['id']}"


def handle(db: psycopg.Connection, message: Message) -> None:
    event = dict(message.headers())["eventType"].decode()
    amount = json.loads(message.value())["amount"]
    db.execute(
        "INSERT INTO ledger (order_id, event, amount) VALUES (%s, %s, %s)",
        (message.key().decode(), event, amount),
    )


def once(db: psycopg.Connection, message: Message) -> bool:
    """Claims the key and does the work in one transaction. False: it was done before."""
    with db.transaction():
        claimed = db.execute(
            "INSERT INTO inbox (consumer, key, at) VALUES (%s, %s, now()) ON CONFLICT DO NOTHING",
            (CONSUMER, key_of(message)),
        ).rowcount
        if claimed:
            handle(db, message)
            db.execute("SELECT 1")  # fails if handle hid a failed statement: COMMIT would roll back without an error
    return bool(claimed)


def main() -> None:
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    consumer = Consumer({
        "bootstrap.servers": os.environ.get("KAFKA_BROKERS", "localhost:9092"),
        "group.id": os.environ.get("GROUP", "billing"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,  # the offset goes behind the transaction
        "isolation.level": "read_committed",
        "partition.assignment.strategy": "cooperative-sticky",
    })
    consumer.subscribe([TOPIC])
    try:
        # autocommit: each transaction() is one, and nothing is left open between them.
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
            while not stopping:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if error := message.error():
                    if not error.retriable():
                        raise KafkaException(error)
                    time.sleep(0.1)
                    continue
                # A failure ends the program before the offset is committed; it is started again
                # and gets the record again.
                once(db, message)
                consumer.commit(message=message, asynchronous=True)
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
