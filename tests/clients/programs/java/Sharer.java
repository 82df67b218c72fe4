// A member of a share group in the Java share consumer: by orders, or by itself in a thread.
//
// A worker accepts what it polls and waits for the answer each time, until the program ends: its close
// would wait for a session with a broker that was killed. It keeps when each record came and when its
// acceptance was answered, in ns of the machine's clock since it started.

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

final class Sharer {
    private final KafkaShareConsumer<byte[], byte[]> consumer;
    private final Map<List<Object>, ConsumerRecord<byte[], byte[]>> held = new HashMap<>();

    // Under this object's lock.
    private final List<Object> came = new ArrayList<>();
    private final List<Object> accepted = new ArrayList<>();
    private final List<Object> unknown = new ArrayList<>();  // as accepted, with an error
    private final List<String> errors = new ArrayList<>();

    Sharer(String bootstrap, JsonNode wanted) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", wanted.get("group").asText());
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        wanted.path("configs").fields().forEachRemaining(
            each -> settings.put(each.getKey(), each.getValue().asText()));
        consumer = new KafkaShareConsumer<>(settings);
        List<String> topics = new ArrayList<>();
        wanted.get("topics").forEach(topic -> topics.add(topic.asText()));
        consumer.subscribe(topics);
        if (wanted.path("works").asBoolean()) {
            Thread thread = new Thread(this::work, "worker");
            thread.setDaemon(true);
            thread.start();
        }
    }

    private static List<Object> place(ConsumerRecord<byte[], byte[]> record) {
        return List.of(record.topic(), record.partition(), record.offset());
    }

    /** Up to `ms`; what came, and after how many ms. */
    Object poll(JsonNode wanted) {
        long began = System.nanoTime();
        long ends = began + TimeUnit.MILLISECONDS.toNanos(wanted.get("ms").asLong());
        ConsumerRecords<byte[], byte[]> polled = ConsumerRecords.empty();
        do {
            polled = consumer.poll(Duration.ofNanos(Math.max(0, ends - System.nanoTime())));
        } while (polled.isEmpty() && System.nanoTime() < ends);
        long after = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
        List<Object> records = new ArrayList<>();
        held.clear();
        for (ConsumerRecord<byte[], byte[]> each : polled) {
            held.put(place(each), each);
            Map<String, Object> fields = new HashMap<>(Agent.shown(each));
            fields.put("deliveries", each.deliveryCount().map(Short::intValue).orElse(0));
            records.add(fields);
        }
        return Map.of("records", records, "ms", after);
    }

    Object acknowledge(JsonNode wanted) {
        AcknowledgeType type = AcknowledgeType.valueOf(wanted.get("type").asText());
        for (JsonNode each : wanted.get("records")) {
            List<Object> at = List.of(
                each.get(0).asText(), each.get(1).asInt(), each.get(2).asLong());
            if (held.containsKey(at)) {
                consumer.acknowledge(held.get(at), type);
            } else {
                consumer.acknowledge(
                    each.get(0).asText(), each.get(1).asInt(), each.get(2).asLong(), type);
            }
        }
        return null;
    }

    /** By partition, the error's name, or null. */
    Object sync() {
        Map<String, Object> found = new HashMap<>();
        consumer.commitSync(Agent.PATIENCE).forEach((at, error) -> found.put(
            at.topicPartition().toString(),
            error.map(each -> each.getClass().getSimpleName()).orElse(null)));
        return found;
    }

    Object lockMs() {
        return consumer.acquisitionLockTimeoutMs().orElse(-1);
    }

    Object close() {
        consumer.close(Agent.PATIENCE);
        return null;
    }

    synchronized Object worked() {
        return Map.of(
            "came", List.copyOf(came), "accepted", List.copyOf(accepted),
            "unknown", List.copyOf(unknown), "errors", List.copyOf(errors));
    }

    private void work() {
        while (true) {
            try {
                accept(consumer.poll(Duration.ofMillis(200)));
            } catch (Exception error) {
                synchronized (this) {
                    errors.add(String.valueOf(error));
                }
            }
        }
    }

    private void accept(ConsumerRecords<byte[], byte[]> polled) {
        if (polled.isEmpty()) {
            return;
        }
        Map<String, List<Object>> offsets = new HashMap<>();
        long now = System.nanoTime();
        for (ConsumerRecord<byte[], byte[]> each : polled) {
            synchronized (this) {
                came.add(List.of(each.partition(), each.offset(), now));
            }
            offsets.computeIfAbsent(each.topic() + "-" + each.partition(), any -> new ArrayList<>())
                .add(List.of(each.partition(), each.offset()));
            consumer.acknowledge(each, AcknowledgeType.ACCEPT);
        }
        var answered = consumer.commitSync(Agent.PATIENCE);
        long then = System.nanoTime();
        answered.forEach((at, error) -> {
            synchronized (this) {
                error.ifPresent(each -> errors.add(each.getClass().getSimpleName()));
                for (Object each : offsets.getOrDefault(
                        at.topicPartition().toString(), Collections.emptyList())) {
                    List<Object> place = new ArrayList<>((List<Object>) each);
                    place.add(then);
                    (error.isPresent() ? unknown : accepted).add(place);
                }
            }
        });
    }
}
