import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.UUID;

/** Places orders and takes payments. Each change and its event are one transaction. */
public final class Write {
    private final Connection db;

    private Write(Connection db) {
        this.db = db;
    }

    private UUID place(int total) throws SQLException {
        UUID order = UUID.randomUUID();
        inTransaction(() -> {
            try (var insert = db.prepareStatement("INSERT INTO orders (id, total) VALUES (?, ?)")) {
                insert.setObject(1, order);
                insert.setInt(2, total);
                insert.executeUpdate();
            }
            emit(order, "OrderPlaced", total);
        });
        return order;
    }

    private void pay(UUID order) throws SQLException {
        inTransaction(() -> {
            try (var update = db.prepareStatement("UPDATE orders SET paid = true WHERE id = ? RETURNING total")) {
                update.setObject(1, order);
                var row = update.executeQuery();
                if (!row.next()) {
                    throw new IllegalStateException("no order " + order);
                }
                emit(order, "OrderPaid", -row.getInt(1));
            }
        });
    }

    private void emit(UUID order, String type, int amount) throws SQLException {
        try (var insert = db.prepareStatement("""
                INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, idempotency_key)
                VALUES (?, 'order', ?, ?, ?::jsonb, ?)""")) {
            insert.setObject(1, UUID.randomUUID());
            insert.setString(2, order.toString());
            insert.setString(3, type);
            insert.setString(4, "{\"amount\": " + amount + "}"); // a JSON library, where there is more than a number
            // The key names the occurrence, not the content: the command run again makes the same key.
            insert.setString(5, "order:" + order + ":" + type);
            insert.executeUpdate();
        }
    }

    private interface Work {
        void run() throws SQLException;
    }

    private void inTransaction(Work work) throws SQLException {
        try {
            work.run();
            db.commit();
        } catch (SQLException | RuntimeException failure) {
            db.rollback();
            throw failure;
        }
    }

    public static void main(String[] args) throws SQLException {
        try (Connection db = DriverManager.getConnection(Jdbc.url(System.getenv("DATABASE_URL")))) {
            db.setAutoCommit(false);
            var shop = new Write(db);
            for (int n = 0, all = args.length > 0 ? Integer.parseInt(args[0]) : 1; n < all; n++) {
                shop.pay(shop.place(1 + n % 100));
            }
        }
    }
}
