package raycanal;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SessionConfigSupport;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * format("ray_canal"): a table's changes, read in place from Arrow IPC streams.
 *
 * Compiled by janino 3.1, which knows Java 6: raw types where a generic method is implemented, no
 * lambdas, casts after calls whose result is narrower in newer class libraries.
 */
public class Source implements TableProvider, DataSourceRegister, SessionConfigSupport {
  public Source() {}

  public String shortName() { return "ray_canal"; }

  /** Session settings spark.datasource.ray_canal.* are options of every read. */
  public String keyPrefix() { return "ray_canal"; }

  public StructType inferSchema(CaseInsensitiveStringMap options) {
    String json = options.get("schema");
    return (StructType) DataType.fromJson(json == null ? RequestClient.schema(options) : json);
  }

  /** .schema(...): that of an earlier load(), for a table that does not change now. */
  public boolean supportsExternalMetadata() { return true; }

  public Table getTable(StructType schema, Transform[] partitioning, Map options) {
    return new ChangesTable(schema);
  }
}

class ChangesTable implements Table, SupportsRead {
  private final StructType schema;

  ChangesTable(StructType schema) { this.schema = schema; }

  public String name() { return "ray_canal"; }

  public StructType schema() { return schema; }

  public Set capabilities() {
    Set found = new HashSet();
    found.add(TableCapability.BATCH_READ);
    found.add(TableCapability.MICRO_BATCH_READ);
    return found;
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new ChangesScan(schema, options);
  }
}

/** One read; Spark takes from its schema the columns, at any depth, that the query does not need. */
class ChangesScan implements ScanBuilder, SupportsPushDownRequiredColumns, Scan, Batch {
  private final StructType table;
  private final CaseInsensitiveStringMap options;
  private StructType schema;
  private InputPartition[] partitions;
  private String read;

  ChangesScan(StructType table, CaseInsensitiveStringMap options) {
    this.table = table;
    this.schema = table;
    this.options = options;
  }

  public void pruneColumns(StructType required) { this.schema = required; }

  public Scan build() { return this; }

  public StructType readSchema() { return schema; }

  public String description() { return "ray_canal"; }

  public Batch toBatch() { return this; }

  /** Of a batch that was written already (`places`), or of a read that begins. */
  public InputPartition[] planInputPartitions() {
    if (partitions == null && options.get("places") != null) {
      partitions = Place.all(options.get("places"), null, null);
    } else if (partitions == null) {
      RequestClient client = new RequestClient(options);
      String answer = begun(client);
      int end = answer.indexOf(';');
      read = end < 0 ? answer : answer.substring(0, end);
      OpenReads.add(read, client);
      partitions = Place.all(end < 0 ? "" : answer.substring(end + 1), client.remote, this);
    }
    return partitions;
  }

  /** Over an address there is room for so much: what nobody reads any more gives way. */
  private String begun(RequestClient client) {
    String given = RequestClient.text(options);
    try {
      return client.ask("READ", given, schema.json());
    } catch (IllegalStateException e) {
      if (client.remote == null || !OpenReads.collect()) { throw e; }
      return client.ask("READ", given, schema.json());
    }
  }

  /** Spark has no call for the end of a scan: what the read holds goes with its last user. */
  protected void finalize() {
    if (read != null) { OpenReads.release(read); }
  }

  public PartitionReaderFactory createReaderFactory() { return new Readers(schema); }

  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return new ChangesStream(table, schema, options);
  }
}

/** Reads that were not released: an application that ends collects no garbage. */
class OpenReads extends Thread {
  private static final long COLLECT_MS = 1000L;
  private static final Map CLIENTS = new HashMap();
  private static boolean isHooked = false;

  static void add(String read, RequestClient client) {
    synchronized (CLIENTS) {
      CLIENTS.put(read, client);
      if (isHooked || client.remote == null) { return; }
      isHooked = true;
      try {
        Runtime.getRuntime().addShutdownHook(new OpenReads());
      } catch (IllegalStateException e) {
        return; // it ends already
      }
    }
  }

  static void release(String read) {
    RequestClient client;
    synchronized (CLIENTS) { client = (RequestClient) CLIENTS.remove(read); }
    try {
      if (client != null) { client.release(read); }
    } catch (RuntimeException e) {
      return; // the session has ended, and everything with it
    }
  }

  /** Have those released that nobody uses; true: there were such. A JVM with room collects no
   * garbage for hours. */
  static boolean collect() {
    int before;
    synchronized (CLIENTS) { before = CLIENTS.size(); }
    if (before == 0) { return false; }
    System.gc();
    try {
      Thread.sleep(COLLECT_MS); // the finalizer's thread tells the server
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    synchronized (CLIENTS) { return CLIENTS.size() < before; }
  }

  /** At the end of this JVM. Those of a driver's Python end with that. */
  public void run() {
    Map left;
    synchronized (CLIENTS) { left = new HashMap(CLIENTS); }
    Iterator reads = left.keySet().iterator();
    while (reads.hasNext()) {
      String read = (String) reads.next();
      if (((RequestClient) left.get(read)).remote != null) { release(read); }
    }
  }
}

/** Where one partition's Arrow IPC streams are (spark/chunks.py writes them); `remote`: who has
 * them, if they are neither in this node's memory nor in Ray; `scan`: what frees them, if it is the
 * scan. An RDD has its partitions, but not the scan that planned them. */
class Place implements InputPartition {
  final String text;
  final FlightAddress remote;
  private final transient Object scan;

  Place(String text, FlightAddress remote, Object scan) {
    this.text = text;
    this.remote = remote;
    this.scan = scan;
  }

  /** Of a list with semicolons between; empty: none. */
  static InputPartition[] all(String texts, FlightAddress remote, Object scan) {
    if (texts.length() == 0) { return new InputPartition[0]; }
    String[] each = texts.split(";");
    InputPartition[] found = new InputPartition[each.length];
    for (int i = 0; i < each.length; i++) { found[i] = new Place(each[i], remote, scan); }
    return found;
  }
}

class Readers implements PartitionReaderFactory {
  private final StructType schema;

  Readers(StructType schema) { this.schema = schema; }

  public boolean supportColumnarReads(InputPartition partition) { return true; }

  public PartitionReader createReader(InputPartition partition) {
    throw new UnsupportedOperationException("columns only");
  }

  public PartitionReader createColumnarReader(InputPartition partition) {
    return new StreamsReader(Bytes.of((Place) partition), schema);
  }
}
