// The scripted day for the Java clients; tests/clients/days/script.py says what it is.
//
//     java -cp "libs/*" Day.java HOST:PORT
//
// prints one JSON array ["step", outcome] a line. Admin errors are exceptions' names; deliveries are
// [partition, offset] or an exception's name.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Day {
    static final long NOON_MS = 1_700_000_000_000L;
    static final Duration PATIENCE = Duration.ofSeconds(30);
    static final ObjectMapper JSON = new ObjectMapper();

    static String bootstrap;
    static Admin admin;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (Admin made = Admin.create(settings)) {
            admin = made;
            createAndConfigure();
            write();
            read();
            trim();
            grow();
            delete();
        }
    }

    static void note(String step, Object outcome) throws Exception {
        System.out.println(JSON.writeValueAsString(Arrays.asList(step, outcome)));
    }

    /** What a call came to: its value, or its error's name. */
    static Object outcome(Callable<Object> call) {
        try {
            return call.call();
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
    }

    static Object done(Future<?> future) {
        return outcome(() -> {
            future.get();
            return "done";
        });
    }

    static void eventually(Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!Boolean.TRUE.equals(outcome(holds::call))) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("it did not come to hold");
            }
            Thread.sleep(20);
        }
    }

    // --- topics ---------------------------------------------------------------------------------

    static Object create(String topic, int partitions, Map<String, String> configs) {
        NewTopic wanted = new NewTopic(topic, partitions, (short) 1).configs(configs);
        return done(admin.createTopics(List.of(wanted)).all());
    }

    static void awaitPartitions(String topic, int count) throws Exception {
        eventually(() -> admin.describeTopics(List.of(topic)).allTopicNames().get()
            .get(topic).partitions().size() == count);
    }

    static Object configs(String topic) {
        return outcome(() -> {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            Config found = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            Map<String, Object> shown = new TreeMap<>();
            for (String name : List.of("retention.ms", "max.message.bytes", "cleanup.policy")) {
                ConfigEntry entry = found.get(name);
                shown.put(name, Arrays.asList(entry.value(), entry.source().toString()));
            }
            return shown;
        });
    }

    static Object alter(String topic, AlterConfigOp.OpType how, String name, String value) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), how);
        return done(admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all());
    }

    static void createAndConfigure() throws Exception {
        Map<String, String> own = Map.of(
            "retention.ms", "10000000000000", "max.message.bytes", "200000");
        note("create", create("orders", 3, own));
        awaitPartitions("orders", 3);
        note("create again", create("orders", 3, Map.of()));
        note("create without partitions", create("none", 0, Map.of()));
        note("create with an unknown setting", create("unknown", 1, Map.of("no.such.key", "1")));
        note("create with a bad name", create("a b", 1, Map.of()));
        note("describe", configs("orders"));
        note("set", alter("orders", AlterConfigOp.OpType.SET, "retention.ms", "20000000000000"));
        note("append", alter("orders", AlterConfigOp.OpType.APPEND, "cleanup.policy", "compact"));
        note("append to a number", alter("orders", AlterConfigOp.OpType.APPEND, "retention.ms", "1"));
        eventually(() -> configs("orders").toString().contains("delete,compact"));
        note("describe after both", configs("orders"));
        note("subtract", alter("orders", AlterConfigOp.OpType.SUBTRACT, "cleanup.policy", "compact"));
        note("bad value", alter("orders", AlterConfigOp.OpType.SET, "retention.ms", "soon"));
        note("unknown setting", alter("orders", AlterConfigOp.OpType.SET, "no.such.key", "1"));
        note("not there", alter("nowhere", AlterConfigOp.OpType.SET, "retention.ms", "1"));
        eventually(() -> !configs("orders").toString().contains("compact"));
        note("describe at last", configs("orders"));
    }

    // --- records --------------------------------------------------------------------------------

    static KafkaProducer<byte[], byte[]> producer(Map<String, String> own) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("max.request.size", "1000000");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        settings.putAll(own);
        return new KafkaProducer<>(settings);
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int partition, int number, byte[] value) {
        byte[] key = ("key " + number).getBytes(StandardCharsets.UTF_8);
        ProducerRecord<byte[], byte[]> made =
            new ProducerRecord<>(topic, partition, NOON_MS + 1000L * number, key, value);
        made.headers().add("number", Integer.toString(number).getBytes(StandardCharsets.UTF_8));
        made.headers().add("null", null);
        return made;
    }

    static Object send(String topic, int partition, List<byte[]> values, Map<String, String> own)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(own)) {
            for (int number = 0; number < values.size(); number++) {
                sent.add(producer.send(record(topic, partition, number, values.get(number))));
            }
            producer.flush();
        }
        List<Object> deliveries = new ArrayList<>();
        for (Future<RecordMetadata> each : sent) {
            deliveries.add(outcome(() -> List.of(each.get().partition(), each.get().offset())));
        }
        return deliveries;
    }

    static List<byte[]> values(String stem, int count) {
        List<byte[]> values = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            values.add((stem + " " + number).getBytes(StandardCharsets.UTF_8));
        }
        return values;
    }

    static void write() throws Exception {
        Map<String, String> plain = Map.of("enable.idempotence", "false", "acks", "1");
        note("acks=1", send("orders", 0, values("plain", 10), plain));
        note("idempotent", send("orders", 1, values("once", 10), Map.of()));
        note("idempotent, one by one", send("orders", 1, values("each", 9), Map.of("batch.size", "1")));
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            Map<String, String> own = Map.of("compression.type", codec, "linger.ms", "50");
            note(codec, send("orders", 2, values(codec, 5), own));
        }
        note("no value", send("orders", 2, Arrays.asList((byte[]) null), Map.of()));
        note("large", send("orders", 2, List.of(new byte[150_000]), Map.of()));
        note("too large", send("orders", 2, List.of(new byte[250_000]), Map.of()));
        note("allow larger",
            alter("orders", AlterConfigOp.OpType.SET, "max.message.bytes", "400000"));
        eventually(() -> configs("orders").toString().contains("400000"));
        note("larger", send("orders", 2, List.of(new byte[250_000]), Map.of()));
    }

    static Object consume(String topic, int partition, long offset, int count) {
        return outcome(() -> {
            TopicPartition at = new TopicPartition(topic, partition);
            List<Object> read = new ArrayList<>();
            try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
                consumer.assign(List.of(at));
                consumer.seek(at, offset);
                while (read.size() < count) {
                    var polled = consumer.poll(PATIENCE);
                    if (polled.isEmpty()) {
                        throw new IllegalStateException("no records");
                    }
                    polled.forEach(each -> read.add(shown(each)));
                }
            }
            return read;
        });
    }

    static KafkaConsumer<byte[], byte[]> consumer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "none");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return new KafkaConsumer<>(settings);
    }

    static Object shown(ConsumerRecord<byte[], byte[]> record) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("offset", record.offset());
        fields.put("timestamp", record.timestamp());
        fields.put("type", record.timestampType().toString());
        fields.put("epoch", record.leaderEpoch().orElse(-1));
        fields.put("key", record.key() == null ? null : new String(record.key(), StandardCharsets.UTF_8));
        fields.put("value", record.value() == null ? null : Arrays.hashCode(record.value()));
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.asList(header.key(),
                header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8)));
        }
        fields.put("headers", headers);
        return fields;
    }

    static Object offset(String topic, int partition, OffsetSpec spec) {
        return outcome(() -> {
            TopicPartition at = new TopicPartition(topic, partition);
            var found = admin.listOffsets(Map.of(at, spec)).partitionResult(at).get();
            return Arrays.asList(found.offset(), found.timestamp(), found.leaderEpoch().orElse(-1));
        });
    }

    static void read() throws Exception {
        note("read partition 0", consume("orders", 0, 0, 10));
        note("read partition 1", consume("orders", 1, 0, 19));
        note("read partition 2", consume("orders", 2, 0, 28));
        note("read from an offset", consume("orders", 0, 7, 3));
        note("read beyond the end", consume("orders", 0, 1000, 1));
        note("first", offset("orders", 0, OffsetSpec.earliest()));
        note("end", offset("orders", 0, OffsetSpec.latest()));
        note("largest timestamp", offset("orders", 0, OffsetSpec.maxTimestamp()));
        note("earliest here", offset("orders", 0, OffsetSpec.earliestLocal()));
        note("latest in tiers", offset("orders", 0, OffsetSpec.latestTiered()));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            TopicPartition at = new TopicPartition("orders", 0);
            for (long after : new long[] {-1000, 0, 2000, 2500, 9000, 9001}) {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(at, NOON_MS + after)).get(at);
                note("time +" + after, found == null ? null
                    : List.of(found.offset(), found.timestamp(), found.leaderEpoch().orElse(-1)));
            }
        }
    }

    static Object deleteRecords(String topic, int partition, long before) {
        return outcome(() -> {
            TopicPartition at = new TopicPartition(topic, partition);
            return admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(before)))
                .lowWatermarks().get(at).get().lowWatermark();
        });
    }

    static void trim() throws Exception {
        note("trim", deleteRecords("orders", 0, 4));
        note("trim beyond the end", deleteRecords("orders", 0, 1000));
        note("first after trim", offset("orders", 0, OffsetSpec.earliest()));
        note("read what is gone", consume("orders", 0, 1, 1));
        note("read what is left", consume("orders", 0, 4, 6));
        note("trim all", deleteRecords("orders", 1, -1));
        note("first when all is gone", offset("orders", 1, OffsetSpec.earliest()));
        note("largest timestamp when all is gone", offset("orders", 1, OffsetSpec.maxTimestamp()));
        note("write after that", send("orders", 1, values("after", 2), Map.of()));
        note("read after that", consume("orders", 1, 19, 2));
    }

    static Object addPartitions(String topic, int count) {
        return done(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(count))).all());
    }

    static void grow() throws Exception {
        note("add partitions", addPartitions("orders", 5));
        awaitPartitions("orders", 5);
        note("take partitions away", addPartitions("orders", 2));
        note("add to a topic that is not there", addPartitions("nowhere", 2));
        note("write to a new one", send("orders", 4, values("new", 2), Map.of()));
        note("read a new one", consume("orders", 4, 0, 2));
        Map<String, String> compact = new HashMap<>(Map.of("cleanup.policy", "compact"));
        note("create compacted", create("compacted", 1, compact));
        awaitPartitions("compacted", 1);
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            note("no key for a compacted topic",
                done(producer.send(new ProducerRecord<>("compacted", 0, null, new byte[1]))));
        }
        note("trim a compacted topic", deleteRecords("compacted", 0, 0));
    }

    static void delete() throws Exception {
        for (String topic : List.of("orders", "compacted", "nowhere")) {
            note("delete " + topic, done(admin.deleteTopics(List.of(topic)).all()));
        }
    }
}
