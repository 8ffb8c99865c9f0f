// A namespace of its own, a lock that ends without waiting, and a message that comes twice; against
// `peeklock serve --testing`. Any test framework would do; this is one file so that it runs as it is.

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Orders {
    private static final String TESTING =
            System.getenv().getOrDefault("PEEKLOCK_HTTP", "http://localhost:5300") + "/$testing";
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    public static void main(String[] arguments) throws Exception {
        String made = ask("POST", "/namespaces",
                "{\"Queues\": [{\"Name\": \"orders\", \"Properties\": {\"LockDuration\": \"PT30S\"}}]}");
        String namespace = word(made, "name");
        ServiceBusClientBuilder builder =
                new ServiceBusClientBuilder().connectionString(word(made, "connection_string"));
        try (ServiceBusSenderClient sender = builder.sender().queueName("orders").buildClient();
                ServiceBusReceiverClient receiver =
                        builder.receiver().queueName("orders").disableAutoComplete().buildClient()) {
            sender.sendMessage(new ServiceBusMessage("tea"));
            ServiceBusReceivedMessage message = next(receiver);
            ask("POST", "/clock", "{\"advance\": \"PT31S\"}");
            try {
                receiver.complete(message);
                throw new AssertionError("the lock has not ended");
            } catch (ServiceBusException error) {
                check(error.getReason() == ServiceBusFailureReason.MESSAGE_LOCK_LOST, "lock lost");
            }
            ask("POST", "/faults", "{\"kind\": \"duplicate-delivery\", \"entity\": \"orders\","
                    + " \"namespace\": \"" + namespace + "\"}");
            receiver.complete(next(receiver));
            ServiceBusReceivedMessage again = next(receiver);
            check(again.getBody().toString().equals("tea"), "delivered again");
            receiver.complete(again);
        }
        ask("DELETE", "/namespaces/" + namespace, "");
        // The client's threads are no daemons.
        System.exit(0);
    }

    private static ServiceBusReceivedMessage next(ServiceBusReceiverClient receiver) {
        return receiver.receiveMessages(1, Duration.ofSeconds(30)).iterator().next();
    }

    private static void check(boolean isSo, String what) {
        if (!isSo) {
            throw new AssertionError(what);
        }
        System.out.println(what);
    }

    private static String ask(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(TESTING + path))
                .method(method, HttpRequest.BodyPublishers.ofString(body)).build();
        HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() >= 300) {
            throw new AssertionError(answer.body());
        }
        return answer.body();
    }

    /** Take a word of a JSON object; a real test has a parser for that. */
    private static String word(String json, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": \"([^\"]*)\"").matcher(json);
        check(found.find(), "told its " + name);
        return found.group(1);
    }
}
