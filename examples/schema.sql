-- The shop's own tables. The outbox is made by `cdc-relay setup --create-table`, the inbox by
-- `cdc-relay sql --inbox`.
CREATE TABLE orders (
    id    uuid PRIMARY KEY,
    total integer NOT NULL,
    paid  boolean NOT NULL DEFAULT false
);

-- What the consumer does: one line for each event.
CREATE TABLE ledger (
    n        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id uuid NOT NULL,
    event    text NOT NULL,
    amount   integer NOT NULL
);
