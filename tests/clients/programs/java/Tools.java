// Apache Kafka's command-line tools, unchanged, one after the other in one JVM.
//
//     java -cp "CLASSES:libs/*" Tools
//
// Each command is one JSON line {"tool": class, "arguments": [...], "stdin": text}, its answer one
// line {"status", "stdout", "stderr"}. A tool's call to end the JVM ends the tool: Exit's procedures
// are replaced by ones that throw, and the hooks that it registers run when it is over. A JVM's start
// costs more than what most tools do.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.utils.Exit;

public class Tools {
    static final class Ended extends RuntimeException {
        Ended() {
            super("the tool ended", null, false, false);
        }
    }

    static final int RUNNING = -1;
    static final AtomicInteger STATUS = new AtomicInteger();
    static final List<Runnable> HOOKS = new ArrayList<>();

    public static void main(String[] nothing) throws Exception {
        PrintStream answers = System.out;
        ObjectMapper json = new ObjectMapper();
        Exit.Procedure end = (status, message) -> {
            if (message != null) {
                System.err.println(message);
            }
            STATUS.compareAndSet(RUNNING, status);
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> {
            synchronized (HOOKS) {
                HOOKS.add(hook);
            }
        });
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode wanted = json.readTree(line);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            int status = run(wanted, out, err);
            answers.println(json.writeValueAsString(Map.of(
                "status", status, "stdout", out.toString(StandardCharsets.UTF_8),
                "stderr", err.toString(StandardCharsets.UTF_8))));
        }
        Runtime.getRuntime().halt(0);
    }

    static int run(JsonNode wanted, ByteArrayOutputStream out, ByteArrayOutputStream err) {
        List<String> arguments = new ArrayList<>();
        wanted.get("arguments").forEach(each -> arguments.add(each.asText()));
        STATUS.set(RUNNING);
        System.setIn(new ByteArrayInputStream(
            wanted.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        try {
            Class.forName(wanted.get("tool").asText()).getMethod("main", String[].class)
                .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                STATUS.compareAndSet(RUNNING, 1);
                error.getCause().printStackTrace();
            }
        } catch (ReflectiveOperationException error) {
            STATUS.compareAndSet(RUNNING, 1);
            error.printStackTrace();
        }
        List<Runnable> hooks;
        synchronized (HOOKS) {
            hooks = new ArrayList<>(HOOKS);
            HOOKS.clear();
        }
        for (Runnable hook : hooks) {
            try {
                hook.run();
            } catch (Ended error) {
                // a hook that wants to end what has ended
            }
        }
        System.out.flush();
        System.err.flush();
        STATUS.compareAndSet(RUNNING, 0);
        return STATUS.get();
    }
}
