// The Java producer with its defaults, which are idempotence and acks=all, under way for long.

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

final class Writer {
    private final KafkaProducer<byte[], byte[]> producer;
    private final String name;
    private final String topic;
    private final int partitions;
    private final long pauseNs;
    private final Thread thread = new Thread(this::run, "writer");
    private volatile boolean stopping;

    // Under this object's lock.
    private final List<Integer> acknowledged = new ArrayList<>();
    private final List<String> errors = new ArrayList<>();

    Writer(String bootstrap, JsonNode wanted) {
        name = wanted.get("name").asText();
        topic = wanted.get("topic").asText();
        partitions = wanted.get("partitions").asInt();
        pauseNs = Duration.ofSeconds(1).toNanos() / wanted.get("rate").asInt();
        producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap), new ByteArraySerializer(), new ByteArraySerializer());
        thread.start();
    }

    private void run() {
        long began = System.nanoTime();
        for (int number = 0; !stopping; number++) {
            int sent = number;
            producer.send(
                new ProducerRecord<>(topic, sent % partitions, null, (name + " " + sent).getBytes()),
                (metadata, error) -> note(sent, error));
            long leftNs = began + pauseNs * (number + 1) - System.nanoTime();
            if (leftNs > 0) {
                LockSupport.parkNanos(leftNs);
            }
        }
    }

    private synchronized void note(int number, Exception error) {
        if (error == null) {
            acknowledged.add(number);
        } else {
            errors.add(number + ": " + error);
        }
    }

    synchronized Object written() {
        return Map.of("acknowledged", acknowledged.size(), "errors", List.copyOf(errors));
    }

    Object finish() throws InterruptedException {
        stopping = true;
        thread.join(Agent.PATIENCE.toMillis());
        producer.close(Agent.PATIENCE);  // what it has goes out first
        synchronized (this) {
            return Map.of("acknowledged", List.copyOf(acknowledged), "errors", List.copyOf(errors));
        }
    }
}
