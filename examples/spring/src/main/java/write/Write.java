package write;

import java.util.Map;
import java.util.UUID;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

/** Places orders and takes payments. */
@SpringBootApplication
public class Write {
    /** Each change and its event are one transaction. Without rollbackFor Spring would commit when a checked exception is thrown in between. */
    @Service
    static class Orders {
        private final JdbcClient db;

        Orders(JdbcClient db) {
            this.db = db;
        }

        @Transactional(rollbackFor = Exception.class)
        UUID place(int total) {
            UUID order = UUID.randomUUID();
            db.sql("INSERT INTO orders (id, total) VALUES (?, ?)").params(order, total).update();
            emit(order, "OrderPlaced", total);
            return order;
        }

        @Transactional(rollbackFor = Exception.class)
        void pay(UUID order) {
            int total = db.sql("UPDATE orders SET paid = true WHERE id = ? RETURNING total").param(order).query(Integer.class).single();
            emit(order, "OrderPaid", -total);
        }

        private void emit(UUID order, String type, int amount) {
            db.sql("""
                    INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, idempotency_key)
                    VALUES (:id, 'order', :order, :type, CAST(:payload AS jsonb), :key)""")
                    .param("id", UUID.randomUUID())
                    .param("order", order.toString())
                    .param("type", type)
                    .param("payload", "{\"amount\": " + amount + "}") // a JSON library, where there is more than a number
                    // The key names the occurrence, not the content: the command run again makes the same key.
                    .param("key", "order:" + order + ":" + type)
                    .update();
        }
    }

    @Bean
    CommandLineRunner run(Orders orders) {
        return args -> {
            for (int n = 0, all = args.length > 0 ? Integer.parseInt(args[0]) : 1; n < all; n++) {
                orders.pay(orders.place(1 + n % 100));
            }
        };
    }

    public static void main(String[] args) {
        var shop = new SpringApplication(Write.class);
        shop.setDefaultProperties(Map.<String, Object>of("spring.datasource.url", Jdbc.url(System.getenv("DATABASE_URL"))));
        shop.run(args).close();
    }
}
