package raycanal;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.util.Base64;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A Flight server (`[flight]` of canal.toml) and how to come in; the calls that a read makes of it.
 *
 * It goes to the executors with each partition, secrets too, as Spark sends its tasks.
 */
class FlightAddress implements Serializable {
  private static final long AGAIN_MS = 60000L;
  private static final long PAUSE_MS = 200L;
  private static final long ANSWER_S = 180L;
  private static final String STILL_WORKING = "~"; // flight/spark_reads.py
  private static final long RELEASE_S = 5L;
  private static final int CONTENT = 1;
  private static final int HEADER = 2;
  private static final int BODY = 1000;

  final String host;
  final int port;
  final boolean tls;
  final String authorization;
  final byte[] ca;
  final byte[] cert;
  final byte[] key;

  FlightAddress(CaseInsensitiveStringMap options) {
    String address = options.get("address");
    int scheme = address.indexOf("://");
    int colon = address.lastIndexOf(':');
    String kind = scheme < 0 ? "" : address.substring(0, scheme);
    tls = kind.equals("grpc+tls");
    if (!(tls || kind.equals("grpc") || kind.equals("grpc+tcp")) || colon <= scheme) {
      throw new IllegalArgumentException(
          "option address is " + address + ": give grpc://HOST:PORT or grpc+tls://HOST:PORT");
    }
    host = address.substring(scheme + 3, colon);
    port = Integer.parseInt(address.substring(colon + 1));
    ca = read(options.get("ca"));
    cert = read(options.get("cert"));
    key = read(options.get("key"));
    if (!tls && (ca != null || cert != null)) {
      throw new IllegalArgumentException("ca, cert and key belong to an address grpc+tls://...");
    }
    String password = options.get("password");
    String user = options.get("username");
    authorization = password == null ? null
        : "Basic " + base64((user == null ? "" : user) + ":" + password);
  }

  private static byte[] read(String path) {
    try {
      return path == null ? null : Files.readAllBytes(new File(path).toPath());
    } catch (IOException e) {
      throw new IllegalArgumentException("cannot read the file " + path + ": " + e);
    }
  }

  private static String base64(String text) {
    return Base64.getEncoder().encodeToString(utf8(text));
  }

  private static byte[] utf8(String text) {
    try {
      return text.getBytes("UTF-8");
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Connections are shared by what this tells. */
  String key() { return host + " " + port + " " + tls + " " + hash(ca) + " " + hash(cert); }

  private static int hash(byte[] data) { return java.util.Arrays.hashCode(data); }

  /** The answer to a request of spark/requests.py; asked again for a minute while nobody is there. */
  String ask(String what, String first, String second) {
    byte[] action = action(what, first, second);
    long deadline = System.currentTimeMillis() + AGAIN_MS;
    while (true) {
      try {
        FlightCall call = FlightConnection.call(this, "DoAction", action);
        String text = STILL_WORKING;
        while (text.equals(STILL_WORKING)) {
          byte[] answer = call.next(ANSWER_S);
          if (answer == null) { throw new IOException("the server gave no answer"); }
          text = new String(field(answer, CONTENT), "UTF-8");
        }
        return text;
      } catch (LostConnection e) {
        again(e, deadline);
      } catch (IOException e) {
        throw failed(e);
      }
    }
  }

  /** Tell once that a batch read is done with: nobody waits for it. */
  void release(String read) {
    try {
      FlightConnection.call(this, "DoAction", action("RELEASE", read, "")).next(RELEASE_S);
    } catch (IOException e) {
      return; // it is freed when it has been idle
    }
  }

  private static byte[] action(String what, String first, String second) {
    return message(CONTENT, utf8("spark"), 2, utf8(what + "\n" + first + "\n" + second));
  }

  /** The rows of a partition: NAME:LENGTH. */
  byte[] rows(String place) {
    int colon = place.indexOf(':');
    byte[] ticket = message(CONTENT, utf8("{\"rows\":\"" + place.substring(0, colon) + "\"}"), 0, null);
    byte[] found = new byte[Integer.parseInt(place.substring(colon + 1))];
    long deadline = System.currentTimeMillis() + AGAIN_MS / 4L;
    while (true) {
      try {
        FlightCall call = FlightConnection.call(this, "DoGet", ticket);
        int at = 0;
        for (byte[] each = call.next(ANSWER_S); each != null; each = call.next(ANSWER_S)) {
          at += copy(each, found, at);
        }
        if (at != found.length) { throw new LostConnection(at + " of " + found.length + " bytes"); }
        return found;
      } catch (LostConnection e) {
        again(e, deadline);
      } catch (IOException e) {
        throw failed(e);
      }
    }
  }

  /** Of a FlightData with a record batch of one column of bytes: its bytes, into `to`. */
  private static int copy(byte[] data, byte[] to, int at) {
    ByteBuffer head = ByteBuffer.wrap(data);
    head.order(ByteOrder.LITTLE_ENDIAN);
    int[] header = find(data, HEADER);
    head.position(header[0]);
    head.limit(header[0] + header[1]);
    ByteBuffer only = (ByteBuffer) head.slice();
    only.order(ByteOrder.LITTLE_ENDIAN);
    Message message = Message.getRootAsMessage(only);
    if (message.headerType() != MessageHeader.RecordBatch) { return 0; }
    RecordBatch batch = (RecordBatch) message.header(new RecordBatch());
    int count = (int) batch.length();
    if (count > 0) {
      int[] body = find(data, BODY);
      System.arraycopy(data, body[0] + (int) batch.buffers(1).offset(), to, at, count);
    }
    return count;
  }

  private void again(LostConnection error, long deadline) {
    if (System.currentTimeMillis() > deadline) { throw failed(error); }
    try {
      Thread.sleep(PAUSE_MS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw failed(new InterruptedIOException(error.getMessage()));
    }
  }

  private RuntimeException failed(IOException error) {
    if (error instanceof InterruptedIOException) {
      return new UncheckedIOException(error); // Spark knows it as its own stop
    }
    String scheme = tls ? "grpc+tls" : "grpc";
    return new IllegalStateException(
        "Arrow Flight at " + scheme + "://" + host + ":" + port + ": " + error.getMessage(), error);
  }

  // --- protobuf: messages of Flight.proto, whose fields are all bytes or texts ------------------

  private static byte[] message(int first, byte[] content, int second, byte[] more) {
    ByteArrayOutputStream made = new ByteArrayOutputStream();
    append(made, first, content);
    if (more != null) { append(made, second, more); }
    return made.toByteArray();
  }

  private static void append(ByteArrayOutputStream to, int number, byte[] content) {
    varint(to, number << 3 | 2);
    varint(to, content.length);
    to.write(content, 0, content.length);
  }

  private static void varint(ByteArrayOutputStream to, int value) {
    while ((value & ~127) != 0) {
      to.write(value & 127 | 128);
      value >>>= 7;
    }
    to.write(value);
  }

  private static byte[] field(byte[] message, int number) {
    int[] where = find(message, number);
    byte[] found = new byte[where[1]];
    System.arraycopy(message, where[0], found, 0, where[1]);
    return found;
  }

  /** Begin and length of a field of bytes; of length 0 if it is not there. */
  private static int[] find(byte[] message, int number) {
    int[] at = new int[] {0};
    while (at[0] < message.length) {
      int tag = (int) number(message, at);
      int kind = tag & 7;
      if (kind != 2) {
        number(message, at); // Flight's messages have no other kinds but integers
        continue;
      }
      int length = (int) number(message, at);
      if (tag >>> 3 == number) { return new int[] {at[0], length}; }
      at[0] += length;
    }
    return new int[] {0, 0};
  }

  private static long number(byte[] message, int[] at) {
    long found = 0L;
    int shift = 0;
    while (true) {
      byte each = message[at[0]++];
      found |= (long) (each & 127) << shift;
      if (each >= 0) { return found; }
      shift += 7;
    }
  }
}
