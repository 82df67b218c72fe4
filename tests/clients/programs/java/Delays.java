import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

/**
 * Delays of Apache Kafka's own quotas, for lines of commands:
 *
 * <pre>
 *   N samples seconds        quotas of bytes, none of them set
 *   Q user client bound      sets one; "-": it has no such part, or no bound; "*": the default
 *   C user client bytes ms   uses some; answers with the delay in ms
 *   M rate samples seconds   a bucket of tokens
 *   P count strict ms        takes some; answers with "refused" or "done", and the delay in ms
 * </pre>
 */
public final class Delays {
    private static ClientQuotaManager manager;
    private static Metrics metrics;
    private static Sensor tokens;
    private static double rate;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new java.io.FileOutputStream(
            java.io.FileDescriptor.out), false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "N" -> begin(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
                case "Q" -> set(words[1], words[2], words[3]);
                case "C" -> out.println(charge(words));
                case "M" -> fill(words);
                case "P" -> out.println(take(words));
                default -> throw new IllegalArgumentException(line);
            }
        }
        out.flush();
        System.exit(0);
    }

    private static void begin(int samples, int seconds) throws Exception {
        if (manager != null) {
            manager.shutdown();
            metrics.close();
        }
        metrics = new Metrics();
        manager = new ClientQuotaManager(
            new ClientQuotaManagerConfig(samples, seconds), metrics, QuotaType.PRODUCE,
            Time.SYSTEM, "");
    }

    private static void set(String user, String client, String bound) {
        Optional<ClientQuotaEntity.ConfigEntity> ofUser = switch (user) {
            case "-" -> Optional.empty();
            case "*" -> Optional.of(ClientQuotaManager.DEFAULT_USER_ENTITY);
            default -> Optional.of(new ClientQuotaManager.UserEntity(user));
        };
        Optional<ClientQuotaEntity.ConfigEntity> ofClient = switch (client) {
            case "-" -> Optional.empty();
            case "*" -> Optional.of(ClientQuotaManager.DEFAULT_USER_CLIENT_ID);
            default -> Optional.of(new ClientQuotaManager.ClientIdEntity(client));
        };
        manager.updateQuota(ofUser, ofClient, bound.equals("-")
            ? Optional.empty() : Optional.of(Quota.upperBound(Double.parseDouble(bound))));
    }

    private static int charge(String[] words) throws Exception {
        Session session = new Session(
            new KafkaPrincipal("User", words[1]), InetAddress.getLoopbackAddress());
        String client = words[2].equals("-") ? "" : words[2];
        return manager.maybeRecordAndGetThrottleTimeMs(
            session, client, Double.parseDouble(words[3]), Long.parseLong(words[4]));
    }

    private static void fill(String[] words) {
        rate = Double.parseDouble(words[1]);
        MetricConfig config = new MetricConfig()
            .samples(Integer.parseInt(words[2]))
            .timeWindow(Long.parseLong(words[3]), TimeUnit.SECONDS)
            .quota(Quota.upperBound(rate));
        Metrics own = new Metrics();
        tokens = own.sensor("tokens", config);
        tokens.add(own.metricName("tokens", "quotas"), new TokenBucket());
    }

    private static String take(String[] words) {
        double count = Double.parseDouble(words[1]);
        long nowMs = Long.parseLong(words[3]);
        if (words[2].equals("strict")) {
            try {
                tokens.checkQuotas(nowMs);
            } catch (QuotaViolationException exception) {
                return "refused " + delay(exception);
            }
            tokens.record(count, nowMs, false);
            return "done 0";
        }
        try {
            tokens.record(count, nowMs, true);
        } catch (QuotaViolationException exception) {
            return "done " + delay(exception);
        }
        return "done 0";
    }

    private static long delay(QuotaViolationException exception) {
        return Math.round(-exception.value() / exception.bound() * 1000);
    }
}
