// An agent for the Java clients: commands in JSON lines on stdin, answers on stdout.
//
//     java -cp "CLASSES:libs/*" Agent HOST:PORT
//
// tests/clients/agents/driver.py says what each command means; a member of a group is in Member.java,
// a producer that goes on in Writer.java, one of transactions in Transactional.java, a member of a
// share group in Sharer.java.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

public class Agent {
    static final Duration PATIENCE = Duration.ofSeconds(60);
    static final ObjectMapper JSON = new ObjectMapper();

    static String bootstrap;
    static final Map<String, Member> MEMBERS = new HashMap<>();
    static final Map<String, Writer> WRITERS = new HashMap<>();
    static final Map<String, Transactional> TRANSACTIONAL = new HashMap<>();
    static final Map<String, Sharer> SHARERS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> answer;
            try {
                answer = Collections.singletonMap("ok", answer(JSON.readTree(line)));
            } catch (ExecutionException error) {
                answer = Map.of("error", String.valueOf(error.getCause()));
            } catch (Exception error) {
                answer = Map.of("error", String.valueOf(error));
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
        System.exit(0);
    }

    static Object answer(JsonNode wanted) throws Exception {
        String op = wanted.get("op").asText();
        switch (op) {
            case "version": return AppInfoParser.getVersion();
            case "create": return create(wanted);
            case "produce": return produce(wanted);
            case "read": return read(wanted);
            case "offset_at": return offsetAt(wanted);
            case "join":
                MEMBERS.put(wanted.get("name").asText(), new Member(bootstrap, wanted));
                return null;
            case "write":
                WRITERS.put(wanted.get("name").asText(), new Writer(bootstrap, wanted));
                return null;
            case "written": return WRITERS.get(wanted.get("name").asText()).written();
            case "finish": return WRITERS.remove(wanted.get("name").asText()).finish();
            case "share":
                SHARERS.put(wanted.get("name").asText(), new Sharer(bootstrap, wanted));
                return null;
            case "transactional":
                TRANSACTIONAL.put(
                    wanted.get("name").asText(), new Transactional(bootstrap, wanted));
                return null;
            default:
        }
        Transactional transactional = TRANSACTIONAL.get(wanted.path("name").asText());
        switch (op) {
            case "begin": return transactional.begin();
            case "put": return transactional.put(wanted);
            case "offsets": return transactional.offsets(wanted);
            case "end": return transactional.end(wanted.get("commit").asBoolean());
            case "close":
                TRANSACTIONAL.remove(wanted.get("name").asText());
                return transactional.close();
            default:
        }
        Sharer sharer = SHARERS.get(wanted.path("name").asText());
        switch (op) {
            case "share_poll": return sharer.poll(wanted);
            case "share_acknowledge": return sharer.acknowledge(wanted);
            case "share_sync": return sharer.sync();
            case "share_lock_ms": return sharer.lockMs();
            case "share_worked": return sharer.worked();
            case "share_close":
                SHARERS.remove(wanted.get("name").asText());
                return sharer.close();
            default:
        }
        Member member = MEMBERS.get(wanted.path("name").asText());
        switch (op) {
            case "assigned": return member.assigned();
            case "take": return member.take();
            case "commit": return member.commit();
            case "seek": return member.seek(partition(wanted), wanted.get("offset").asLong());
            case "leave":
                MEMBERS.remove(wanted.get("name").asText());
                return member.leave();
            default: throw new IllegalArgumentException("no such command: " + op);
        }
    }

    static TopicPartition partition(JsonNode wanted) {
        return new TopicPartition(wanted.get("topic").asText(), wanted.get("partition").asInt());
    }

    static Object create(JsonNode wanted) throws Exception {
        Map<String, String> configs = new HashMap<>();
        wanted.get("configs").fields().forEachRemaining(e -> configs.put(e.getKey(), e.getValue().asText()));
        NewTopic topic = new NewTopic(
            wanted.get("topic").asText(), wanted.get("partitions").asInt(), (short) 1);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", (Object) bootstrap))) {
            admin.createTopics(List.of(topic.configs(configs))).all().get();
        }
        return null;
    }

    static Object produce(JsonNode wanted) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("max.request.size", String.valueOf(8 << 20));
        settings.put("compression.type", wanted.get("codec").asText());
        settings.put("linger.ms", "20");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            for (JsonNode each : wanted.get("records")) {
                ProducerRecord<byte[], byte[]> made = new ProducerRecord<>(
                    wanted.get("topic").asText(), each.get("partition").asInt(),
                    each.get("timestamp").asLong(), bytes(each.get("key")), bytes(each.get("value")));
                for (JsonNode pair : each.get("headers")) {
                    made.headers().add(pair.get("key").asText(), bytes(pair.get("value")));
                }
                sent.add(producer.send(made));
            }
        }
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> each : sent) {
            offsets.add(each.get().offset());
        }
        return offsets;
    }

    static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    static Map<String, Object> shown(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            Map<String, Object> pair = new HashMap<>();
            pair.put("key", header.key());
            pair.put("value", text(header.value()));
            headers.add(pair);
        }
        Map<String, Object> fields = new HashMap<>();
        fields.put("topic", record.topic());
        fields.put("partition", record.partition());
        fields.put("offset", record.offset());
        fields.put("timestamp", record.timestamp());
        fields.put("key", text(record.key()));
        fields.put("value", text(record.value()));
        fields.put("headers", headers);
        return fields;
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, String> own) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.putAll(own);
        return new KafkaConsumer<>(settings);
    }

    static Object read(JsonNode wanted) {
        TopicPartition at = partition(wanted);
        int count = wanted.get("count").asInt();
        List<Object> found = new ArrayList<>();
        String isolation = wanted.path("committed").asBoolean() ? "read_committed" : "read_uncommitted";
        Map<String, String> settings = Map.of("auto.offset.reset", "none", "isolation.level", isolation);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.assign(List.of(at));
            consumer.seek(at, wanted.get("offset").asLong());
            while (found.size() < count) {
                var polled = consumer.poll(PATIENCE);
                if (polled.isEmpty()) {
                    throw new IllegalStateException(found.size() + " of " + count + " records");
                }
                polled.forEach(each -> found.add(shown(each)));
            }
        }
        return found.subList(0, count);
    }

    static Object offsetAt(JsonNode wanted) {
        TopicPartition at = partition(wanted);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            OffsetAndTimestamp found =
                consumer.offsetsForTimes(Map.of(at, wanted.get("timestamp").asLong())).get(at);
            return found == null ? null : found.offset();
        }
    }
}
