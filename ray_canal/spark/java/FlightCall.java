package raycanal;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.handler.codec.http2.Http2DataFrame;
import io.netty.handler.codec.http2.Http2Headers;
import io.netty.handler.codec.http2.Http2HeadersFrame;
import io.netty.handler.codec.http2.Http2ResetFrame;
import io.netty.handler.codec.http2.Http2StreamChannel;
import io.netty.util.ReferenceCountUtil;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UnsupportedEncodingException;
import java.net.URLDecoder;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * One gRPC call's answer: messages as they come, cut out of HTTP/2 data frames.
 *
 * The format is gRPC's (github.com/grpc/grpc, doc/PROTOCOL-HTTP2.md): a byte that says whether a
 * message is compressed, its length in four bytes, the message; a status in the last headers.
 */
class FlightCall extends ChannelInboundHandlerAdapter {
  private static final int UNAVAILABLE = 14;
  private static final int PREFIX = 5;

  private final LinkedBlockingQueue found = new LinkedBlockingQueue();
  private final byte[] prefix = new byte[PREFIX];
  Http2StreamChannel stream;
  private int prefixed = 0;
  private byte[] message;
  private int filled;
  private boolean ended = false;

  /** The next message; null: the answer has ended well. Throws LostConnection, IOException. */
  byte[] next(long seconds) throws IOException {
    Object each;
    try {
      each = found.poll(seconds, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("the call was interrupted");
    }
    if (each == null) {
      if (stream != null) { stream.parent().close(); } // it may be dead; the next call has another
      throw new LostConnection("there was no answer in " + seconds + " s");
    }
    if (each instanceof IOException) { throw (IOException) each; }
    return each instanceof byte[] ? (byte[]) each : null;
  }

  public void channelRead(ChannelHandlerContext context, Object frame) {
    try {
      if (frame instanceof Http2HeadersFrame) {
        headers(((Http2HeadersFrame) frame).headers());
      } else if (frame instanceof Http2DataFrame) {
        data(((Http2DataFrame) frame).content());
      } else if (frame instanceof Http2ResetFrame) {
        end(new LostConnection("the server broke the call off"));
      }
    } finally {
      ReferenceCountUtil.release(frame);
    }
  }

  /** Also what comes as an event: a reset of the stream. */
  public void userEventTriggered(ChannelHandlerContext context, Object event) {
    if (event instanceof Http2ResetFrame) {
      end(new LostConnection("the server broke the call off"));
    }
  }

  public void channelInactive(ChannelHandlerContext context) {
    end(new LostConnection("the connection was closed"));
  }

  public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
    end(new LostConnection(String.valueOf(cause)));
  }

  private void end(Object how) {
    if (!ended) {
      ended = true;
      found.add(how);
    }
  }

  private void headers(Http2Headers headers) {
    Object grpc = headers.get("grpc-status");
    if (grpc == null) {
      String status = String.valueOf(headers.status());
      if (!status.equals("200")) { end(new IOException("HTTP status " + status)); }
      return;
    }
    int code = Integer.parseInt(grpc.toString());
    Object text = headers.get("grpc-message");
    String told = text == null ? "gRPC status " + code : decoded(text.toString());
    if (code == 0) {
      end("done");
    } else if (code == UNAVAILABLE) {
      end(new LostConnection(told));
    } else {
      end(new IOException(told));
    }
  }

  /** grpc-message has percents as URLs have, but plus signs as they are. */
  private static String decoded(String text) {
    try {
      return URLDecoder.decode(text.replace("+", "%2B"), "UTF-8");
    } catch (IllegalArgumentException e) {
      return text;
    } catch (UnsupportedEncodingException e) {
      return text;
    }
  }

  private void data(ByteBuf given) {
    while (given.isReadable()) {
      if (message == null) {
        int count = Math.min(given.readableBytes(), PREFIX - prefixed);
        given.readBytes(prefix, prefixed, count);
        prefixed += count;
        if (prefixed < PREFIX) { return; }
        if (prefix[0] != 0) {
          end(new IOException("a compressed message, which was not asked for"));
          return;
        }
        message = new byte[length()];
        filled = 0;
      }
      int count = Math.min(given.readableBytes(), message.length - filled);
      given.readBytes(message, filled, count);
      filled += count;
      if (filled == message.length) {
        found.add(message);
        message = null;
        prefixed = 0;
      }
    }
  }

  private int length() {
    return (prefix[1] & 255) << 24 | (prefix[2] & 255) << 16 | (prefix[3] & 255) << 8
        | prefix[4] & 255;
  }
}

/** The call may not have reached the server; it can be made again. */
class LostConnection extends IOException {
  LostConnection(String text) { super(text); }
}
