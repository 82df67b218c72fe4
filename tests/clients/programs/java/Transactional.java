// A transactional producer of the Java client; a record that was put has its response when put returns.

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

class Transactional {
    private final KafkaProducer<byte[], byte[]> producer;

    Transactional(String bootstrap, JsonNode wanted) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", wanted.get("id").asText());
        settings.put("transaction.timeout.ms", wanted.get("timeout_ms").asText());
        settings.put("linger.ms", "0");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        producer = new KafkaProducer<>(settings);
        producer.initTransactions();
    }

    Object begin() {
        producer.beginTransaction();
        return null;
    }

    Object put(JsonNode wanted) throws Exception {
        producer.send(new ProducerRecord<>(
            wanted.get("topic").asText(), wanted.get("partition").asInt(), null,
            Agent.bytes(wanted.get("value")))).get();
        return null;
    }

    Object offsets(JsonNode wanted) {
        producer.sendOffsetsToTransaction(
            Map.of(Agent.partition(wanted), new OffsetAndMetadata(wanted.get("offset").asLong())),
            new ConsumerGroupMetadata(wanted.get("group").asText()));
        return null;
    }

    Object end(boolean commit) {
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
        return null;
    }

    Object close() {
        producer.close(Duration.ZERO);
        return null;
    }
}
