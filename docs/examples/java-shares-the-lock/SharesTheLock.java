import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** SharesTheLock.java USER changes something of a user, at $SECKILL_REDIS_URL, while seckill sells that user nothing. */
public final class SharesTheLock {
    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(System.getenv("SECKILL_REDIS_URL"));
        RedissonClient redisson = Redisson.create(config);
        try {
            RLock lock = redisson.getLock("lock:order:" + args[0]);
            // No lease of our own: it would lapse under the work. The watchdog renews as long as this process lives.
            if (!lock.tryLock(10, TimeUnit.SECONDS)) {
                System.out.println("a purchase of " + args[0] + " is being decided; try again");
                System.exit(1);
            }
            try {
                System.out.println("holds " + args[0]);
                System.in.read(); // Here the work is done: merge accounts, block a customer. Enter ends it.
            } finally {
                lock.unlock();
            }
            System.out.println("released " + args[0]);
        } finally {
            redisson.shutdown();
        }
    }
}
