// A source of Kafka Connect that makes the numbers 0, 1, 2, ... and goes on after the last number
// whose offset is stored, so that with exactly-once support each is in the topic once.
//
//     connector.class=Numbers  topic=...  records.per.second=...

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

public class Numbers extends SourceConnector {
    private Map<String, String> settings;

    @Override
    public void start(Map<String, String> given) {
        settings = given;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Counting.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int tasksMax) {
        return List.of(settings);
    }

    @Override
    public void stop() {}

    @Override
    public ConfigDef config() {
        return new ConfigDef()
            .define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "the target")
            .define("records.per.second", ConfigDef.Type.INT, ConfigDef.Importance.HIGH, "at most");
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> given) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    @Override
    public String version() {
        return "1";
    }

    public static class Counting extends SourceTask {
        private static final Map<String, String> SOURCE = Map.of("source", "numbers");
        private static final int IN_A_BATCH = 20;
        private String topic;
        private long pauseMs;
        private long next;

        @Override
        public void start(Map<String, String> settings) {
            topic = settings.get("topic");
            pauseMs = 1_000L * IN_A_BATCH / Integer.parseInt(settings.get("records.per.second"));
            Map<String, Object> stored = context.offsetStorageReader().offset(SOURCE);
            next = stored == null ? 0 : (Long) stored.get("number") + 1;
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(pauseMs);
            List<SourceRecord> batch = new ArrayList<>();
            for (int count = 0; count < IN_A_BATCH; count++, next++) {
                batch.add(new SourceRecord(
                    SOURCE, Map.of("number", next), topic, 0, Schema.STRING_SCHEMA, "" + next));
            }
            return batch;
        }

        @Override
        public void stop() {}

        @Override
        public String version() {
            return "1";
        }
    }
}
