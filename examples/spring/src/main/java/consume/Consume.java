package consume;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.core.NestedExceptionUtils;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.stereotype.Component;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.util.backoff.FixedBackOff;

/** Keeps a ledger of orders: one line for each event, whatever is delivered twice. */
@SpringBootApplication
public class Consume {
    private static final Logger LOG = LoggerFactory.getLogger(Consume.class);
    static final String CONSUMER = "billing"; // in the table; no other handler has this name

    @Component
    static class Ledger {
        private final JdbcClient db;

        Ledger(JdbcClient db) {
            this.db = db;
        }

        /** Claims the key and does the work in one transaction. Without rollbackFor Spring would commit when a checked exception is thrown: the key without its work. */
        @KafkaListener(topics = "${TOPIC:order-events}")
        @Transactional(rollbackFor = Exception.class)
        public void once(ConsumerRecord<String, String> event) {
            int claimed = db.sql("INSERT INTO inbox (consumer, key, at) VALUES (?, ?, now()) ON CONFLICT DO NOTHING")
                    .params(CONSUMER, keyOf(event))
                    .update();
            if (claimed == 1) {
                handle(event);
            }
        }

        private void handle(ConsumerRecord<String, String> event) {
            db.sql("INSERT INTO ledger (order_id, event, amount) VALUES (:order, :event, CAST(CAST(:value AS jsonb) ->> 'amount' AS integer))")
                    .param("order", UUID.fromString(event.key()))
                    .param("event", header(event, "eventType"))
                    .param("value", event.value())
                    .update();
        }
    }

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

    /** By default Spring leaves a record out that has failed ten times, or once with a ClassCastException. This one holds its partition until it is handled. */
    @Bean
    DefaultErrorHandler again() {
        var handler = new DefaultErrorHandler(new FixedBackOff(500, FixedBackOff.UNLIMITED_ATTEMPTS));
        handler.setClassifications(Map.of(), true); // no exception is one after which the record is left out
        handler.setRetryListeners((event, failure, attempt) -> LOG.warn("attempt {}: topic {}, partition {}, offset {}: {}",
                attempt, event.topic(), event.partition(), event.offset(), NestedExceptionUtils.getMostSpecificCause(failure).getClass().getName()));
        return handler;
    }

    public static void main(String[] args) {
        var ledger = new SpringApplication(Consume.class);
        ledger.setDefaultProperties(Map.<String, Object>of("spring.datasource.url", Jdbc.url(System.getenv("DATABASE_URL"))));
        ledger.run(args);
    }
}
