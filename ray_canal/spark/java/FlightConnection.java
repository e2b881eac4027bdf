package raycanal;

import io.netty.bootstrap.Bootstrap;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.handler.codec.http2.DefaultHttp2DataFrame;
import io.netty.handler.codec.http2.DefaultHttp2Headers;
import io.netty.handler.codec.http2.DefaultHttp2HeadersFrame;
import io.netty.handler.codec.http2.DefaultHttp2WindowUpdateFrame;
import io.netty.handler.codec.http2.Http2FrameCodecBuilder;
import io.netty.handler.codec.http2.Http2MultiplexHandler;
import io.netty.handler.codec.http2.Http2Settings;
import io.netty.handler.codec.http2.Http2StreamChannel;
import io.netty.handler.codec.http2.Http2StreamChannelBootstrap;
import io.netty.handler.ssl.ApplicationProtocolConfig;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslHandler;
import io.netty.util.concurrent.DefaultThreadFactory;
import io.netty.util.concurrent.Future;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import javax.net.ssl.SSLParameters;

/** HTTP/2 connections of this JVM to Flight servers, by the Netty that Spark has. */
class FlightConnection {
  private static final Map OPEN = new HashMap();
  private static final NioEventLoopGroup THREADS =
      new NioEventLoopGroup(1, new DefaultThreadFactory("ray_canal flight", true));
  private static final int CONNECT_MS = 10000;
  private static final int WINDOW_BYTES = 16 << 20;
  private static final int FRAME_BYTES = 1 << 20;

  private FlightConnection() {}

  /** Begin a call of a method of Flight's service with one message. */
  static FlightCall call(FlightAddress to, String method, byte[] message) throws IOException {
    Http2StreamChannelBootstrap bootstrap = new Http2StreamChannelBootstrap(opened(to));
    FlightCall call = new FlightCall();
    bootstrap.handler(call);
    Future opening = bootstrap.open();
    opening.awaitUninterruptibly();
    if (!opening.isSuccess()) { throw new LostConnection(String.valueOf(opening.cause())); }
    Http2StreamChannel stream = (Http2StreamChannel) opening.getNow();
    call.stream = stream;
    DefaultHttp2Headers headers = new DefaultHttp2Headers();
    headers.method("POST");
    headers.scheme(to.tls ? "https" : "http");
    headers.path("/arrow.flight.protocol.FlightService/" + method);
    headers.authority(to.host + ":" + to.port);
    headers.set("content-type", "application/grpc");
    headers.set("te", "trailers");
    if (to.authorization != null) { headers.set("authorization", to.authorization); }
    stream.write(new DefaultHttp2HeadersFrame(headers, false));
    byte[] framed = new byte[message.length + 5];
    for (int i = 0; i < 4; i++) { framed[4 - i] = (byte) (message.length >> 8 * i); }
    System.arraycopy(message, 0, framed, 5, message.length);
    stream.writeAndFlush(new DefaultHttp2DataFrame(Unpooled.wrappedBuffer(framed), true));
    return call;
  }

  private static Channel opened(FlightAddress to) throws IOException {
    synchronized (OPEN) {
      Channel found = (Channel) OPEN.get(to.key());
      if (found != null && found.isActive()) { return found; }
      Bootstrap bootstrap = new Bootstrap();
      bootstrap.group(THREADS);
      bootstrap.channel(NioSocketChannel.class);
      bootstrap.option(ChannelOption.CONNECT_TIMEOUT_MILLIS, Integer.valueOf(CONNECT_MS));
      bootstrap.handler(new Pipeline(to, context(to)));
      ChannelFuture connecting = bootstrap.connect(to.host, to.port);
      connecting.awaitUninterruptibly();
      if (!connecting.isSuccess()) {
        throw new LostConnection(String.valueOf(connecting.cause()));
      }
      Channel made = connecting.channel();
      if (to.tls) { handshaken(made); }
      made.writeAndFlush(new DefaultHttp2WindowUpdateFrame(WINDOW_BYTES));
      OPEN.put(to.key(), made);
      return made;
    }
  }

  private static void handshaken(Channel made) throws IOException {
    SslHandler handler = (SslHandler) made.pipeline().get("tls");
    Future shaking = handler.handshakeFuture();
    shaking.awaitUninterruptibly();
    if (!shaking.isSuccess()) {
      made.close();
      throw new IOException("TLS: " + shaking.cause());
    }
  }

  private static SslContext context(FlightAddress to) throws IOException {
    if (!to.tls) { return null; }
    SslContextBuilder builder = SslContextBuilder.forClient();
    if (to.ca != null) { builder.trustManager(new ByteArrayInputStream(to.ca)); }
    if (to.cert != null) {
      builder.keyManager(new ByteArrayInputStream(to.cert), new ByteArrayInputStream(to.key));
    }
    builder.applicationProtocolConfig(new ApplicationProtocolConfig(
        ApplicationProtocolConfig.Protocol.ALPN,
        ApplicationProtocolConfig.SelectorFailureBehavior.NO_ADVERTISE,
        ApplicationProtocolConfig.SelectedListenerFailureBehavior.ACCEPT,
        new String[] {"h2"}));
    return builder.build();
  }

  /** TLS, if it is wanted, and HTTP/2. */
  private static class Pipeline extends ChannelInitializer {
    private final FlightAddress to;
    private final SslContext context;

    Pipeline(FlightAddress to, SslContext context) {
      this.to = to;
      this.context = context;
    }

    protected void initChannel(Channel channel) {
      ChannelPipeline line = channel.pipeline();
      if (context != null) {
        SslHandler handler = context.newHandler(channel.alloc(), to.host, to.port);
        SSLParameters parameters = handler.engine().getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS"); // the name in the certificate
        handler.engine().setSSLParameters(parameters);
        line.addLast("tls", handler);
      }
      Http2Settings settings = Http2Settings.defaultSettings();
      settings.initialWindowSize(WINDOW_BYTES);
      settings.maxFrameSize(FRAME_BYTES);
      Http2FrameCodecBuilder builder = Http2FrameCodecBuilder.forClient();
      builder.initialSettings(settings);
      line.addLast("http2", builder.build());
      line.addLast("calls", new Http2MultiplexHandler(new ChannelInboundHandlerAdapter()));
    }
  }
}
