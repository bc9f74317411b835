import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.ThreadLocalRandom;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** Buyer.java VOUCHER buys one unit at $SECKILL as the user of $TOKEN: prints where to pay, later the code, or why not. */
public final class Buyer {
    private static final HttpClient CLIENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    /** Repeats until it is decided: the repeated call finds the order, or the payment, of the one before. */
    static Answer call(String method, String path) throws InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(System.getenv("SECKILL") + "/api/v1" + path))
            .header("Authorization", "Bearer " + System.getenv("TOKEN"))
            .timeout(Duration.ofSeconds(15)) // the longest answer is that of ?wait=10s
            .method(method, HttpRequest.BodyPublishers.noBody()).build();
        for (int attempt = 0; attempt < 10; attempt++) { // over half a minute or longer
            long pause = Math.min(100L << attempt, 10_000); // ms
            try {
                HttpResponse<String> response = CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
                if (response.statusCode() != 429 && response.statusCode() < 500) {
                    return new Answer(response.body());
                }
                String asked = response.headers().firstValue("Retry-After").orElse("");
                pause = asked.matches("[1-9]\\d{0,5}") ? 1000 * Long.parseLong(asked) : pause;
            } catch (IOException lost) {
                // The order may be there.
            }
            // Not sooner than asked for, and not with all others.
            Thread.sleep(pause + ThreadLocalRandom.current().nextLong(pause / 2 + 1));
        }
        return new Answer("{\"reason\":\"no answer; start again later, and it is still one unit\"}");
    }

    /** The first text of a name in JSON, or null. Take your JSON library in its place: the JDK has none. */
    record Answer(String json) {
        String text(String name) {
            return Pattern.compile('"' + name + "\":\"([^\"]*)\"").matcher(json).results()
                .map(found -> found.group(1)).findFirst().orElse(null);
        }

        boolean is(String status) {
            return status.equals(text("status"));
        }
    }

    public static void main(String[] args) throws InterruptedException {
        Answer order = call("POST", "/vouchers/" + args[0] + "/seckill");
        String id = switch (Objects.requireNonNullElse(order.text("code"), "")) {
            case "ALREADY_ORDERED" -> order.text("order_id"); // good news: an earlier attempt got it
            case "ENDED", "PAUSED" -> // since then; what was got before is kept, the newest first
                call("GET", "/orders?voucher_id=" + args[0]).text("id");
            default -> order.text("id");
        };
        for (boolean open = id != null; open; open = order.is("processing")) {
            order = call("GET", "/orders/" + id + "?wait=10s");
        }
        if (order.is("unpaid")) {
            order = call("POST", "/orders/" + id + "/pay");
        }
        System.out.println(Stream.of("payment_url", "reason", "code", "status").map(order::text)
            .filter(Objects::nonNull).findFirst().orElse(order.json()));
        System.exit(order.text("payment_url") != null || order.is("paid") ? 0 : 1);
    }
}
