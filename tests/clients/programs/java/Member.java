// One member of a group in the Java consumer: a thread that polls and makes the calls it is handed.

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

final class Member implements ConsumerRebalanceListener {
    static final Duration POLL = Duration.ofMillis(100);
    static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final ConcurrentLinkedQueue<Runnable> calls = new ConcurrentLinkedQueue<>();
    private final Thread thread = new Thread(this::run, "member");
    private volatile boolean stopping;

    // Under this object's lock.
    private final Set<TopicPartition> assigned = new LinkedHashSet<>();
    private final List<TopicPartition> revoked = new ArrayList<>();
    private List<ConsumerRecord<byte[], byte[]>> untaken = new ArrayList<>();
    private final Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();

    Member(String bootstrap, JsonNode wanted) {
        Map<String, String> settings = new HashMap<>();
        int autoCommitMs = wanted.get("auto_commit_ms").asInt();
        settings.put("group.id", wanted.get("group").asText());
        settings.put("partition.assignment.strategy", ASSIGNORS.get(wanted.get("strategy").asText()));
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", String.valueOf(autoCommitMs > 0));
        if (autoCommitMs > 0) {
            settings.put("auto.commit.interval.ms", String.valueOf(autoCommitMs));
        }
        settings.put("heartbeat.interval.ms", "300");
        settings.put("session.timeout.ms", "6000");
        if (!wanted.get("instance").asText().isEmpty()) {
            settings.put("group.instance.id", wanted.get("instance").asText());
        }
        consumer = Agent.consumer(settings);
        List<String> topics = new ArrayList<>();
        wanted.get("topics").forEach(topic -> topics.add(topic.asText()));
        consumer.subscribe(topics, this);
        thread.start();
    }

    private void run() {
        while (!stopping) {
            var polled = consumer.poll(POLL);
            synchronized (this) {
                polled.forEach(untaken::add);
            }
            for (Runnable call = calls.poll(); call != null; call = calls.poll()) {
                call.run();
            }
        }
        consumer.close();
    }

    private Object call(Runnable what) throws Exception {
        CompletableFuture<Void> done = new CompletableFuture<>();
        calls.add(() -> {
            try {
                what.run();
                done.complete(null);
            } catch (RuntimeException error) {
                done.completeExceptionally(error);
            }
        });
        return done.get(Agent.PATIENCE.toSeconds(), TimeUnit.SECONDS);
    }

    @Override
    public synchronized void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        assigned.addAll(partitions);
    }

    @Override
    public synchronized void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        for (TopicPartition gone : partitions) {
            assigned.remove(gone);
            revoked.add(gone);
            forget(gone);
        }
    }

    private synchronized void forget(TopicPartition gone) {
        next.remove(gone);
        untaken.removeIf(each -> gone.equals(new TopicPartition(each.topic(), each.partition())));
    }

    synchronized Object assigned() {
        return Map.of("now", pairs(assigned), "revoked", pairs(revoked));
    }

    private static List<Object> pairs(Collection<TopicPartition> partitions) {
        List<Object> pairs = new ArrayList<>();
        partitions.forEach(each -> pairs.add(List.of(each.topic(), each.partition())));
        return pairs;
    }

    synchronized Object take() {
        List<Object> taken = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> each : untaken) {
            TopicPartition at = new TopicPartition(each.topic(), each.partition());
            next.put(at, new OffsetAndMetadata(each.offset() + 1));
            taken.add(Agent.shown(each));
        }
        untaken = new ArrayList<>();
        return taken;
    }

    Object commit() throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets;
        synchronized (this) {
            offsets = Map.copyOf(next);
        }
        return call(() -> consumer.commitSync(offsets));
    }

    Object seek(TopicPartition at, long offset) throws Exception {
        return call(() -> {
            consumer.seek(at, offset);
            forget(at);
        });
    }

    Object leave() throws Exception {
        stopping = true;
        thread.join(Agent.PATIENCE.toMillis());
        return null;
    }
}
