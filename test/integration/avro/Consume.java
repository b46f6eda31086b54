import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;

/** Reads records of a topic with Apicurio's deserializer, and prints key, trace context and value of each. */
public class Consume {
    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("auto.offset.reset", "earliest");
        p.put("isolation.level", "read_committed");
        p.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        p.put("value.deserializer", "io.apicurio.registry.serde.avro.AvroKafkaDeserializer");
        for (int i = 3; i < args.length; i++) {
            String[] option = args[i].split("=", 2);
            p.put(option[0], option[1]);
        }
        int left = Integer.parseInt(args[2]);
        try (KafkaConsumer<String, Object> consumer = new KafkaConsumer<>(p)) {
            consumer.assign(consumer.partitionsFor(args[1]).stream().map(i -> new TopicPartition(i.topic(), i.partition())).toList());
            while (left > 0) {
                for (ConsumerRecord<String, Object> r : consumer.poll(Duration.ofSeconds(1))) {
                    Header parent = r.headers().lastHeader("traceparent");
                    System.out.println(r.key() + "\t" + (parent == null ? "" : new String(parent.value())) + "\t" + r.value());
                    left--;
                }
            }
        }
    }
}
