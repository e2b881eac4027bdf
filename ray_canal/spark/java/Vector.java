package raycanal;

import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** An Arrow array where it is: addresses of its buffers, read when Spark asks for a value. */
class Vector extends ColumnVector {
  static final int NUMBERS = 0;
  static final int TEXT = 1;
  static final int STRUCT = 2;
  static final int LIST = 3;

  Object base;
  long valid;
  long data;
  long offsets;
  int nulls;
  UTF8String[] words;
  ColumnVector[] children;
  private int width = 0;
  private boolean signed = true;
  private boolean absent = false;

  Vector(DataType type) { super(type == null ? DataTypes.NullType : type); }

  /** A column of NULLs. */
  static Vector absent(DataType type) {
    Vector found = new Vector(type);
    found.absent = true;
    return found;
  }

  /** Integers of this many bytes, which may be narrower than what Spark reads them as. */
  void integers(int bytes, boolean isSigned) {
    width = bytes;
    signed = isSigned;
  }

  public void close() {}

  public void closeIfFreeable() {}

  public boolean hasNull() { return absent || nulls != 0; }

  public int numNulls() { return nulls; }

  public boolean isNullAt(int i) {
    if (valid == 0L) { return absent; }
    return (Platform.getByte(base, valid + (long) (i >> 3)) >> (i & 7) & 1) == 0;
  }

  public boolean getBoolean(int i) {
    return (Platform.getByte(base, data + (long) (i >> 3)) >> (i & 7) & 1) == 1;
  }

  public byte getByte(int i) { return Platform.getByte(base, data + (long) i); }

  public short getShort(int i) {
    return width == 2 && signed
        ? Platform.getShort(base, data + 2L * (long) i)
        : (short) integer(i);
  }

  public int getInt(int i) {
    return width == 0 || width == 4 && signed
        ? Platform.getInt(base, data + 4L * (long) i)
        : (int) integer(i);
  }

  public long getLong(int i) {
    return width == 0 || width == 8 ? Platform.getLong(base, data + 8L * (long) i) : integer(i);
  }

  private long integer(int i) {
    if (width == 1) {
      byte found = Platform.getByte(base, data + (long) i);
      return signed ? (long) found : (long) found & 0xFFL;
    }
    if (width == 2) {
      short found = Platform.getShort(base, data + 2L * (long) i);
      return signed ? (long) found : (long) found & 0xFFFFL;
    }
    if (width == 4) {
      int found = Platform.getInt(base, data + 4L * (long) i);
      return signed ? (long) found : (long) found & 0xFFFFFFFFL;
    }
    return Platform.getLong(base, data + 8L * (long) i);
  }

  public float getFloat(int i) { return Platform.getFloat(base, data + 4L * (long) i); }

  public double getDouble(int i) { return Platform.getDouble(base, data + 8L * (long) i); }

  // Where there is no value, Spark wants null of the next four, which it does not always ask before.

  public Decimal getDecimal(int i, int precision, int scale) {
    if (isNullAt(i)) { return null; }
    if (width != 0) { return unsigned(integer(i), precision); }
    long low = Platform.getLong(base, data + 16L * (long) i);
    if (precision <= Decimal.MAX_LONG_DIGITS()) {
      return Decimal.createUnsafe(low, precision, scale);
    }
    long high = Platform.getLong(base, data + 16L * (long) i + 8L);
    BigInteger found = high == low >> 63
        ? BigInteger.valueOf(low)
        : BigInteger.valueOf(high).shiftLeft(64).add(natural(low));
    return Decimal.apply(new BigDecimal(found, scale), precision, scale);
  }

  /** Of 64 bits without a sign, which Spark has as decimal(20,0). */
  private static Decimal unsigned(long found, int precision) {
    return found >= 0L
        ? Decimal.apply(found, precision, 0)
        : Decimal.apply(new BigDecimal(natural(found)), precision, 0);
  }

  private static BigInteger natural(long bits) {
    return BigInteger.valueOf(bits >>> 1).shiftLeft(1).add(BigInteger.valueOf(bits & 1L));
  }

  public UTF8String getUTF8String(int i) {
    if (isNullAt(i)) { return null; }
    if (words != null) { return words[(int) integer(i)]; }
    int from = Platform.getInt(base, offsets + 4L * (long) i);
    int to = Platform.getInt(base, offsets + 4L * (long) i + 4L);
    return UTF8String.fromAddress(base, data + (long) from, to - from);
  }

  public byte[] getBinary(int i) {
    if (isNullAt(i)) { return null; }
    int from = Platform.getInt(base, offsets + 4L * (long) i);
    byte[] found = new byte[Platform.getInt(base, offsets + 4L * (long) i + 4L) - from];
    Platform.copyMemory(
        base, data + (long) from, found, (long) Platform.BYTE_ARRAY_OFFSET, (long) found.length);
    return found;
  }

  public ColumnarArray getArray(int i) {
    if (isNullAt(i)) { return null; }
    int from = Platform.getInt(base, offsets + 4L * (long) i);
    int to = Platform.getInt(base, offsets + 4L * (long) i + 4L);
    return new ColumnarArray(children[0], from, to - from);
  }

  public ColumnarMap getMap(int i) { throw new UnsupportedOperationException("no maps"); }

  public ColumnVector getChild(int i) { return children[i]; }
}
