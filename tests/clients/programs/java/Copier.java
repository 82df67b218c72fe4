// A copier by the Java clients: tests/exactly_once/copiers/__init__.py says what it does and prints.
//
//     java -cp "CLASSES:libs/*" Copier HOST:PORT TRANSACTIONAL_ID GROUP FROM TO

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Copier {
    private static final int ENDED_BY_AN_ERROR = 3;
    private static final int RECORDS_MAX = 50;
    private static final int SESSION_MS = 2_000;
    private static final BufferedReader LINES = new BufferedReader(new InputStreamReader(System.in));

    public static void main(String[] words) throws IOException {
        String group = words[2];
        String from = words[3];
        String to = words[4];
        try (var consumer = consumer(words[0], group); var producer = producer(words[0], words[1])) {
            producer.initTransactions();
            consumer.subscribe(List.of(from));
            while (true) {
                ConsumerRecords<byte[], byte[]> taken = consumer.poll(Duration.ofMillis(100));
                if (taken.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                step("taken");
                try {
                    copy(taken, consumer, producer, to);
                } catch (ProducerFencedException | InvalidProducerEpochException error) {
                    throw error;
                } catch (KafkaException error) {
                    System.err.println(error);
                    producer.abortTransaction();
                    goBack(consumer);
                    continue;
                }
                step("committed");
            }
        } catch (KafkaException error) {
            System.err.println(error);
        }
        Runtime.getRuntime().halt(ENDED_BY_AN_ERROR);
    }

    private static void copy(
            ConsumerRecords<byte[], byte[]> taken,
            KafkaConsumer<byte[], byte[]> consumer,
            KafkaProducer<byte[], byte[]> producer,
            String to) throws IOException {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> each : taken) {
            producer.send(new ProducerRecord<>(to, each.partition(), null, each.value()));
            offsets.put(
                new TopicPartition(each.topic(), each.partition()),
                new OffsetAndMetadata(each.offset() + 1));
        }
        producer.flush();
        step("sent");
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        step("offsets");
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException error) {
                System.err.println(error); // the outcome is unknown: it is asked for again
            }
        }
    }

    private static void goBack(KafkaConsumer<byte[], byte[]> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition place : consumer.assignment()) {
            OffsetAndMetadata at = committed.get(place);
            if (at == null) {
                consumer.seekToBeginning(List.of(place));
            } else {
                consumer.seek(place, at);
            }
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String group) {
        Properties settings = common(bootstrap);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", RECORDS_MAX);
        settings.put("session.timeout.ms", SESSION_MS);
        settings.put("heartbeat.interval.ms", SESSION_MS / 4);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return new KafkaConsumer<>(settings);
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String id) {
        Properties settings = common(bootstrap);
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", 10_000);
        settings.put("delivery.timeout.ms", 10_000);
        settings.put("request.timeout.ms", 5_000);
        settings.put("linger.ms", 0);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        return new KafkaProducer<>(settings);
    }

    private static Properties common(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("reconnect.backoff.max.ms", 200);
        return settings;
    }

    private static void step(String name) throws IOException {
        System.out.println(name);
        if (LINES.readLine() == null) {
            Runtime.getRuntime().halt(0);
        }
    }
}
