// What Apache Kafka's StandardAuthorizer decides.
//
//     java -cp "CLASSES:libs/*" Decisions
//
// On stdin commands, each a byte and then its fields; strings are those of DataInputStream.readUTF.
//
// 'C' super users, boolean allow.everyone.if.no.acl.found: a new authorizer.
// 'A' int32 of a count, and so many ACLs, which replace those before: bytes of resource type and
//     pattern type, name, principal, host, bytes of operation and permission.
// 'Q' type and name of the principal, address, bytes of operation and resource type, name of the
//     resource: answered by the line of the authorizer's log.
// 'T' type and name of the principal, address, bytes of operation and resource type: answered by a
//     line, "true" if it is allowed on some resource of the type, else "false".

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class Decisions {
    record Context(KafkaPrincipal principal, InetAddress clientAddress)
            implements AuthorizableRequestContext {
        public String listenerName() {
            return "PLAINTEXT";
        }

        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        public int requestType() {
            return 1;
        }

        public int requestVersion() {
            return 1;
        }

        public String clientId() {
            return "";
        }

        public int correlationId() {
            return 1;
        }
    }

    static DataInputStream in;

    static Context context() throws Exception {
        var principal = new KafkaPrincipal(in.readUTF(), in.readUTF());
        return new Context(principal, InetAddress.getByName(in.readUTF()));
    }

    public static void main(String[] nothing) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "off");
        System.setProperty("org.slf4j.simpleLogger.log.kafka.authorizer.logger", "debug");
        System.setProperty("org.slf4j.simpleLogger.showThreadName", "false");
        System.setProperty("org.slf4j.simpleLogger.showLogName", "false");
        var errors = System.err;
        Thread.currentThread()
                .setUncaughtExceptionHandler((thread, error) -> error.printStackTrace(errors));
        var log = new ByteArrayOutputStream();
        System.setErr(new PrintStream(log, true, StandardCharsets.UTF_8));
        in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        var out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        StandardAuthorizer authorizer = null;
        while (true) {
            int command;
            try {
                command = in.readByte();
            } catch (EOFException end) {
                out.flush();
                return;
            }
            if (command == 'C') {
                authorizer = new StandardAuthorizer();
                var configs = new HashMap<String, Object>();
                configs.put("super.users", in.readUTF());
                configs.put("allow.everyone.if.no.acl.found", String.valueOf(in.readBoolean()));
                configs.put("node.id", "1");
                authorizer.configure(configs);
                authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                authorizer.completeInitialLoad();
            } else if (command == 'A') {
                Map<Uuid, StandardAcl> acls = new HashMap<>();
                for (int count = in.readInt(); count > 0; count--) {
                    var type = ResourceType.fromCode(in.readByte());
                    var kind = PatternType.fromCode(in.readByte());
                    acls.put(
                            Uuid.randomUuid(),
                            new StandardAcl(
                                    type,
                                    in.readUTF(),
                                    kind,
                                    in.readUTF(),
                                    in.readUTF(),
                                    AclOperation.fromCode(in.readByte()),
                                    AclPermissionType.fromCode(in.readByte())));
                }
                authorizer.loadSnapshot(acls);
            } else if (command == 'Q') {
                var context = context();
                var operation = AclOperation.fromCode(in.readByte());
                var type = ResourceType.fromCode(in.readByte());
                var pattern = new ResourcePattern(type, in.readUTF(), PatternType.LITERAL);
                log.reset();
                authorizer.authorize(
                        context, List.of(new Action(operation, pattern, 1, true, true)));
                out.write(log.toByteArray());
            } else if (command == 'T') {
                var context = context();
                var operation = AclOperation.fromCode(in.readByte());
                var type = ResourceType.fromCode(in.readByte());
                var result = authorizer.authorizeByResourceType(context, operation, type);
                var allowed = result == AuthorizationResult.ALLOWED;
                out.write((allowed + "\n").getBytes(StandardCharsets.UTF_8));
            }
        }
    }
}
