// Transactions that one process opens and another one ends, by stored producer id and epoch, as
// Flink's Kafka sink does: a checkpoint stores both, and the sink's next start ends what it finds.
//
//     java -cp "CLASSES:libs/*" Resumed HOST:PORT TOPIC
//
//     open ID VALUE...         a transaction with these records, of which nothing is in flight any
//                              more: "ok PRODUCER_ID EPOCH"
//     commit ID PRODUCER_ID EPOCH, abort ID PRODUCER_ID EPOCH        "ok", or "error CLASS"
//     init ID                  what the id left open is aborted: "ok"
//
// The client has no call that goes on with a transaction, so its state is set by reflection.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.ProducerIdAndEpoch;

public class Resumed {
    private static final Map<String, KafkaProducer<byte[], byte[]>> OPEN = new HashMap<>();

    public static void main(String[] words) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = ("ok " + answer(words[0], words[1], line.split(" "))).trim();
            } catch (KafkaException error) {
                System.err.println(error);
                answer = "error " + error.getClass().getSimpleName();
            }
            System.out.println(answer);
        }
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String bootstrap, String topic, String[] words) throws Exception {
        var producer = producer(bootstrap, words[1]);
        switch (words[0]) {
            case "open":
                producer.initTransactions();
                producer.beginTransaction();
                for (int at = 2; at < words.length; at++) {
                    var partition = (at - 2) % producer.partitionsFor(topic).size();
                    producer.send(new ProducerRecord<>(topic, partition, null, words[at].getBytes()));
                }
                producer.flush();
                OPEN.put(words[1], producer); // it stays as it is until the process is killed
                var own = (ProducerIdAndEpoch) field(manager(producer), "producerIdAndEpoch");
                return own.producerId + " " + own.epoch;
            case "init":
                producer.initTransactions();
                break;
            default:
                goOn(producer, Long.parseLong(words[2]), Short.parseShort(words[3]));
                if (words[0].equals("commit")) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
        }
        producer.close(Duration.ZERO);
        return "";
    }

    private static void goOn(KafkaProducer<byte[], byte[]> producer, long id, short epoch)
            throws Exception {
        Object manager = manager(producer);
        synchronized (manager) {
            move(manager, "INITIALIZING");
            set(manager, "producerIdAndEpoch", new ProducerIdAndEpoch(id, epoch));
            move(manager, "READY");
            move(manager, "IN_TRANSACTION");
            set(manager, "transactionStarted", true);
        }
    }

    private static Object manager(KafkaProducer<byte[], byte[]> producer) throws Exception {
        return field(producer, "transactionManager");
    }

    private static Object field(Object of, String name) throws Exception {
        Field found = of.getClass().getDeclaredField(name);
        found.setAccessible(true);
        return found.get(of);
    }

    private static void set(Object of, String name, Object value) throws Exception {
        Field found = of.getClass().getDeclaredField(name);
        found.setAccessible(true);
        found.set(of, value);
    }

    private static void move(Object manager, String state) throws Exception {
        for (Class<?> each : manager.getClass().getDeclaredClasses()) {
            if (each.getSimpleName().equals("State")) {
                Method found = manager.getClass().getDeclaredMethod("transitionTo", each);
                found.setAccessible(true);
                for (Object one : each.getEnumConstants()) {
                    if (one.toString().equals(state)) {
                        found.invoke(manager, one);
                    }
                }
            }
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", 60_000);
        settings.put("delivery.timeout.ms", 30_000);
        settings.put("request.timeout.ms", 5_000);
        settings.put("reconnect.backoff.max.ms", 200);
        settings.put("linger.ms", 0);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        return new KafkaProducer<>(settings);
    }
}
