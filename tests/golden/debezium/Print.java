import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
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

/** Debezium's embedded engine prints the messages of a server's log until its input ends, each as
 * topic, key and value between tabs, with schemas: java Print.java PORT FOLDER. */
public class Print {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        DebeziumEngine<ChangeEvent<String, String>> engine =
            DebeziumEngine.create(Json.class)
                .using(settings(arguments[0], new File(arguments[1], "offsets")))
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
                .build();
        Thread reader = new Thread(engine);
        reader.setDaemon(true);
        reader.start();
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }

    /** The tables' schemas are read from the server as they are; reading begins at the log's beginning. */
    private static Properties settings(String port, File offsets) throws Exception {
        Map<byte[], byte[]> kept = new HashMap<>();
        kept.put(bytes("[\"e\",{\"server\":\"p\"}]"), bytes("{\"file\":\"mysql-bin.000001\",\"pos\":4}"));
        try (ObjectOutputStream out = new ObjectOutputStream(new FileOutputStream(offsets))) {
            out.writeObject(kept);
        }
        Properties settings = new Properties();
        for (String[] each : List.of(
            new String[] {"name", "e"},
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
            new String[] {"database.include.list", "d,my db"},
            new String[] {"topic.prefix", "p"},
            new String[] {"converter.schemas.enable", "true"},
            new String[] {"include.schema.changes", "false"})) {
            settings.setProperty(each[0], each[1]);
        }
        return settings;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
