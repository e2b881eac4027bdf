package raycanal;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.spark.storage.StorageUtils;
import org.apache.spark.unsafe.Platform;

/** A chunk of bytes: mapped, or an array on the heap. Spark's Platform reads both by (base, address). */
class Bytes {
  final ByteBuffer buffer;
  final Object base;
  final long address;
  private MappedByteBuffer mapped;

  private Bytes(ByteBuffer buffer, Object base, long address) {
    this.buffer = buffer;
    this.base = base;
    this.address = address;
    buffer.order(ByteOrder.LITTLE_ENDIAN);
  }

  static Bytes of(Place place) {
    int colon = place.text.indexOf(':');
    String rest = place.text.substring(colon + 1);
    if (place.remote != null) { return ofArray(place.remote.rows(rest)); }
    try {
      return place.text.startsWith("ray:") ? ofObject(rest) : ofMemory(rest);
    } catch (InvocationTargetException e) {
      throw unreadable(place, e.getCause());
    } catch (Exception e) {
      throw unreadable(place, e);
    }
  }

  private static IllegalStateException unreadable(Place place, Throwable why) {
    return new IllegalStateException("changes cannot be read from " + place.text + ": " + why, why);
  }

  private static Bytes ofArray(byte[] found) {
    return new Bytes(ByteBuffer.wrap(found), found, (long) Platform.BYTE_ARRAY_OFFSET);
  }

  /** PATH:NAME:BEGIN:LENGTH of a memory file, which is open under /proc while it is there. */
  private static Bytes ofMemory(String text) throws IOException {
    String[] parts = text.split(":");
    RandomAccessFile file = null;
    try {
      file = new RandomAccessFile(parts[0], "r");
      // Looked at when it is open: a released descriptor's number may be another file's.
      if (Files.readSymbolicLink(new File(parts[0]).toPath()).toString().contains(parts[1])) {
        MappedByteBuffer mapped = file.getChannel().map(
            FileChannel.MapMode.READ_ONLY, Long.parseLong(parts[2]), Long.parseLong(parts[3]));
        Bytes found = new Bytes(mapped, null, MemoryUtil.getByteBufferAddress(mapped));
        found.mapped = mapped;
        return found;
      }
    } catch (FileNotFoundException e) {
    } catch (NoSuchFileException e) {
    } finally {
      if (file != null) { file.close(); }
    }
    throw new IOException("they were released (read a DataFrame in the function that gets it), or"
        + " this executor is on another node than the driver (begin the run or query again)");
  }

  /** From Ray's object store, by RayDP, which is not there when this is compiled. */
  private static Bytes ofObject(String text) throws Exception {
    String[] names = text.split(":");
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    Class utils = Class.forName("org.apache.spark.raydp.RayDPUtils", true, loader);
    Object reference = utils
        .getMethod("readBinary", new Class[] {byte[].class, Class.class, byte[].class})
        .invoke(null, new Object[] {unhex(names[0]), byte[].class, unhex(names[1])});
    byte[] found =
        (byte[]) reference.getClass().getMethod("get", new Class[0]).invoke(reference, new Object[0]);
    return ofArray(found);
  }

  private static byte[] unhex(String text) {
    byte[] found = new byte[text.length() / 2];
    for (int i = 0; i < found.length; i++) {
      found[i] = (byte) Integer.parseInt(text.substring(2 * i, 2 * i + 2), 16);
    }
    return found;
  }

  void close() {
    if (mapped != null) {
      StorageUtils.dispose(mapped);
      mapped = null;
    }
  }
}
