import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RBucket;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * Redisson's locks behind a line protocol. Arguments: the watchdog's lease in ms, then one Redis URL or more.
 *
 * <p>A line on stdin is {@code id thread verb kind name argument...}; the answer on stdout is {@code id ok value}
 * or {@code id error exception}. Redisson's owner is the thread, so each thread name is a thread of its own, and
 * one that waits does not keep the others from answering. The end of stdin ends the process, with no unlocking.
 */
public final class Interop {
    private final List<RedissonClient> servers = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        Interop interop = new Interop();
        for (String url : List.of(args).subList(1, args.length)) {
            Config config = new Config();
            config.setLockWatchdogTimeout(Long.parseLong(args[0])).setThreads(4).setNettyThreads(4);
            config.useSingleServer().setAddress(url).setConnectionMinimumIdleSize(1).setSubscriptionConnectionMinimumIdleSize(1)
                .setTimeout(2000).setRetryAttempts(1); // ms; a server that was killed is given up soon
            interop.servers.add(Redisson.create(config));
        }
        System.out.println("ready");
        Map<String, ExecutorService> threads = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] order = line.split(" ");
            threads.computeIfAbsent(order[1], name -> Executors.newSingleThreadExecutor()).execute(() -> {
                String answer;
                try {
                    answer = " ok " + interop.obey(order);
                } catch (Throwable e) {
                    answer = " error " + e;
                }
                System.out.println(order[0] + answer.replace('\n', ' '));
            });
        }
        System.exit(0);
    }

    private RLock lock(String kind, String name) {
        RLock[] parts = servers.stream().map(server -> server.getLock(name)).toArray(RLock[]::new);
        return switch (kind) {
            case "plain" -> parts[0];
            case "fenced" -> servers.get(0).getFencedLock(name);
            case "multi" -> new RedissonMultiLock(parts);
            case "red" -> new RedissonRedLock(parts);
            default -> throw new IllegalArgumentException(kind);
        };
    }

    private Object obey(String[] order) throws InterruptedException {
        RLock lock = lock(order[3], order[4]);
        switch (order[2]) {
            case "lock": // argument: lease in ms, -1 for the watchdog
                lock.lock(Long.parseLong(order[5]), TimeUnit.MILLISECONDS);
                return "";
            case "try": // arguments: wait and lease in ms
                return lock.tryLock(Long.parseLong(order[5]), Long.parseLong(order[6]), TimeUnit.MILLISECONDS);
            case "unlock":
                lock.unlock();
                return "";
            case "force":
                return lock.forceUnlock();
            case "holds":
                return lock.getHoldCount();
            case "mine":
                return lock.isHeldByCurrentThread();
            case "locked":
                return lock.isLocked();
            case "locktoken":
                return ((RFencedLock) lock).lockAndGetToken();
            case "token":
                return ((RFencedLock) lock).getToken();
            case "add": // arguments: key of a number, how often to add one to it by reading and writing
                RBucket<String> number = servers.get(0).getBucket(order[5], StringCodec.INSTANCE);
                for (int i = Integer.parseInt(order[6]); i > 0; i--) {
                    lock.lock();
                    try {
                        number.set(String.valueOf(Long.parseLong(number.get()) + 1));
                    } finally {
                        lock.unlock();
                    }
                }
                return "";
            default:
                throw new IllegalArgumentException(order[2]);
        }
    }
}
