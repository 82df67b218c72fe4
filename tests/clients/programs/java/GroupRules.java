import com.dynatrace.hash4j.hashing.Hashing;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberSubscription;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;

/**
 * What Apache Kafka's coordinator of groups decides, for lines of commands:
 *
 * <pre>
 *   N name...                      names of topics
 *   E pattern                      in hexadecimal; answers with a 0 or 1 for each of them, "-" where
 *                                  it is none, or "!" where the stack is not deep enough
 *   X bytes                        in hexadecimal; answers with their XXH3
 *   H id name racks                of each partition, with commas and ";"; answers with the hash
 *   G name=hash...                 answers with the hash of a group
 *   A assignor sizes member...     answers with the microseconds, and who is to have what
 * </pre>
 *
 * Topics of an assignment are numbers. Sizes: "0=4,1=2". A member: its id, "/", its instance id or
 * nothing, "/", its topics with commas, "/", what it has, as in "0:1,2;1:0". So is the answer, with
 * the id, "/" and what it is to have.
 */
public final class GroupRules {
    private static final List<String> NAMES = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new java.io.FileOutputStream(
            java.io.FileDescriptor.out), false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            switch (words[0]) {
                case "N" -> {
                    NAMES.clear();
                    NAMES.addAll(List.of(words).subList(1, words.length));
                }
                case "E" -> out.println(matches(text(words[1])));
                case "X" -> out.println(hash(HexFormat.of().parseHex(words[1])));
                case "H" -> out.println(topicHash(words[1], words[2], words[3]));
                case "G" -> out.println(groupHash(words));
                case "A" -> out.println(assigned(words));
                default -> throw new IllegalArgumentException(line);
            }
        }
        out.flush();
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    private static String matches(String expression) {
        Pattern pattern;
        try {
            pattern = Pattern.compile(expression);
        } catch (PatternSyntaxException | StringIndexOutOfBoundsException error) {
            return "-";
        }
        StringBuilder found = new StringBuilder();
        try {
            for (String name : NAMES) found.append(pattern.matches(name) ? '1' : '0');
        } catch (StackOverflowError error) {
            return "!";
        }
        return found.toString();
    }

    private static long hash(byte[] data) {
        return Hashing.xxh3_64().hashBytesToLong(data);
    }

    private static long topicHash(String id, String name, String racks) {
        String[] partitions = racks.split(";", -1);
        Object topic = Proxy.newProxyInstance(
            GroupRules.class.getClassLoader(),
            new Class<?>[] {CoordinatorMetadataImage.TopicMetadata.class},
            (proxy, method, given) -> switch (method.getName()) {
                case "id" -> Uuid.fromString(id);
                case "name" -> name;
                case "partitionCount" -> partitions.length;
                case "partitionRacks" -> {
                    String some = partitions[(Integer) given[0]];
                    yield new ArrayList<>(some.isEmpty() ? List.of() : List.of(some.split(",")));
                }
                default -> throw new UnsupportedOperationException(method.getName());
            });
        CoordinatorMetadataImage image = (CoordinatorMetadataImage) Proxy.newProxyInstance(
            GroupRules.class.getClassLoader(),
            new Class<?>[] {CoordinatorMetadataImage.class},
            (proxy, method, given) -> {
                if (method.getName().equals("topicMetadata")) return Optional.of(topic);
                throw new UnsupportedOperationException(method.getName());
            });
        return Utils.computeTopicHash(name, image);
    }

    private static long groupHash(String[] words) {
        Map<String, Long> hashes = new HashMap<>();
        for (int each = 1; each < words.length; each++) {
            String[] parts = words[each].split("=");
            hashes.put(parts[0], Long.parseLong(parts[1]));
        }
        return Utils.computeGroupHash(hashes);
    }

    private record Member(Optional<String> instanceId, Set<Uuid> topics, Map<Uuid, Set<Integer>> has)
        implements MemberSubscription, MemberAssignment {
        @Override
        public Optional<String> rackId() {
            return Optional.empty();
        }

        @Override
        public Set<Uuid> subscribedTopicIds() {
            return topics;
        }

        @Override
        public Map<Uuid, Set<Integer>> partitions() {
            return has;
        }
    }

    private record Group(Map<String, Member> members, Set<String> assigned) implements GroupSpec {
        @Override
        public Collection<String> memberIds() {
            return members.keySet();
        }

        @Override
        public SubscriptionType subscriptionType() {
            return members.values().stream().map(Member::topics).distinct().count() > 1
                ? SubscriptionType.HETEROGENEOUS
                : SubscriptionType.HOMOGENEOUS;
        }

        @Override
        public boolean isPartitionAssigned(Uuid topic, int partition) {
            return assigned.contains(topic + ":" + partition);
        }

        @Override
        public boolean isPartitionAssignable(Uuid topic, int partition) {
            return true;
        }

        @Override
        public MemberSubscription memberSubscription(String memberId) {
            return members.get(memberId);
        }

        @Override
        public MemberAssignment memberAssignment(String memberId) {
            return members.get(memberId);
        }
    }

    private record Sizes(Map<Uuid, Integer> of) implements SubscribedTopicDescriber {
        @Override
        public int numPartitions(Uuid topic) {
            return of.getOrDefault(topic, -1);
        }

        @Override
        public Set<String> racksForPartition(Uuid topic, int partition) {
            return Set.of();
        }
    }

    private static Uuid topic(String number) {
        return new Uuid(0, Long.parseLong(number) + 1);
    }

    private static String assigned(String[] words) {
        PartitionAssignor assignor =
            words[1].equals("range") ? new RangeAssignor() : new UniformAssignor();
        Map<Uuid, Integer> sizes = new HashMap<>();
        for (String each : words[2].split(",")) {
            String[] parts = each.split("=");
            sizes.put(topic(parts[0]), Integer.parseInt(parts[1]));
        }
        Map<String, Member> members = new LinkedHashMap<>();
        Set<String> taken = new HashSet<>();
        for (int each = 3; each < words.length; each++) {
            String[] parts = words[each].split("/", -1);
            Set<Uuid> topics = new HashSet<>();
            for (String one : parts[2].split(",")) if (!one.isEmpty()) topics.add(topic(one));
            Map<Uuid, Set<Integer>> has = new HashMap<>();
            for (String one : parts[3].split(";")) {
                if (one.isEmpty()) continue;
                String[] two = one.split(":");
                Set<Integer> numbers = new HashSet<>();
                for (String number : two[1].split(",")) {
                    numbers.add(Integer.parseInt(number));
                    taken.add(topic(two[0]) + ":" + number);
                }
                has.put(topic(two[0]), numbers);
            }
            Optional<String> instance =
                parts[1].isEmpty() ? Optional.empty() : Optional.of(parts[1]);
            members.put(parts[0], new Member(instance, topics, Collections.unmodifiableMap(has)));
        }
        Group group = new Group(members, taken);
        long began = System.nanoTime();
        GroupAssignment found = assignor.assign(group, new Sizes(sizes));
        StringBuilder answer = new StringBuilder();
        answer.append((System.nanoTime() - began) / 1000);
        found.members().forEach((id, one) -> {
            answer.append(' ').append(id).append('/');
            Map<Long, Set<Integer>> sorted = new TreeMap<>();
            one.partitions().forEach((topic, numbers) ->
                sorted.put(topic.getLeastSignificantBits() - 1, new TreeSet<>(numbers)));
            List<String> parts = new ArrayList<>();
            sorted.forEach((topic, numbers) -> {
                List<String> texts = new ArrayList<>();
                numbers.forEach(number -> texts.add(number.toString()));
                if (!texts.isEmpty()) parts.add(topic + ":" + String.join(",", texts));
            });
            answer.append(String.join(";", parts));
        });
        return answer.toString();
    }
}
