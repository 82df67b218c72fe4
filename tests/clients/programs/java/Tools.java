// Apache Kafka's command-line tools, unchanged, one after the other in one JVM.
//
//     java -cp "CLASSES:libs/*" Tools
//
// Each command is one JSON line {"tool": class, "arguments": [...], "stdin": text}, its answer one
// line {"status", "stdout", "stderr"}. A tool's call to end the JVM ends the tool: Exit's procedures
// are replaced by ones that throw, and the hooks that it registers, with Exit or with the JVM, run when
// it is over (which needs --add-opens java.base/java.lang=ALL-UNNAMED). A JVM's start costs more than
// what most tools do.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.utils.Exit;

public class Tools {
    static final class Ended extends RuntimeException {
        Ended() {
            super("the tool ended", null, false, false);
        }
    }

    static final int RUNNING = -1;
    static final long HOOK_MS_MAX = 30_000;
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
        Set<Thread> known = jvmHooks();
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
        try {
            end(known);
        } catch (Exception error) {
            STATUS.compareAndSet(RUNNING, 1);
            error.printStackTrace();
        }
        System.out.flush();
        System.err.flush();
        STATUS.compareAndSet(RUNNING, 0);
        return STATUS.get();
    }

    /** What an end of the JVM would run for this tool: all at once, then wait for each. */
    static void end(Set<Thread> known) throws InterruptedException {
        List<Thread> hooks = new ArrayList<>();
        synchronized (HOOKS) {
            HOOKS.forEach(hook -> hooks.add(new Thread(hook)));
            HOOKS.clear();
        }
        for (Thread hook : jvmHooks()) {
            if (!known.contains(hook)) {
                Runtime.getRuntime().removeShutdownHook(hook);
                hooks.add(hook);
            }
        }
        for (Thread hook : hooks) {
            hook.setUncaughtExceptionHandler((thread, error) -> { });
            hook.start();
        }
        for (Thread hook : hooks) {
            hook.join(HOOK_MS_MAX);
        }
    }

    static Set<Thread> jvmHooks() {
        try {
            Field hooks = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
            hooks.setAccessible(true);
            return new HashSet<>(((Map<Thread, Thread>) hooks.get(null)).keySet());
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }
}
