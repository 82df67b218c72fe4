// The calls that other people's consoles make of a broker, over the Java clients, one after the other.
//
//     java -cp "CLASSES:libs/*" Consoles --bootstrap-server HOST:PORT TOPIC
//
// TOPIC has two partitions. The calls are those of kafka-ui, AKHQ and Redpanda's console; what the
// consoles write is written here, too, and undone. Prints one JSON line: of each call, by its name, what
// it answered ("ok", in short) or its error ("error": class and message). An error does not end the
// program.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RaftVoterEndpoint;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Consoles {
    interface Call {
        Object make() throws Exception;
    }

    static final Duration PATIENCE = Duration.ofSeconds(20);
    static final int RECORDS = 3;

    private final Map<String, Object> answers = new LinkedHashMap<>();
    private final String bootstrap;
    private final String topic;
    private final TopicPartition first;
    private final TopicPartition second;
    private final Admin admin;

    Consoles(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        first = new TopicPartition(topic, 0);
        second = new TopicPartition(topic, 1);
        admin = Admin.create(settings(Map.of(
            "request.timeout.ms", "10000", "default.api.timeout.ms", "10000")));
    }

    public static void main(String[] arguments) throws Exception {
        Consoles consoles = new Consoles(arguments[1], arguments[2]);
        try (consoles.admin) {
            consoles.all();
        }
        System.out.println(new ObjectMapper().writeValueAsString(consoles.answers));
    }

    Properties settings(Map<String, String> own) {
        Properties made = new Properties();
        made.put("bootstrap.servers", bootstrap);
        made.putAll(own);
        return made;
    }

    void call(String name, Call call) {
        Map<String, Object> found = new HashMap<>();
        try {
            found.put("ok", call.make());
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            found.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
        answers.put(name, found);
    }

    void all() throws Exception {
        String group = "group-of-" + topic;
        String shares = "share-group-of-" + topic;
        String id = "id-of-" + topic;
        KafkaConsumer<byte[], byte[]> consumer = member(group);
        KafkaShareConsumer<byte[], byte[]> sharer = sharer(shares);
        KafkaProducer<byte[], byte[]> producer = producer(id);
        try (consumer; sharer; producer) {
            read(consumer);
            share(sharer);
            brokers();
            topics();
            groups(group, shares);
            offsets();
            transactions(id);
            security();
            producer.commitTransaction();
        }
        changes();
        changesOfGroups(group, shares);
        deletions();
    }

    // -- what there is to see

    KafkaProducer<byte[], byte[]> producer(String id) throws Exception {
        KafkaProducer<byte[], byte[]> made = new KafkaProducer<>(settings(Map.of(
            "transactional.id", id, "key.serializer", ByteArraySerializer.class.getName(),
            "value.serializer", ByteArraySerializer.class.getName())));
        made.initTransactions();
        made.beginTransaction();
        for (int number = 0; number < RECORDS; number++) {
            made.send(new ProducerRecord<>(topic, 0, null, new byte[] {(byte) number})).get();
        }
        return made;
    }

    KafkaConsumer<byte[], byte[]> member(String group) {
        KafkaConsumer<byte[], byte[]> made = new KafkaConsumer<>(settings(Map.of(
            "group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "key.deserializer", ByteArrayDeserializer.class.getName(),
            "value.deserializer", ByteArrayDeserializer.class.getName())));
        made.subscribe(List.of(topic));
        return made;
    }

    void read(KafkaConsumer<byte[], byte[]> consumer) {
        long until = System.nanoTime() + PATIENCE.toNanos();
        int had = 0;
        while (had < RECORDS && System.nanoTime() < until) {
            had += consumer.poll(Duration.ofMillis(100)).count();
        }
        int all = had;
        call("consumer reads", () -> all);
        call("consumer.beginningOffsets", () -> consumer.beginningOffsets(List.of(first)).get(first));
        call("consumer.endOffsets", () -> consumer.endOffsets(List.of(first)).get(first));
        call("consumer.commitSync", () -> {
            consumer.commitSync();
            return null;
        });
    }

    KafkaShareConsumer<byte[], byte[]> sharer(String group) {
        KafkaShareConsumer<byte[], byte[]> made = new KafkaShareConsumer<>(settings(Map.of(
            "group.id", group, "key.deserializer", ByteArrayDeserializer.class.getName(),
            "value.deserializer", ByteArrayDeserializer.class.getName())));
        made.subscribe(List.of(topic));
        return made;
    }

    void share(KafkaShareConsumer<byte[], byte[]> sharer) {
        sharer.poll(Duration.ofMillis(100));
    }

    // -- what the pages read

    void brokers() {
        call("describeCluster", () -> admin.describeCluster().nodes().get().size());
        call("describeCluster with operations", () -> admin.describeCluster(
            new DescribeClusterOptions().includeAuthorizedOperations(true))
            .authorizedOperations().get().size());
        call("describeCluster with fenced brokers", () -> admin.describeCluster(
            new DescribeClusterOptions().includeFencedBrokers(true)).nodes().get().size());
        call("describeFeatures", () -> new TreeSet<>(
            admin.describeFeatures().featureMetadata().get().supportedFeatures().keySet()));
        call("describeMetadataQuorum", () ->
            admin.describeMetadataQuorum().quorumInfo().get().leaderId());
        call("addRaftVoter", () -> admin.addRaftVoter(
            99, Uuid.randomUuid(), Set.of(new RaftVoterEndpoint("CONTROLLER", "localhost", 1)))
            .all().get());
        call("removeRaftVoter", () -> admin.removeRaftVoter(99, Uuid.randomUuid()).all().get());
        call("describeConfigs of a broker", () -> {
            Collection<ConfigEntry> entries = admin.describeConfigs(List.of(broker()))
                .all().get().get(broker()).entries();
            return entries.stream().filter(each -> Set.of(
                    "inter.broker.protocol.version", "delete.topic.enable").contains(each.name()))
                .collect(Collectors.toMap(ConfigEntry::name, ConfigEntry::value));
        });
        call("describeConfigs of a broker's loggers", () -> {
            var loggers = new ConfigResource(ConfigResource.Type.BROKER_LOGGER, broker().name());
            return !admin.describeConfigs(List.of(loggers)).all().get().get(loggers)
                .entries().isEmpty();
        });
        call("describeLogDirs", () -> directories().values().stream().allMatch(
            each -> each.error() == null && each.totalBytes().isPresent()
                && each.usableBytes().isPresent()));
        call("describeReplicaLogDirs", () -> {
            var replica = new TopicPartitionReplica(topic, 0, node());
            return admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica)
                .getCurrentReplicaLogDir() != null;
        });
        call("listConfigResources", () -> admin.listConfigResources().all().get()
            .contains(new ConfigResource(ConfigResource.Type.TOPIC, topic)));
        call("listPartitionReassignments", () ->
            admin.listPartitionReassignments().reassignments().get().size());
    }

    int node() throws Exception {
        return admin.describeCluster().nodes().get().iterator().next().id();
    }

    ConfigResource broker() throws Exception {
        return new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(node()));
    }

    Map<String, LogDirDescription> directories() throws Exception {
        return admin.describeLogDirs(List.of(node())).allDescriptions().get().get(node());
    }

    void topics() {
        call("listTopics", () -> admin.listTopics(new ListTopicsOptions().listInternal(true))
            .listings().get().stream().filter(each -> each.isInternal())
            .map(each -> each.name()).sorted().toList());
        call("describeTopics", () -> description().partitions().size());
        call("describeTopics with operations", () -> admin.describeTopics(
            List.of(topic), new DescribeTopicsOptions().includeAuthorizedOperations(true))
            .allTopicNames().get().get(topic).authorizedOperations().size());
        call("describeTopics by id", () -> {
            Uuid id = description().topicId();
            return admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)))
                .allTopicIds().get().get(id).name();
        });
        call("describeConfigs of a topic", () -> {
            var of = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            Collection<ConfigEntry> entries = admin.describeConfigs(List.of(of),
                new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true))
                .all().get().get(of).entries();
            return Map.of(
                "undocumented", entries.stream().filter(each -> each.documentation() == null)
                    .map(ConfigEntry::name).sorted().toList(),
                "sources of retention.ms", entries.stream()
                    .filter(each -> each.name().equals("retention.ms"))
                    .flatMap(each -> each.synonyms().stream()).map(each -> each.source().name())
                    .toList());
        });
    }

    TopicDescription description() throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    @SuppressWarnings("deprecation")
    void groups(String group, String shares) {
        call("listConsumerGroups", () -> admin.listConsumerGroups().all().get().stream()
            .anyMatch(each -> each.groupId().equals(group)));
        call("listGroups", () -> admin.listGroups().all().get().stream()
            .filter(each -> Set.of(group, shares).contains(each.groupId()))
            .map(each -> each.type().map(GroupType::toString).orElse("none")).sorted().toList());
        for (GroupType type : List.of(
                GroupType.CLASSIC, GroupType.CONSUMER, GroupType.SHARE, GroupType.STREAMS)) {
            call("listGroups of type " + type, () -> admin.listGroups(
                new ListGroupsOptions().withTypes(Set.of(type))).all().get().stream()
                .filter(each -> Set.of(group, shares).contains(each.groupId())).count());
        }
        call("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of(group),
            new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true))
            .all().get().get(group).members().size());
        call("describeClassicGroups", () -> admin.describeClassicGroups(List.of(group))
            .all().get().get(group).members().size());
        call("describeShareGroups", () -> admin.describeShareGroups(List.of(shares))
            .all().get().get(shares).members().size());
        call("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets(
            Map.of(group, new ListConsumerGroupOffsetsSpec())).all().get().get(group)
            .get(first).offset());
        call("listShareGroupOffsets", () -> admin.listShareGroupOffsets(
            Map.of(shares, new ListShareGroupOffsetsSpec())).all().get().get(shares).size());
    }

    void offsets() {
        Map<String, OffsetSpec> specs = new LinkedHashMap<>();
        specs.put("earliest", OffsetSpec.earliest());
        specs.put("latest", OffsetSpec.latest());
        specs.put("a timestamp", OffsetSpec.forTimestamp(0));
        specs.put("the largest timestamp", OffsetSpec.maxTimestamp());
        specs.put("earliest local", OffsetSpec.earliestLocal());
        specs.put("latest tiered", OffsetSpec.latestTiered());
        specs.put("earliest pending upload", OffsetSpec.earliestPendingUpload());
        specs.forEach((name, spec) -> call("listOffsets of " + name, () ->
            admin.listOffsets(Map.of(first, spec)).partitionResult(first).get().offset()));
        call("listOffsets of committed records", () -> admin.listOffsets(
            Map.of(first, OffsetSpec.latest()),
            new ListOffsetsOptions(IsolationLevel.READ_COMMITTED))
            .partitionResult(first).get().offset());
    }

    void transactions(String id) {
        call("listTransactions", () -> admin.listTransactions().all().get().stream()
            .filter(each -> each.transactionalId().equals(id))
            .map(each -> each.state().toString()).toList());
        call("describeTransactions", () -> admin.describeTransactions(List.of(id))
            .all().get().get(id).topicPartitions().stream().map(TopicPartition::toString).toList());
        call("describeProducers", () -> admin.describeProducers(List.of(first, second))
            .all().get().get(first).activeProducers().size());
    }

    void security() {
        call("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get().size());
        call("describeClientQuotas", () ->
            admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size());
        call("describeUserScramCredentials", () ->
            admin.describeUserScramCredentials().all().get().size());
    }

    // -- what the pages change

    void changes() {
        var of = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var set = new AlterConfigOp(
            new ConfigEntry("retention.ms", "600000"), AlterConfigOp.OpType.SET);
        var unset = new AlterConfigOp(
            new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE);
        call("incrementalAlterConfigs, validated", () -> admin.incrementalAlterConfigs(
            Map.of(of, List.of(set)), new AlterConfigsOptions().validateOnly(true)).all().get());
        call("incrementalAlterConfigs", () ->
            admin.incrementalAlterConfigs(Map.of(of, List.of(set))).all().get());
        call("incrementalAlterConfigs, undone", () ->
            admin.incrementalAlterConfigs(Map.of(of, List.of(unset))).all().get());
        call("incrementalAlterConfigs of a broker", () -> {
            var one = new AlterConfigOp(
                new ConfigEntry("log.cleaner.threads", ""), AlterConfigOp.OpType.DELETE);
            return admin.incrementalAlterConfigs(Map.of(broker(), List.of(one))).all().get();
        });
        call("createPartitions", () -> admin.createPartitions(
            Map.of(topic, NewPartitions.increaseTo(3))).all().get());
        call("deleteRecords", () -> admin.deleteRecords(
            Map.of(first, RecordsToDelete.beforeOffset(1))).lowWatermarks().get(first).get()
            .lowWatermark());
        call("alterPartitionReassignments", () -> admin.alterPartitionReassignments(Map.of(
            first, Optional.of(new NewPartitionReassignment(List.of(node()))))).all().get());
        call("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(first))
            .partitions().get().get(first).map(each -> each.getClass().getSimpleName())
            .orElse("elected"));
        call("alterReplicaLogDirs", () -> admin.alterReplicaLogDirs(Map.of(
            new TopicPartitionReplica(topic, 0, node()), directories().keySet().iterator().next()))
            .all().get());
        var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "of-" + topic));
        for (Double value : new Double[] {1048576.0, null}) {
            call(value == null ? "alterClientQuotas, undone" : "alterClientQuotas", () ->
                admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(
                    new ClientQuotaAlteration.Op("producer_byte_rate", value))))).all().get());
        }
        call("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("of-" + topic, new ScramCredentialInfo(
                ScramMechanism.SCRAM_SHA_256, 4096), "password"))).all().get());
        call("alterUserScramCredentials, undone", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialDeletion("of-" + topic, ScramMechanism.SCRAM_SHA_256)))
            .all().get());
    }

    void changesOfGroups(String group, String shares) {
        call("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets(
            group, Map.of(first, new OffsetAndMetadata(1))).all().get());
        call("deleteConsumerGroupOffsets", () ->
            admin.deleteConsumerGroupOffsets(group, Set.of(first)).all().get());
        call("deleteConsumerGroups", () ->
            admin.deleteConsumerGroups(List.of(group)).all().get());
        call("alterShareGroupOffsets", () ->
            admin.alterShareGroupOffsets(shares, Map.of(first, 1L)).all().get());
        call("deleteShareGroupOffsets", () ->
            admin.deleteShareGroupOffsets(shares, Set.of(topic)).all().get());
        call("deleteShareGroups", () -> admin.deleteShareGroups(List.of(shares)).all().get());
    }

    void deletions() {
        var made = new NewTopic("copy-of-" + topic, Optional.of(2), Optional.empty())
            .configs(Map.of("cleanup.policy", "compact"));
        call("createTopics, validated", () -> admin.createTopics(
            List.of(made), new CreateTopicsOptions().validateOnly(true)).all().get());
        call("createTopics", () -> admin.createTopics(List.of(made)).all().get());
        call("deleteTopics", () -> admin.deleteTopics(List.of(made.name())).all().get());
    }
}
