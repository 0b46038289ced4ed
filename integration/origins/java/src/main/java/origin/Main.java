package origin;

import com.google.protobuf.Any;
import com.google.protobuf.Message;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.envoyproxy.controlplane.cache.v3.SimpleCache;
import io.envoyproxy.controlplane.cache.v3.Snapshot;
import io.envoyproxy.controlplane.server.DiscoveryServerCallbacks;
import io.envoyproxy.controlplane.server.V3DiscoveryServer;
import io.envoyproxy.envoy.config.cluster.v3.Cluster;
import io.envoyproxy.envoy.config.core.v3.Node;
import io.envoyproxy.envoy.config.endpoint.v3.ClusterLoadAssignment;
import io.envoyproxy.envoy.config.listener.v3.Listener;
import io.envoyproxy.envoy.config.route.v3.RouteConfiguration;
import io.envoyproxy.envoy.service.discovery.v3.AggregatedDiscoveryServiceGrpc;
import io.envoyproxy.envoy.service.discovery.v3.DeltaDiscoveryRequest;
import io.envoyproxy.envoy.service.discovery.v3.DeltaDiscoveryResponse;
import io.envoyproxy.envoy.service.discovery.v3.DiscoveryRequest;
import io.envoyproxy.envoy.service.discovery.v3.DiscoveryResponse;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiFunction;
import java.util.function.Function;

/**
 * An origin for tests: java-control-plane's server with its SimpleCache. Tests control it over HTTP
 * as the origin in ../gocontrolplane, whose main.go describes the requests. The parameter cache has
 * no meaning here.
 */
public final class Main {
  private static final Base64.Encoder TO_BASE64 = Base64.getEncoder();
  private static final Base64.Decoder FROM_BASE64 = Base64.getDecoder();

  private final Map<String, Site> sites = new HashMap<>();
  private final AtomicInteger streams = new AtomicInteger();

  /** Runs until SIGTERM. The only argument is the age in seconds at which connections are closed. */
  public static void main(String[] args) throws Exception {
    Main origin = new Main();
    InetSocketAddress any = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    NettyServerBuilder builder = NettyServerBuilder.forAddress(any).addService(origin.service());
    if (args.length > 0) {
      builder.maxConnectionAge(Long.parseLong(args[0]), TimeUnit.SECONDS)
          .maxConnectionAgeGrace(1, TimeUnit.MILLISECONDS);
    }
    Server server = builder.build().start();
    HttpServer control = HttpServer.create(any, 0);
    control.setExecutor(Executors.newCachedThreadPool());
    control.createContext("/", origin::control);
    control.start();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> Runtime.getRuntime().halt(0)));
    System.err.printf("serving ads=127.0.0.1:%d control=127.0.0.1:%d%n", server.getPort(),
        control.getAddress().getPort());
    server.awaitTermination();
  }

  /** One key's control plane. */
  private static final class Site {
    final String node;
    final SimpleCache<String> cache;
    final V3DiscoveryServer server;
    final List<Responses<?>> open = new ArrayList<>();
    final StringBuffer requests = new StringBuffer();

    Site(String node) {
      this.node = node;
      cache = new SimpleCache<>(this::group);
      server = new V3DiscoveryServer(cache);
    }

    /** All nodes are one group, or each is its own. */
    String group(Node of) {
      return node.isEmpty() ? "" : of.getId();
    }

    void set(String version, List<Any> all) throws IOException {
      cache.setSnapshot(node, Snapshot.create(
          pick(all, Cluster.class), pick(all, ClusterLoadAssignment.class), pick(all, Listener.class),
          pick(all, RouteConfiguration.class), List.of(), version));
    }

    private static <T extends Message> List<T> pick(List<Any> all, Class<T> type) throws IOException {
      List<T> out = new ArrayList<>();
      for (Any a : all) {
        if (a.is(type)) {
          out.add(a.unpack(type));
        }
      }
      return out;
    }

    synchronized void add(Responses<?> stream) {
      open.add(stream);
    }

    synchronized void end() {
      open.forEach(Responses::end);
      open.clear();
    }
  }

  /** The responses of a stream, which the server and the test may end at the same time. */
  private static final class Responses<A> implements StreamObserver<A> {
    private final StreamObserver<A> to;
    private boolean ended;

    Responses(StreamObserver<A> to) {
      this.to = to;
    }

    void end() {
      try {
        onError(Status.UNAVAILABLE.withDescription("the test ends the stream").asRuntimeException());
      } catch (RuntimeException e) {
        // The client has cancelled the stream.
      }
    }

    @Override
    public synchronized void onNext(A response) {
      if (!ended) {
        to.onNext(response);
      }
    }

    @Override
    public synchronized void onError(Throwable why) {
      if (!ended) {
        ended = true;
        to.onError(why);
      }
    }

    @Override
    public synchronized void onCompleted() {
      if (!ended) {
        ended = true;
        to.onCompleted();
      }
    }
  }

  private void control(HttpExchange http) throws IOException {
    byte[] answer = {};
    int code = 200;
    try {
      Map<String, String> q = new HashMap<>();
      for (String pair : http.getRequestURI().getRawQuery().split("&")) {
        String[] kv = pair.split("=", 2);
        q.put(kv[0], URLDecoder.decode(kv[1], StandardCharsets.UTF_8));
      }
      synchronized (this) {
        Site site = sites.get(q.get("key"));
        switch (http.getRequestURI().getPath()) {
          case "/set":
          case "/restart":
            set(q, site, http.getRequestURI().getPath().equals("/restart"), body(http));
            break;
          case "/end":
            site.end();
            break;
          case "/requests":
            answer = site == null ? answer : site.requests.toString().getBytes(StandardCharsets.UTF_8);
            break;
          default:
            code = 404;
        }
      }
    } catch (RuntimeException | IOException e) {
      code = 400;
      answer = e.toString().getBytes(StandardCharsets.UTF_8);
    }
    http.sendResponseHeaders(code, answer.length == 0 ? -1 : answer.length);
    http.getResponseBody().write(answer);
    http.close();
  }

  private static List<Any> body(HttpExchange http) throws IOException {
    List<Any> out = new ArrayList<>();
    String text = new String(http.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
    for (String line : text.split("\n")) {
      if (!line.isEmpty()) {
        out.add(Any.parseFrom(FROM_BASE64.decode(line)));
      }
    }
    return out;
  }

  private void set(Map<String, String> q, Site site, boolean restart, List<Any> all) throws IOException {
    if (site != null && !restart) {
      site.set(q.get("version"), all);
      return;
    }
    Site next = new Site(q.getOrDefault("node", ""));
    next.set(q.get("version"), all);
    sites.put(q.get("key"), next);
    if (site != null) {
      next.requests.append(site.requests);
      site.end();
    }
  }

  private synchronized Site site(String key) {
    Site site = sites.get(key);
    if (site == null) {
      throw Status.UNAVAILABLE.withDescription("no test has the key " + key).asRuntimeException();
    }
    return site;
  }

  /** The first request of a stream says which site serves it. */
  private AggregatedDiscoveryServiceGrpc.AggregatedDiscoveryServiceImplBase service() {
    return new AggregatedDiscoveryServiceGrpc.AggregatedDiscoveryServiceImplBase() {
      @Override
      public StreamObserver<DiscoveryRequest> streamAggregatedResources(StreamObserver<DiscoveryResponse> out) {
        return new Dispatch<>(out, "sotw", DiscoveryRequest::getNode,
            (site, to) -> site.server.getAggregatedDiscoveryServiceImpl().streamAggregatedResources(to));
      }

      @Override
      public StreamObserver<DeltaDiscoveryRequest> deltaAggregatedResources(StreamObserver<DeltaDiscoveryResponse> out) {
        return new Dispatch<>(out, "delta", DeltaDiscoveryRequest::getNode,
            (site, to) -> site.server.getAggregatedDiscoveryServiceImpl().deltaAggregatedResources(to));
      }
    };
  }

  /** A stream that goes to the server of its first request's site, and records each request. */
  private final class Dispatch<Q extends Message, A> implements StreamObserver<Q> {
    private final Responses<A> out;
    private final String variant;
    private final Function<Q, Node> node;
    private final BiFunction<Site, StreamObserver<A>, StreamObserver<Q>> open;
    private final int number = streams.incrementAndGet();
    private Site site;
    private StreamObserver<Q> server;

    Dispatch(StreamObserver<A> out, String variant, Function<Q, Node> node,
        BiFunction<Site, StreamObserver<A>, StreamObserver<Q>> open) {
      this.out = new Responses<>(out);
      this.variant = variant;
      this.node = node;
      this.open = open;
    }

    @Override
    public void onNext(Q request) {
      if (site == null) {
        try {
          site = site(node.apply(request).getCluster());
        } catch (RuntimeException e) {
          out.onError(e);
          return;
        }
        site.add(out);
        server = open.apply(site, out);
      }
      site.requests.append(number + " " + variant + " " + TO_BASE64.encodeToString(request.toByteArray()) + "\n");
      server.onNext(request);
    }

    @Override
    public void onError(Throwable t) {
      if (server != null) {
        server.onError(t);
      }
    }

    @Override
    public void onCompleted() {
      if (server != null) {
        server.onCompleted();
      }
    }
  }
}
