"""Places orders and takes payments. Each change and its event are one transaction."""

import os
import sys
import uuid

from sqlalchemy import Text, create_engine
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    total: Mapped[int]
    paid: Mapped[bool] = mapped_column(default=False)


class OutboxEvent(Base):
    """A row of the outbox. The table has further columns with defaults, which stay out of it."""

    __tablename__ = "outbox"

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    aggregate_type: Mapped[str]
    aggregate_id: Mapped[str] = mapped_column(Text)
    event_type: Mapped[str]
    payload: Mapped[dict] = mapped_column(JSONB)
    idempotency_key: Mapped[str | None]


def event(order: Order, kind: str, amount: int) -> OutboxEvent:
    # The key names the occurrence, not the content: the command run again makes the same key.
    return OutboxEvent(
        aggregate_type="order",
        aggregate_id=str(order.id),
        event_type=kind,
        payload={"amount": amount},
        idempotency_key=f"order:{order.id}:{kind}",
    )


def place(session: Session, total: int) -> uuid.UUID:
    with session.begin():
        order = Order(id=uuid.uuid4(), total=total)  # not by a default, which is applied at the flush
        session.add_all([order, event(order, "OrderPlaced", total)])
        return order.id


def pay(session: Session, order_id: uuid.UUID) -> None:
    with session.begin():
        order = session.get_one(Order, order_id, with_for_update=True)
        order.paid = True
        session.add(event(order, "OrderPaid", -order.total))


def main() -> None:
    url = os.environ["DATABASE_URL"].replace("postgres://", "postgresql://", 1)
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    with Session(engine) as session:
        for n in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
            pay(session, place(session, 1 + n % 100))


if __name__ == "__main__":
    main()
