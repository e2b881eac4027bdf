package raycanal;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A subscriber's changes of one table as micro-batches, asked of spark/request_server.py. */
class ChangesStream
    implements MicroBatchStream, SupportsAdmissionControl, SupportsTriggerAvailableNow {
  private static final String UNKNOWN = "?";

  private final StructType table;
  private final StructType schema;
  private final CaseInsensitiveStringMap options;
  private final RequestClient client;
  private String stream;
  private boolean onlyAvailable = false;

  ChangesStream(StructType table, StructType schema, CaseInsensitiveStringMap options) {
    this.table = table;
    this.schema = schema;
    this.options = options;
    this.client = new RequestClient(options);
    open();
  }

  private void open() { stream = client.ask("OPEN", RequestClient.text(options), table.json()); }

  /** A Flight server that has started since knows no stream: it is opened again. */
  private String ask(String what, String argument) {
    String answer = client.ask(what, stream, argument);
    if (answer.equals(UNKNOWN)) {
      open();
      if (onlyAvailable) { client.ask("AVAILABLE", stream, ""); }
      answer = client.ask(what, stream, argument);
    }
    return answer;
  }

  public Offset initialOffset() { return new LogOffset(ask("INITIAL", "")); }

  public Offset deserializeOffset(String json) { return new LogOffset(json); }

  public ReadLimit getDefaultReadLimit() { return ReadLimit.allAvailable(); }

  public Offset latestOffset() {
    throw new UnsupportedOperationException("latestOffset(start, limit)");
  }

  /** Spark asks when the batch that ends at `start` is in its commit log: so this acks `start`. */
  public Offset latestOffset(Offset start, ReadLimit limit) {
    return new LogOffset(ask("LATEST", start.json()));
  }

  public void prepareForTriggerAvailableNow() {
    onlyAvailable = true;
    ask("AVAILABLE", "");
  }

  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    String places = ask("PLAN", "[" + start.json() + "," + end.json() + "]");
    return Place.all(places, client.remote, null);
  }

  public PartitionReaderFactory createReaderFactory() { return new Readers(schema); }

  public void commit(Offset end) { ask("COMMIT", end.json()); }

  public void stop() { client.ask("CLOSE", stream, ""); }
}

class LogOffset extends Offset {
  private final String json;

  LogOffset(String json) { this.json = json; }

  public String json() { return json; }
}

/**
 * Who has the subscription: a Flight server, if the option `address` names one; else the driver's
 * Python, with a connection for each request, three lines and one as an answer.
 */
class RequestClient {
  private static final Set OWN = new HashSet(Arrays.asList(new String[] {
      "token", "requests", "address", "username", "password", "ca", "cert", "key"}));
  private static final int LOOK_MS = 200;

  final FlightAddress remote;
  private final String address;
  private final String token;

  RequestClient(CaseInsensitiveStringMap options) {
    this.remote = options.get("address") == null ? null : new FlightAddress(options);
    this.address = options.get("requests");
    this.token = options.get("token");
    if (remote == null && (address == null || token == null)) {
      throw new IllegalArgumentException(
          "this session does not reach ray_canal: give .option(\"address\", \"grpc://HOST:PORT\") of "
              + "a Flight server, make the session by ray_canal.spark.session(), or call "
              + "ray_canal.spark.serve_requests(spark) once");
    }
  }

  static String schema(CaseInsensitiveStringMap options) {
    return new RequestClient(options).ask("SCHEMA", text(options), "");
  }

  /** Options as JSON, without those that say who is asked; over an address with how many cores
   * there are. */
  static String text(CaseInsensitiveStringMap options) {
    StringBuilder found = new StringBuilder("{");
    if (options.get("address") != null && options.get("partitions") == null) {
      int cores = SparkContext.getOrCreate().defaultParallelism();
      found.append("\"partitions\":\"").append(cores).append('"');
    }
    Iterator names = options.keySet().iterator();
    while (names.hasNext()) {
      String name = (String) names.next();
      if (OWN.contains(name.toLowerCase())) { continue; }
      if (found.length() > 1) { found.append(','); }
      quote(found, name);
      found.append(':');
      quote(found, options.get(name));
    }
    return found.append('}').toString();
  }

  private static void quote(StringBuilder to, String text) {
    to.append('"');
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c == '"' || c == '\\' || c < ' ') {
        String hex = "000" + Integer.toHexString((int) c);
        to.append("\\u").append(hex.substring(hex.length() - 4));
      } else {
        to.append(c);
      }
    }
    to.append('"');
  }

  /** Raises what the answer says: an answer that begins with "!". */
  String ask(String what, String first, String second) {
    String answer = remote == null ? askHere(what, first, second) : remote.ask(what, first, second);
    if (answer.startsWith("!")) { throw new IllegalStateException(answer.substring(1)); }
    return answer;
  }

  /** Free what a batch read holds. */
  void release(String read) {
    if (remote != null) {
      remote.release(read);
    } else {
      askHere("RELEASE", read, "");
    }
  }

  private String askHere(String what, String first, String second) {
    int colon = address.lastIndexOf(':');
    String answer;
    try {
      InetAddress host = InetAddress.getByName(address.substring(0, colon));
      Socket socket = new Socket(host, Integer.parseInt(address.substring(colon + 1)));
      try {
        socket.setSoTimeout(LOOK_MS);
        OutputStream out = socket.getOutputStream();
        out.write((token + " " + what + "\n" + first + "\n" + second + "\n").getBytes("UTF-8"));
        out.flush();
        answer = read(socket.getInputStream());
      } finally {
        socket.close();
      }
    } catch (InterruptedIOException e) {
      throw new UncheckedIOException(e); // Spark knows it as its own stop
    } catch (IOException e) {
      throw new IllegalStateException(
          "the driver's process, which has the subscription, does not answer at " + address + ": "
              + e, e);
    }
    if (answer.length() == 0) {
      throw new IllegalStateException("the driver's process closed the connection: " + what);
    }
    return answer.substring(0, answer.length() - 1);
  }

  /** All that comes; query.stop() interrupts the thread that waits here. */
  private static String read(InputStream from) throws IOException {
    ByteArrayOutputStream found = new ByteArrayOutputStream();
    byte[] part = new byte[8192];
    while (true) {
      try {
        int count = from.read(part);
        if (count < 0) { return found.toString("UTF-8"); }
        found.write(part, 0, count);
      } catch (SocketTimeoutException e) {
        if (Thread.currentThread().isInterrupted()) {
          throw new InterruptedIOException("the query was stopped");
        }
      }
    }
  }
}
