import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import io.debezium.engine.format.Json;
import java.io.File;
import java.io.FileOutputStream;
import java.io.ObjectOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/** Child: Debezium's embedded engine reads rows: java Embedded.java PORT ROWS WARM_ROWS FOLDER [TABLE]:
 * of the log, or with TABLE an initial snapshot of it. Or it prints the log's messages, each as topic,
 * key and value between tabs: java Embedded.java PORT print FOLDER [KEY=VALUE ...]: more settings. */
public class Embedded {
    private static long rows;

    public static void main(String[] arguments) throws Exception {
        if (arguments[1].equals("print")) {
            print(arguments);
            return;
        }
        long wanted = Long.parseLong(arguments[1]);
        long warm = Long.parseLong(arguments[2]);
        Properties settings = settings(arguments[0]);
        begin(settings, new File(arguments[3]));
        if (arguments.length > 4) {
            new File(arguments[3], "offsets").delete();
            settings.setProperty("snapshot.mode", "initial");
            settings.setProperty("table.include.list", arguments[4]);
        }
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
            DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                .using(settings)
                .using((success, message, error) -> {
                    System.err.println(message + " " + error);
                    System.exit(1);
                })
                .notifying((records, committer) -> {
                    long before = rows;
                    for (RecordChangeEvent<SourceRecord> each : records) {
                        Object value = each.record().value();
                        if (value instanceof Struct && ((Struct) value).schema().field("op") != null) {
                            rows++;
                        }
                        committer.markProcessed(each);
                    }
                    committer.markBatchFinished();
                    if (before < warm && rows >= warm) {
                        say("mark");
                    }
                    if (before < wanted && rows >= wanted) {
                        say("end");
                    }
                })
                .build();
        say("ready");
        run(engine);
    }

    private static void print(String[] arguments) throws Exception {
        Properties settings = settings(arguments[0]);
        for (int i = 3; i < arguments.length; i++) {
            String[] each = arguments[i].split("=", 2);
            settings.setProperty(each[0], each[1]);
        }
        begin(settings, new File(arguments[2]));
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        run(
            DebeziumEngine.create(Json.class)
                .using(settings)
                .using((success, message, error) -> {
                    System.err.println(message + " " + error);
                    System.exit(1);
                })
                .notifying((records, committer) -> {
                    for (ChangeEvent<String, String> each : records) {
                        out.println(each.destination() + "\t" + each.key() + "\t" + each.value());
                        committer.markProcessed(each);
                    }
                    committer.markBatchFinished();
                })
                .build());
    }

    /** Run the engine until the input ends. */
    private static void run(Runnable engine) throws Exception {
        Thread reader = new Thread(engine);
        reader.setDaemon(true);
        reader.start();
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }

    /** Reading begins at the log's beginning: an offset in the folder says so. */
    private static void begin(Properties settings, File folder) throws Exception {
        File offsets = new File(folder, "offsets");
        Map<byte[], byte[]> kept = new HashMap<>();
        String prefix = settings.getProperty("topic.prefix");
        kept.put(bytes("[\"bench\",{\"server\":\"" + prefix + "\"}]"),
            bytes("{\"file\":\"mysql-bin.000001\",\"pos\":4}"));
        try (ObjectOutputStream out = new ObjectOutputStream(new FileOutputStream(offsets))) {
            out.writeObject(kept);
        }
        settings.setProperty("offset.storage.file.filename", offsets.getPath());
    }

    /** The tables' schemas are read from the server as they are. */
    private static Properties settings(String port) {
        Properties settings = new Properties();
        for (String[] each : List.of(
            new String[] {"name", "bench"},
            new String[] {"connector.class", "io.debezium.connector.mysql.MySqlConnector"},
            new String[] {"offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore"},
            new String[] {"offset.flush.interval.ms", "60000"},
            new String[] {"schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory"},
            new String[] {"snapshot.mode", "recovery"},
            new String[] {"database.hostname", "127.0.0.1"},
            new String[] {"database.port", port},
            new String[] {"database.user", "root"},
            new String[] {"database.password", ""},
            new String[] {"database.ssl.mode", "disabled"},
            new String[] {"driver.allowPublicKeyRetrieval", "true"},
            new String[] {"database.server.id", "4000005"},
            new String[] {"database.include.list", "bench"},
            new String[] {"topic.prefix", "bench"},
            new String[] {"tombstones.on.delete", "false"})) {
            settings.setProperty(each[0], each[1]);
        }
        return settings;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void say(String at) {
        System.out.println(
            "{\"at\": \"" + at + "\", \"ns\": " + System.nanoTime() + ", \"rows\": " + rows + "}");
        System.out.flush();
    }
}
