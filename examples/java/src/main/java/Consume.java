import static java.nio.charset.StandardCharsets.UTF_8;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Keeps a ledger of orders: one line for each event, whatever is delivered twice. */
public final class Consume {
    private static final String CONSUMER = "billing"; // in the table; no other handler has this name
    private static final Pattern AMOUNT = Pattern.compile("\"amount\":\\s*(-?\\d+)"); // a JSON library, where there is more

    private static String header(ConsumerRecord<String, String> event, String name) {
        var header = event.headers().lastHeader(name);
        return header == null ? "" : new String(header.value(), UTF_8);
    }

    private static String keyOf(ConsumerRecord<String, String> event) {
        String key = header(event, "idempotency_key");
        if (!key.isEmpty()) {
            return event.topic() + "/k/" + key;
        }
        String id = header(event, "id");
        if (id.isEmpty()) { // else all such records would be one event
            throw new IllegalArgumentException("no header id: topic " + event.topic() + ", partition " + event.partition() + ", offset " + event.offset());
        }
        return event.topic() + "/i/" + id;
    }

    private static void handle(Connection tx, ConsumerRecord<String, String> event) throws SQLException {
        var amount = AMOUNT.matcher(event.value());
        if (!amount.find()) {
            throw new IllegalArgumentException("no amount: topic " + event.topic() + ", offset " + event.offset());
        }
        try (var insert = tx.prepareStatement("INSERT INTO ledger (order_id, event, amount) VALUES (?, ?, ?)")) {
            insert.setObject(1, UUID.fromString(event.key()));
            insert.setString(2, header(event, "eventType"));
            insert.setInt(3, Integer.parseInt(amount.group(1)));
            insert.executeUpdate();
        }
    }

    /** Claims the key and does the work in one transaction. False: it was done before. */
    private static boolean once(Connection tx, ConsumerRecord<String, String> event) throws SQLException {
        try (var claim = tx.prepareStatement("INSERT INTO inbox (consumer, key, at) VALUES (?, ?, now()) ON CONFLICT DO NOTHING")) {
            claim.setString(1, CONSUMER);
            claim.setString(2, keyOf(event));
            boolean claimed = claim.executeUpdate() == 1;
            if (claimed) {
                handle(tx, event);
            }
            tx.commit();
            return claimed;
        } catch (SQLException | RuntimeException failure) {
            tx.rollback();
            throw failure;
        }
    }

    public static void main(String[] args) throws SQLException {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", System.getenv().getOrDefault("KAFKA_BROKERS", "localhost:9092"),
                "group.id", System.getenv().getOrDefault("GROUP", "billing"),
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false, // the offset goes behind the transaction
                "isolation.level", "read_committed",
                "session.timeout.ms", 10_000);
        try (Connection db = DriverManager.getConnection(Jdbc.url(System.getenv("DATABASE_URL")));
                var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            db.setAutoCommit(false);
            Runtime.getRuntime().addShutdownHook(new Thread(consumer::wakeup));
            consumer.subscribe(List.of(System.getenv().getOrDefault("TOPIC", "order-events")));
            while (true) {
                // A failure ends the program before the offset is committed; it is started again and
                // gets the record again.
                for (var event : consumer.poll(Duration.ofSeconds(1))) {
                    once(db, event);
                }
                consumer.commitSync();
            }
        } catch (WakeupException stop) {
            // what was handled and not committed comes again, and is found
        }
    }
}
