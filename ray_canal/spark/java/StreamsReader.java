package raycanal;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.flatbuf.DictionaryBatch;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Arrow IPC streams, one after the other, as ColumnarBatches over the bytes where they are.
 *
 * Each stream has a schema of its own: columns are found by their names, what a stream lacks is
 * NULL, integers may be narrower than Spark's. Bodies are not compressed.
 */
class StreamsReader implements PartitionReader {
  private static final int END_OF_STREAM = 0;
  private static final int CONTINUATION = -1;

  private final StructType wanted;
  private final Bytes bytes;
  private final Map dictionaries = new HashMap();
  private int at = 0;
  private Schema schema;
  private ColumnarBatch batch;

  // The record batch that is walked: its fields have nodes and buffers in depth-first order.
  private RecordBatch record;
  private long body;
  private int node;
  private int buffer;

  StreamsReader(Bytes bytes, StructType wanted) {
    this.bytes = bytes;
    this.wanted = wanted;
  }

  public boolean next() {
    while (at + 4 <= bytes.buffer.limit()) {
      int length = bytes.buffer.getInt(at);
      int head = at + 4;
      if (length == CONTINUATION) {
        length = bytes.buffer.getInt(at + 4);
        head = at + 8;
      }
      if (length == END_OF_STREAM) {
        at = head;
        continue;
      }
      Message message = message(head, length);
      body = bytes.address + (long) (head + length);
      at = (int) ((long) (head + length) + message.bodyLength());
      if (read(message)) { return true; }
    }
    return false;
  }

  private Message message(int head, int length) {
    ByteBuffer part = (ByteBuffer) bytes.buffer.duplicate();
    part.position(head);
    part.limit(head + length);
    return Message.getRootAsMessage(((ByteBuffer) part.slice()).order(ByteOrder.LITTLE_ENDIAN));
  }

  /** True: it was a record batch. */
  private boolean read(Message message) {
    byte type = message.headerType();
    if (type == MessageHeader.Schema) {
      org.apache.arrow.flatbuf.Schema given = new org.apache.arrow.flatbuf.Schema();
      schema = Schema.convertSchema((org.apache.arrow.flatbuf.Schema) message.header(given));
      dictionaries.clear();
    } else if (type == MessageHeader.DictionaryBatch) {
      DictionaryBatch given = (DictionaryBatch) message.header(new DictionaryBatch());
      begin(given.data());
      Vector words = new Vector(DataTypes.StringType);
      fill(words, Vector.TEXT);
      UTF8String[] values = new UTF8String[(int) record.length()];
      for (int i = 0; i < values.length; i++) {
        values[i] = words.isNullAt(i) ? null : words.getUTF8String(i);
      }
      dictionaries.put(Long.valueOf(given.id()), values);
    } else if (type == MessageHeader.RecordBatch) {
      begin((RecordBatch) message.header(new RecordBatch()));
      batch = new ColumnarBatch(columns(schema.getFields(), wanted), (int) record.length());
      return true;
    }
    return false;
  }

  private void begin(RecordBatch given) {
    if (given.compression() != null) {
      throw new UnsupportedOperationException("compressed Arrow bodies");
    }
    record = given;
    node = 0;
    buffer = 0;
  }

  /** In the order of `type`. Every field is walked, for its buffers are counted. */
  private ColumnVector[] columns(List fields, StructType type) {
    StructField[] names = type.fields();
    ColumnVector[] found = new ColumnVector[names.length];
    for (int i = 0; i < fields.size(); i++) {
      Field field = (Field) fields.get(i);
      int where = -1;
      for (int j = 0; j < names.length; j++) {
        if (names[j].name().equals(field.getName())) { where = j; }
      }
      ColumnVector made = column(field, where < 0 ? null : names[where].dataType());
      if (where >= 0) { found[where] = made; }
    }
    for (int j = 0; j < names.length; j++) {
      if (found[j] == null) { found[j] = Vector.absent(names[j].dataType()); }
    }
    return found;
  }

  private ColumnVector column(Field field, DataType type) {
    Vector found = new Vector(type);
    ArrowType arrow = field.getType();
    if (field.getDictionary() != null) {
      ArrowType.Int index = field.getDictionary().getIndexType();
      fill(found, Vector.NUMBERS);
      found.integers(index.getBitWidth() / 8, index.getIsSigned());
      found.words = (UTF8String[]) dictionaries.get(Long.valueOf(field.getDictionary().getId()));
    } else if (arrow instanceof ArrowType.Struct) {
      fill(found, Vector.STRUCT);
      found.children =
          columns(field.getChildren(), type == null ? new StructType() : (StructType) type);
    } else if (arrow instanceof ArrowType.List) {
      fill(found, Vector.LIST);
      DataType element = type == null ? null : ((ArrayType) type).elementType();
      found.children =
          new ColumnVector[] {column((Field) field.getChildren().get(0), element)};
    } else if (arrow instanceof ArrowType.Utf8 || arrow instanceof ArrowType.Binary) {
      fill(found, Vector.TEXT);
    } else {
      fill(found, Vector.NUMBERS);
      if (arrow instanceof ArrowType.Int) {
        ArrowType.Int kind = (ArrowType.Int) arrow;
        found.integers(kind.getBitWidth() / 8, kind.getIsSigned());
      } else if (type != null && !readable(arrow)) {
        throw new UnsupportedOperationException(
            "Arrow's " + arrow + " (column " + field.getName() + ")");
      }
    }
    return found;
  }

  /** Types with values of a fixed width that Spark has in the same form. */
  private static boolean readable(ArrowType arrow) {
    return arrow instanceof ArrowType.Bool
        || arrow instanceof ArrowType.FloatingPoint
        || arrow instanceof ArrowType.Decimal
        || arrow instanceof ArrowType.Date
        || arrow instanceof ArrowType.Timestamp
        || arrow instanceof ArrowType.Duration;
  }

  private void fill(Vector vector, int layout) {
    vector.base = bytes.base;
    vector.nulls = (int) record.nodes(node).nullCount();
    vector.valid = vector.nulls == 0 ? 0L : at(buffer);
    node++;
    buffer++;
    if (layout == Vector.TEXT || layout == Vector.LIST) {
      vector.offsets = at(buffer);
      buffer++;
    }
    if (layout == Vector.TEXT || layout == Vector.NUMBERS) {
      vector.data = at(buffer);
      buffer++;
    }
  }

  private long at(int index) { return body + record.buffers(index).offset(); }

  public Object get() { return batch; }

  public void close() { bytes.close(); }
}
