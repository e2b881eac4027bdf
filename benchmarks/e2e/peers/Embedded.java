import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.io.File;
import java.io.FileOutputStream;
import java.io.ObjectOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/** Child: Debezium's embedded engine reads rows: java Embedded.java PORT ROWS WARM_ROWS FOLDER [TABLE]:
 * of the log, or with TABLE an initial snapshot of it. */
public class Embedded {
    private static long rows;

    public static void main(String[] arguments) throws Exception {
        long wanted = Long.parseLong(arguments[1]);
        long warm = Long.parseLong(arguments[2]);
        Properties settings = settings(arguments[0], new File(arguments[3]));
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
        Thread reader = new Thread(engine);
        reader.setDaemon(true);
        say("ready");
        reader.start();
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }

    /** The tables' schemas are read from the server as they are; reading begins where the offsets say. */
    private static Properties settings(String port, File folder) throws Exception {
        File offsets = new File(folder, "offsets");
        Map<byte[], byte[]> kept = new HashMap<>();
        kept.put(bytes("[\"bench\",{\"server\":\"bench\"}]"),
            bytes("{\"file\":\"mysql-bin.000001\",\"pos\":4}"));
        try (ObjectOutputStream out = new ObjectOutputStream(new FileOutputStream(offsets))) {
            out.writeObject(kept);
        }
        Properties settings = new Properties();
        for (String[] each : List.of(
            new String[] {"name", "bench"},
            new String[] {"connector.class", "io.debezium.connector.mysql.MySqlConnector"},
            new String[] {"offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore"},
            new String[] {"offset.storage.file.filename", offsets.getPath()},
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
