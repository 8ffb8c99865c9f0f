// What a user of the official Java client does besides transactions. It is run with a connection
// string, scenarios, and one entity for each of them; it prints what it saw, one line per fact.

import com.azure.core.amqp.models.AmqpAnnotatedMessage;
import com.azure.core.amqp.models.AmqpMessageHeader;
import com.azure.core.credential.AccessToken;
import com.azure.core.credential.TokenRequestContext;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessageContext;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.SubscriptionRuntimeProperties;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import reactor.core.publisher.Mono;

public class Tour {
    private static final Duration WAIT = Duration.ofSeconds(20);
    // What an issuer has signed, in place of a key.
    private static final String TOKEN = System.getenv("PEEKLOCK_TOKEN");

    private final String connection;
    private final String entity;

    private Tour(String connection, String entity) {
        this.connection = connection;
        this.entity = entity;
    }

    public static void main(String[] arguments) {
        String[] scenarios = arguments[1].split(",");
        for (int at = 0; at < scenarios.length; at++) {
            long start = System.nanoTime();
            try {
                new Tour(arguments[0], arguments[2 + at]).run(scenarios[at]);
            } catch (Exception error) {
                System.out.println(scenarios[at] + " failed: " + error);
            }
            long tookMs = (System.nanoTime() - start) / 1_000_000;
            System.err.printf("%s took %d ms%n", scenarios[at], tookMs);
        }
        // The client's threads are no daemons.
        System.exit(0);
    }

    private void run(String scenario) throws Exception {
        switch (scenario) {
            case "settling" -> settling();
            case "scheduling" -> scheduling();
            case "session" -> session();
            case "topic" -> topic();
            case "processor" -> processor();
            case "sessions" -> sessionProcessor();
            case "annotations" -> annotations();
            case "claimed" -> claimed();
            case "administration" -> administration();
            default -> throw new IllegalArgumentException(scenario);
        }
    }

    private void settling() {
        try (ServiceBusSenderClient sender = sender();
            ServiceBusReceiverClient receiver = receiver()) {
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            for (String text : List.of("complete", "abandon", "defer", "dead-letter", "renew")) {
                batch.tryAddMessage(message(text));
            }
            sender.sendMessages(batch);
            List<ServiceBusReceivedMessage> got = take(receiver, 5);
            System.out.println("settling received " + texts(got));
            receiver.complete(got.get(0));
            receiver.abandon(got.get(1));
            receiver.defer(got.get(2));
            receiver.deadLetter(got.get(3), new DeadLetterOptions()
                .setDeadLetterReason("bad").setDeadLetterErrorDescription("very bad"));
            OffsetDateTime until = receiver.renewMessageLock(got.get(4));
            System.out.println("settling renewed " + !until.isBefore(got.get(4).getLockedUntil()));
            receiver.complete(got.get(4));
            ServiceBusReceivedMessage again = take(receiver, 1).get(0);
            System.out.println("settling again " + again.getBody() + " " + again.getDeliveryCount());
            receiver.complete(again);
            ServiceBusReceivedMessage deferred =
                receiver.receiveDeferredMessage(got.get(2).getSequenceNumber());
            receiver.complete(deferred);
            System.out.println("settling deferred " + deferred.getBody());
            System.out.println("settling left " + receiver.peekMessages(10, 1).stream().count());
        }
        try (ServiceBusReceiverClient dead = builder().receiver().queueName(entity)
            .subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient()) {
            ServiceBusReceivedMessage letter = take(dead, 1).get(0);
            System.out.println("settling dead " + letter.getBody() + " " + letter.getDeadLetterReason());
            dead.complete(letter);
        }
    }

    private void scheduling() {
        try (ServiceBusSenderClient sender = sender();
            ServiceBusReceiverClient receiver = receiver()) {
            OffsetDateTime later = OffsetDateTime.now().plusHours(1);
            List<Long> numbers = new ArrayList<>();
            sender.scheduleMessages(List.of(message("a"), message("b")), later).forEach(numbers::add);
            sender.cancelScheduledMessage(numbers.get(0));
            receiver.peekMessages(10).forEach(each ->
                System.out.println("scheduling waits " + each.getBody() + " " + each.getState()));
            sender.scheduleMessage(message("soon"), OffsetDateTime.now().plusSeconds(1));
            ServiceBusReceivedMessage soon = take(receiver, 1).get(0);
            receiver.complete(soon);
            System.out.println("scheduling came " + soon.getBody() + " " + soon.getState());
            sender.sendMessage(message("sent").setScheduledEnqueueTime(OffsetDateTime.now().plusSeconds(1)));
            ServiceBusReceivedMessage sent = take(receiver, 1).get(0);
            receiver.complete(sent);
            System.out.println("scheduling came " + sent.getBody() + " " + sent.getState() + " "
                + (sent.getScheduledEnqueueTime() != null));
        }
    }

    private void session() {
        try (ServiceBusSenderClient sender = sender();
            ServiceBusSessionReceiverClient door =
                builder().sessionReceiver().queueName(entity).disableAutoComplete().buildClient()) {
            for (String text : List.of("1", "2")) {
                for (String id : List.of("red", "blue")) {
                    sender.sendMessage(new ServiceBusMessage(id + text).setSessionId(id));
                }
            }
            try (ServiceBusReceiverClient blue = door.acceptSession("blue")) {
                blue.setSessionState("half way".getBytes());
                blue.renewSessionLock();
                System.out.println("session state " + new String(blue.getSessionState()));
                blue.setSessionState(new byte[0]);
                System.out.println("session cleared " + (blue.getSessionState() == null));
                finish(blue);
            }
            try (ServiceBusReceiverClient next = door.acceptNextSession()) {
                System.out.println("session next " + next.getSessionId());
                finish(next);
            }
        }
    }

    private void finish(ServiceBusReceiverClient receiver) {
        List<ServiceBusReceivedMessage> got = take(receiver, 2);
        receiver.defer(got.get(0));
        ServiceBusReceivedMessage deferred =
            receiver.receiveDeferredMessage(got.get(0).getSequenceNumber());
        System.out.println("session deferred " + deferred.getBody() + " "
            + deferred.getLockedUntil().isAfter(OffsetDateTime.now()));
        receiver.complete(deferred);
        receiver.complete(got.get(1));
        System.out.println("session got " + texts(got) + " "
            + got.get(1).getLockedUntil().isAfter(OffsetDateTime.now()));
    }

    private void annotations() {
        try (ServiceBusReceiverClient receiver = receiver()) {
            ServiceBusReceivedMessage got = take(receiver, 1).get(0);
            receiver.complete(got);
            AmqpAnnotatedMessage raw = got.getRawAmqpMessage();
            System.out.println("annotations own " + raw.getMessageAnnotations().get("own") + " "
                + got.getBody() + " " + raw.getFooter().get("own"));
            Object token = raw.getDeliveryAnnotations().get("x-opt-lock-token");
            System.out.println("annotations token " + got.getLockToken().equals(String.valueOf(token)));
            AmqpMessageHeader header = raw.getHeader();
            System.out.println("annotations header " + header.isDurable() + " " + header.getPriority()
                + " " + header.getTimeToLive() + " " + header.isFirstAcquirer());
        }
    }

    private void claimed() {
        try (ServiceBusReceiverClient receiver = receiver()) {
            System.out.println("claimed peeked " + receiver.peekMessages(2).stream().map(each ->
                each.getBody() + " " + each.getState() + " "
                    + each.getRawAmqpMessage().getMessageAnnotations().get("com.peeklock:claimed")).sorted().toList());
        }
    }

    private void topic() {
        try (ServiceBusSenderClient sender = builder().sender().topicName(entity).buildClient();
            ServiceBusRuleManagerClient rules =
                builder().ruleManager().topicName(entity).subscriptionName("b").buildClient()) {
            rules.createRule("large", new CreateRuleOptions(new SqlRuleFilter("n > 5")));
            rules.deleteRule("$Default");
            rules.listRules().forEach(rule -> System.out.println("topic rule " + rule.getName()));
            for (int number : List.of(3, 9)) {
                ServiceBusMessage sent = message("n" + number);
                sent.getApplicationProperties().put("n", number);
                sender.sendMessage(sent);
            }
            try (ServiceBusReceiverClient all = subscriber("a"); ServiceBusReceiverClient large = subscriber("b")) {
                List<ServiceBusReceivedMessage> copies = take(all, 2);
                System.out.println("topic all " + texts(copies));
                System.out.println("topic numbers " + copies.stream().map(each ->
                    each.getRawAmqpMessage().getMessageAnnotations().get("x-opt-enqueue-sequence-number") != null
                        && each.getState() == ServiceBusMessageState.ACTIVE).toList());
                System.out.println("topic large " + texts(take(large, 1)));
            }
        }
    }

    private ServiceBusReceiverClient subscriber(String name) {
        return builder().receiver().topicName(entity).subscriptionName(name).disableAutoComplete().buildClient();
    }

    /** The first delivery fails, and comes again by itself. */
    private void processor() throws InterruptedException {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        ServiceBusProcessorClient processor = builder().processor().queueName(entity)
            .processMessage(context -> handle(context, seen))
            .processError(context -> seen.add("error " + context.getErrorSource()))
            .buildProcessorClient();
        processor.start();
        try (ServiceBusSenderClient sender = sender(); ServiceBusReceiverClient receiver = receiver()) {
            sender.sendMessage(message("hard"));
            for (int count = 0; count < 2; count++) {
                System.out.println("processor " + seen.poll(20, TimeUnit.SECONDS));
            }
            processor.stop();
            processor.close();
            System.out.println("processor left " + receiver.peekMessages(10).stream().count());
        }
    }

    private static void handle(ServiceBusReceivedMessageContext context, BlockingQueue<String> seen) {
        ServiceBusReceivedMessage message = context.getMessage();
        if (message.getDeliveryCount() == 0) {
            throw new IllegalStateException("not today");
        }
        context.complete();
        seen.add("handled " + message.getBody() + " " + message.getDeliveryCount());
    }

    private void sessionProcessor() throws InterruptedException {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        ServiceBusProcessorClient processor = builder().sessionProcessor().queueName(entity)
            .maxConcurrentSessions(2)
            .processMessage(context -> seen.add(context.getMessage().getSessionId() + context.getMessage().getBody()))
            .processError(context -> seen.add("error " + context.getException()))
            .buildProcessorClient();
        try (ServiceBusSenderClient sender = sender()) {
            for (String text : List.of("1", "2", "3")) {
                for (String id : List.of("a", "b")) {
                    sender.sendMessage(new ServiceBusMessage(text).setSessionId(id));
                }
            }
            processor.start();
            List<String> got = new ArrayList<>();
            while (got.size() < 6) {
                got.add(String.valueOf(seen.poll(20, TimeUnit.SECONDS)));
            }
            processor.close();
            // Each session in order; the two beside each other.
            System.out.println("sessions " + got.stream().filter(text -> text.startsWith("a")).toList()
                + got.stream().filter(text -> text.startsWith("b")).toList());
        }
    }

    /** It speaks HTTPS to 443 only. */
    private void administration() {
        ServiceBusAdministrationClient office = office();
        QueueProperties made = office.createQueue(entity, new CreateQueueOptions()
            .setMaxDeliveryCount(7).setLockDuration(Duration.ofSeconds(45)).setUserMetadata("by <Java> & friends"));
        System.out.println("administration made " + made.getMaxDeliveryCount() + " " + made.getLockDuration()
            + " " + made.getUserMetadata());
        QueueProperties changed = office.updateQueue(office.getQueue(entity).setMaxDeliveryCount(3));
        System.out.println("administration changed " + changed.getMaxDeliveryCount());
        try (ServiceBusSenderClient sender = sender()) {
            sender.sendMessage(message("counted"));
        }
        System.out.println("administration counts "
            + office.getQueueRuntimeProperties(entity).getActiveMessageCount());
        System.out.println("administration listed "
            + office.listQueues().stream().filter(each -> each.getName().equals(entity)).count());
        QueueProperties forwarding = office.createQueue(entity + "-in", new CreateQueueOptions()
            .setForwardTo(entity).setSessionRequired(true));
        System.out.println("administration forwards " + forwarding.getForwardTo() + " "
            + office.getQueue(entity + "-in").getForwardTo().equals(forwarding.getForwardTo()));
        office.deleteQueue(entity + "-in");
        office.createQueue(entity + "-s", new CreateQueueOptions().setSessionRequired(true));
        QueueProperties into = office.createQueue(entity + "-in", new CreateQueueOptions().setForwardTo(entity + "-s"));
        System.out.println("administration into sessions " + into.getForwardTo().endsWith("/" + entity + "-s"));
        office.deleteQueue(entity + "-in");
        office.deleteQueue(entity + "-s");
        office.deleteQueue(entity);
        System.out.println("administration exists " + office.getQueueExists(entity));
        below(office, entity + "-topic");
    }

    private void below(ServiceBusAdministrationClient office, String topic) {
        office.createTopic(topic);
        SubscriptionProperties made = office.createSubscription(topic, "s");
        SubscriptionRuntimeProperties live = office.getSubscriptionRuntimeProperties(topic, "s");
        System.out.println("administration accessed " + live.getAccessedAt().equals(live.getCreatedAt())
            + " " + made.getStatus());
        System.out.println("administration below " + office.getSubscriptionExists(topic, "no")
            + " " + office.getTopicExists(topic + "-no"));
        OffsetDateTime at = OffsetDateTime.parse("2024-02-29T12:00:00Z");
        SqlRuleFilter filter = new SqlRuleFilter("d < @d");
        filter.getParameters().put("@d", at);
        office.createRule(topic, "r", "s", new CreateRuleOptions(filter));
        SqlRuleFilter found = (SqlRuleFilter) office.getRule(topic, "s", "r").getFilter();
        System.out.println("administration date " + found.getParameters().get("@d"));
        office.deleteTopic(topic);
    }

    /** With a token in place of a key, the connection is host and port. */
    private ServiceBusClientBuilder builder() {
        if (TOKEN == null) {
            return new ServiceBusClientBuilder().connectionString(connection);
        }
        return new ServiceBusClientBuilder().credential(connection.split(":")[0], Tour::token)
            .customEndpointAddress("https://" + connection);
    }

    private ServiceBusAdministrationClient office() {
        ServiceBusAdministrationClientBuilder builder = new ServiceBusAdministrationClientBuilder();
        return (TOKEN == null ? builder.connectionString(connection) : builder.credential(connection, Tour::token))
            .buildClient();
    }

    private static Mono<AccessToken> token(TokenRequestContext asked) {
        if (!asked.getScopes().equals(List.of("https://servicebus.azure.net/.default"))) {
            return Mono.error(new IllegalArgumentException("asked for " + asked.getScopes()));
        }
        return Mono.just(new AccessToken(TOKEN, OffsetDateTime.now().plusHours(1)));
    }

    private ServiceBusSenderClient sender() {
        return builder().sender().queueName(entity).buildClient();
    }

    private ServiceBusReceiverClient receiver() {
        return builder().receiver().queueName(entity).disableAutoComplete().buildClient();
    }

    /** With a partition key, so that a partitioned entity keeps the order. */
    private static ServiceBusMessage message(String text) {
        return new ServiceBusMessage(BinaryData.fromString(text)).setPartitionKey("k");
    }

    private static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> taken = new ArrayList<>();
        while (taken.size() < count) {
            int before = taken.size();
            receiver.receiveMessages(count - before, WAIT).forEach(taken::add);
            if (taken.size() == before) {
                throw new IllegalStateException("nothing came");
            }
        }
        return taken;
    }

    private static List<String> texts(List<ServiceBusReceivedMessage> messages) {
        return messages.stream().map(each -> each.getBody().toString()).toList();
    }
}
