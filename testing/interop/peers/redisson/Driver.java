// Drives Redisson's RLock as ../PROTOCOL.md says.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

public final class Driver {
    /** How long a counting worker waits for the lock before it looks at the time again. */
    private static final long PATIENCE_MS = 20_000;
    private static final long WARM_UP_MS = 8_000;

    private final RedissonClient client;

    private Driver(int port, long keepMs) {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.setLockWatchdogTimeout(keepMs);
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port).setConnectionPoolSize(64).setConnectionMinimumIdleSize(4);
        client = Redisson.create(config);
    }

    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver(Integer.parseInt(arguments[0]), Long.parseLong(arguments[1]));
        answer("\"ready\":true,\"library\":\"Redisson\",\"version\":\"" + version() + "\"");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null && !line.equals("quit"); line = commands.readLine()) {
            try {
                answer(driver.run(line.split(" ")));
            } catch (Exception error) {
                answer("\"error\":\"" + error.toString().replace("\\", "/").replace("\"", "'").replace("\n", " ") + "\"");
            }
        }
        // Without a farewell to the server: what is held stays held until its lease ends, as with a process that dies.
        Runtime.getRuntime().halt(0);
    }

    private String run(String[] words) throws Exception {
        switch (words[0]) {
            case "lock":
                return lock(client.getLock(words[1]), Long.parseLong(words[2]), Long.parseLong(words[3]));
            case "unlock":
                return unlock(client.getLock(words[1]));
            case "stranger":
                return elsewhere(() -> unlock(client.getLock(words[1])));
            case "count":
                return count(words[1], Path.of(words[2]), Long.parseLong(words[3]), Integer.parseInt(words[4]), Long.parseLong(words[5]));
            case "token":
                return token(client.getFencedLock(words[1]));
            case "solo":
                return solo(client.getLock(words[1]), Integer.parseInt(words[2]));
            case "bench":
                return bench(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]));
            default:
                throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    private static String lock(RLock lock, long leaseMs, long waitMs) throws InterruptedException {
        long from = now();
        boolean got = lock.tryLock(waitMs, lease(leaseMs), TimeUnit.MILLISECONDS);
        return "\"got\":" + got + stamps(from, now());
    }

    /** Without a lease, Redisson's watchdog keeps the lock. */
    private static long lease(long leaseMs) {
        return leaseMs == 0 ? -1 : leaseMs;
    }

    private static String unlock(RLock lock) {
        long from = now();
        boolean released = true;
        try {
            lock.unlock();
        } catch (IllegalMonitorStateException notOurs) {
            released = false;
        }
        return "\"released\":" + released + stamps(from, now());
    }

    private static String token(RFencedLock lock) {
        Long token = lock.lockAndGetToken();
        lock.unlock();
        return "\"token\":" + token;
    }

    private String count(String name, Path file, long forMs, int workers, long leaseMs) throws Exception {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(forMs);
        long total = onThreads(workers, () -> {
            long done = 0;
            RLock lock = name.equals("-") ? null : client.getLock(name);
            try (FileChannel counter = FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                while (System.nanoTime() < end) {
                    if (lock != null && !lock.tryLock(PATIENCE_MS, lease(leaseMs), TimeUnit.MILLISECONDS)) {
                        continue;
                    }
                    addOne(counter);
                    if (lock != null) {
                        lock.unlock();
                    }
                    done++;
                }
            }
            return done;
        });
        return "\"count\":" + total;
    }

    private static void addOne(FileChannel counter) throws Exception {
        ByteBuffer digits = ByteBuffer.allocate(12);
        counter.read(digits, 0);
        long value = Long.parseLong(new String(digits.array(), StandardCharsets.US_ASCII));
        Thread.yield();
        counter.write(ByteBuffer.wrap(String.format("%012d", value + 1).getBytes(StandardCharsets.US_ASCII)), 0);
    }

    private static String solo(RLock lock, int pairs) {
        long[] nanos = new long[pairs];
        for (int pair = 0; pair < pairs; pair++) {
            long from = System.nanoTime();
            lock.lock();
            lock.unlock();
            nanos[pair] = System.nanoTime() - from;
        }
        Arrays.sort(nanos);
        return "\"p50_us\":" + quantile(nanos, 0.5) + ",\"p99_us\":" + quantile(nanos, 0.99);
    }

    private static double quantile(long[] nanos, double quantile) {
        return nanos[(int) ((nanos.length - 1) * quantile)] / 1e3;
    }

    private String bench(String name, int threads, long seconds) throws Exception {
        long begin = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(WARM_UP_MS);
        long end = begin + TimeUnit.SECONDS.toNanos(seconds);
        long operations = onThreads(threads, () -> {
            RLock lock = client.getLock(name);
            long done = 0;
            for (long now = System.nanoTime(); now < end; now = System.nanoTime()) {
                lock.lock();
                lock.unlock();
                if (now >= begin) {
                    done++;
                }
            }
            return done;
        });
        return "\"operations\":" + operations + ",\"seconds\":" + seconds;
    }

    private static long onThreads(int threads, Callable<Long> work) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            List<Future<Long>> running = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                running.add(pool.submit(work));
            }
            long total = 0;
            for (Future<Long> one : running) {
                total += one.get();
            }
            return total;
        } finally {
            pool.shutdown();
        }
    }

    /** On a thread of its own: another owner, as Redisson counts them. */
    private static String elsewhere(Callable<String> work) throws Exception {
        ExecutorService other = Executors.newSingleThreadExecutor();
        try {
            return other.submit(work).get();
        } finally {
            other.shutdown();
        }
    }

    private static String stamps(long from, long at) {
        return ",\"from_us\":" + from + ",\"at_us\":" + at;
    }

    /** On Linux nanoTime is CLOCK_MONOTONIC. */
    private static long now() {
        return System.nanoTime() / 1_000;
    }

    /** From the name of the library's file: its manifest has none. */
    private static String version() throws Exception {
        String file = Path.of(Redisson.class.getProtectionDomain().getCodeSource().getLocation().toURI()).getFileName().toString();
        return file.replace("redisson-", "").replace(".jar", "");
    }

    private static void answer(String fields) {
        System.out.println("{" + fields + "}");
        System.out.flush();
    }
}
