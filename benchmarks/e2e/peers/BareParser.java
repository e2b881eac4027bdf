import com.github.shyiko.mysql.binlog.BinaryLogClient;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.network.SSLMode;

/** Child: mysql-binlog-connector-java reads rows from a server: java BareParser.java PORT ROWS WARM_ROWS */
public class BareParser {
    private static long rows;

    public static void main(String[] arguments) throws Exception {
        long wanted = Long.parseLong(arguments[1]);
        long warm = Long.parseLong(arguments[2]);
        BinaryLogClient client =
            new BinaryLogClient("127.0.0.1", Integer.parseInt(arguments[0]), "root", "");
        client.setSSLMode(SSLMode.DISABLED);
        client.setServerId(4000004);
        client.setBinlogFilename("mysql-bin.000001");
        client.setBinlogPosition(4);
        client.setKeepAlive(false);
        client.registerEventListener(event -> {
            long before = rows;
            if (before >= wanted) {
                return;
            }
            rows += rowsOf(event.getData());
            if (before < warm && rows >= warm) {
                say("mark");
            }
            if (rows >= wanted) {
                say("end");
            }
        });
        Thread reader = new Thread(() -> {
            try {
                client.connect();
            } catch (Exception error) {
                error.printStackTrace();
                System.exit(1);
            }
        });
        reader.setDaemon(true);
        say("ready");
        reader.start();
        while (System.in.read() >= 0) {
            continue;
        }
        System.exit(0);
    }

    private static long rowsOf(EventData data) {
        if (data instanceof WriteRowsEventData) {
            return ((WriteRowsEventData) data).getRows().size();
        }
        if (data instanceof UpdateRowsEventData) {
            return ((UpdateRowsEventData) data).getRows().size();
        }
        return data instanceof DeleteRowsEventData ? ((DeleteRowsEventData) data).getRows().size() : 0;
    }

    private static void say(String at) {
        System.out.println(
            "{\"at\": \"" + at + "\", \"ns\": " + System.nanoTime() + ", \"rows\": " + rows + "}");
        System.out.flush();
    }
}
