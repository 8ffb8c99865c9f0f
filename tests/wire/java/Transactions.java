// What a user of the official Java client does with transactions. It is run with a connection
// string, scenarios, and two queues for each of them; it prints what it saw, one line per fact.

import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;

public class Transactions {
    private static final Duration WAIT = Duration.ofSeconds(20);

    private final ServiceBusClientBuilder builder;
    private final String queue;
    private final String other;

    private Transactions(ServiceBusClientBuilder builder, String queue, String other) {
        this.builder = builder;
        this.queue = queue;
        this.other = other;
    }

    public static void main(String[] arguments) {
        ServiceBusClientBuilder builder =
            new ServiceBusClientBuilder().connectionString(arguments[0]);
        String[] scenarios = arguments[1].split(",");
        for (int at = 0; at < scenarios.length; at++) {
            String queue = arguments[2 + 2 * at];
            String other = arguments[3 + 2 * at];
            long start = System.nanoTime();
            try {
                new Transactions(builder, queue, other).run(scenarios[at]);
            } catch (RuntimeException error) {
                say(scenarios[at] + " failed: " + error);
            }
            long tookMs = (System.nanoTime() - start) / 1_000_000;
            System.err.printf("%s took %d ms%n", scenarios[at], tookMs);
        }
        // The client's threads are no daemons.
        System.exit(0);
    }

    private void run(String scenario) {
        switch (scenario) {
            case "sends" -> sends();
            case "settlements" -> settlements();
            case "again" -> again();
            case "scheduling" -> scheduling();
            case "apart" -> apart();
            case "keys" -> keys();
            case "group" -> {
                builder.enableCrossEntityTransactions();
                group();
            }
            case "session" -> {
                builder.enableCrossEntityTransactions();
                session();
            }
            default -> throw new IllegalArgumentException(scenario);
        }
    }

    /** Messages appear with the commit and never after a rollback; others go their own way. */
    private void sends() {
        try (ServiceBusSenderClient sender = sender(queue);
            ServiceBusReceiverClient receiver = receiver(queue)) {
            ServiceBusTransactionContext committed = sender.createTransaction();
            sender.sendMessage(message("a"), committed);
            sender.sendMessages(List.of(message("b"), message("c")), committed);
            sender.sendMessage(message("outside"));
            say("sends before " + peek(receiver));
            sender.commitTransaction(committed);
            say("sends committed " + peek(receiver));
            ServiceBusTransactionContext undone = sender.createTransaction();
            sender.sendMessage(message("never"), undone);
            sender.rollbackTransaction(undone);
            say("sends rolled back " + peek(receiver));
        }
    }

    /** Every settlement within one transaction. */
    private void settlements() {
        try (ServiceBusSenderClient sender = sender(queue);
            ServiceBusReceiverClient receiver = receiver(queue)) {
            for (String text : List.of("complete", "abandon", "defer", "dead-letter")) {
                sender.sendMessage(message(text));
            }
            List<ServiceBusReceivedMessage> got = take(receiver, 4);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(got.get(0), new CompleteOptions().setTransactionContext(transaction));
            receiver.abandon(got.get(1), new AbandonOptions().setTransactionContext(transaction));
            receiver.defer(got.get(2), new DeferOptions().setTransactionContext(transaction));
            receiver.deadLetter(got.get(3), new DeadLetterOptions()
                .setDeadLetterReason("r").setTransactionContext(transaction));
            say("settlements before " + peek(receiver));
            receiver.commitTransaction(transaction);
            say("settlements committed " + peek(receiver));
            ServiceBusReceivedMessage deferred =
                receiver.receiveDeferredMessage(got.get(2).getSequenceNumber());
            transaction = receiver.createTransaction();
            receiver.complete(deferred, new CompleteOptions().setTransactionContext(transaction));
            receiver.commitTransaction(transaction);
            say("settlements deferred " + peek(receiver));
        }
    }

    /**
     * What was rolled back stays locked and comes back after its lock. This client holds the
     * message that it has for settled, so that it has to wait for it.
     */
    private void again() {
        try (ServiceBusSenderClient sender = sender(queue);
            ServiceBusReceiverClient receiver = receiver(queue)) {
            sender.sendMessage(message("a"));
            ServiceBusReceivedMessage got = take(receiver, 1).get(0);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(got, new CompleteOptions().setTransactionContext(transaction));
            receiver.rollbackTransaction(transaction);
            say("again rolled back " + peek(receiver));
            got = take(receiver, 1).get(0);
            say("again delivered " + got.getDeliveryCount() + " times before, "
                + (got.getEnqueuedTime().plusSeconds(5).isBefore(OffsetDateTime.now())
                    ? "after its lock" : "too early"));
            transaction = receiver.createTransaction();
            receiver.complete(got, new CompleteOptions().setTransactionContext(transaction));
            receiver.commitTransaction(transaction);
            say("again committed " + peek(receiver));
        }
    }

    /** Scheduling and cancelling, undone and done. */
    private void scheduling() {
        try (ServiceBusSenderClient sender = sender(queue);
            ServiceBusReceiverClient receiver = receiver(queue)) {
            OffsetDateTime later = OffsetDateTime.now().plusHours(1);
            ServiceBusTransactionContext undone = sender.createTransaction();
            sender.scheduleMessage(message("never"), later, undone);
            sender.rollbackTransaction(undone);
            say("scheduling rolled back " + peek(receiver));
            ServiceBusTransactionContext transaction = sender.createTransaction();
            long number = sender.scheduleMessage(message("a"), later, transaction);
            sender.commitTransaction(transaction);
            say("scheduling committed " + peek(receiver));
            sender.cancelScheduledMessage(number);
            say("scheduling cancelled " + peek(receiver));
        }
    }

    /** Two entities without a transaction group: the client hears of it when it commits. */
    private void apart() {
        try (ServiceBusSenderClient sender = sender(queue);
            ServiceBusReceiverClient receiver = receiver(queue);
            ServiceBusSenderClient second = sender(other)) {
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(message("a"), transaction);
            second.sendMessage(message("b"), transaction);
            try {
                sender.commitTransaction(transaction);
                say("apart went through");
            } catch (RuntimeException error) {
                say("apart refused " + peek(receiver));
            }
        }
    }

    /**
     * Without the key of the others, or with another one, a partitioned queue refuses a message. This client does
     * not look at the answer to a transactional send: it hears of it when it commits.
     */
    private void keys() {
        try (ServiceBusSenderClient sender = sender(queue);
            ServiceBusReceiverClient receiver = receiver(queue)) {
            for (ServiceBusMessage wrong : List.of(
                new ServiceBusMessage("none"),
                new ServiceBusMessage("other").setPartitionKey("other"),
                new ServiceBusMessage("session").setSessionId("s"))) {
                ServiceBusTransactionContext transaction = sender.createTransaction();
                sender.sendMessage(message("a"), transaction);
                sender.sendMessage(wrong, transaction);
                try {
                    sender.commitTransaction(transaction);
                    say("keys " + wrong.getBody() + " went through");
                } catch (RuntimeException error) {
                    say("keys " + wrong.getBody() + " refused " + peek(receiver));
                }
            }
        }
    }

    /** Receive here, send there, as one. */
    private void group() {
        try (ServiceBusSenderClient back = sender(queue);
            ServiceBusReceiverClient receiver = receiver(queue);
            ServiceBusSenderClient sender = sender(other);
            ServiceBusReceiverClient there = receiver(other)) {
            back.sendMessage(message("kept"));
            back.sendMessage(message("in"));
            List<ServiceBusReceivedMessage> got = take(receiver, 2);
            ServiceBusTransactionContext undone = receiver.createTransaction();
            sender.sendMessage(message("never"), undone);
            receiver.complete(got.get(0), new CompleteOptions().setTransactionContext(undone));
            receiver.rollbackTransaction(undone);
            say("group rolled back " + peek(receiver));
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(got.get(1), new CompleteOptions().setTransactionContext(transaction));
            sender.sendMessage(message("out"), transaction);
            receiver.commitTransaction(transaction);
            say("group committed " + peek(receiver));
            say("group arrived " + bodies(take(there, 1)));
        }
    }

    /** The same from a session, whose name is the partition key. */
    private void session() {
        try (ServiceBusSenderClient back = sender(queue);
            ServiceBusSessionReceiverClient sessions =
                builder.sessionReceiver().queueName(queue).disableAutoComplete().buildClient();
            ServiceBusSenderClient sender = sender(other);
            ServiceBusReceiverClient there = receiver(other)) {
            back.sendMessage(message("in").setSessionId("k"));
            try (ServiceBusReceiverClient receiver = sessions.acceptSession("k")) {
                ServiceBusReceivedMessage got = take(receiver, 1).get(0);
                ServiceBusTransactionContext transaction = receiver.createTransaction();
                receiver.complete(
                    got, new CompleteOptions().setTransactionContext(transaction));
                sender.sendMessage(message("out"), transaction);
                back.sendMessage(message("next").setSessionId("k"), transaction);
                receiver.commitTransaction(transaction);
                say("session committed " + bodies(take(receiver, 1)));
                say("session arrived " + bodies(take(there, 1)));
            }
        }
    }

    private ServiceBusSenderClient sender(String name) {
        return builder.sender().queueName(name).buildClient();
    }

    private ServiceBusReceiverClient receiver(String name) {
        return builder.receiver().queueName(name).disableAutoComplete().buildClient();
    }

    /** A message with a partition key, so that a partitioned queue takes several as one. */
    private static ServiceBusMessage message(String text) {
        return new ServiceBusMessage(BinaryData.fromString(text)).setPartitionKey("k");
    }

    private static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> all = new ArrayList<>();
        receiver.receiveMessages(count, WAIT).forEach(all::add);
        if (all.size() != count) {
            throw new IllegalStateException("only " + bodies(all) + " came");
        }
        return all;
    }

    private static List<String> peek(ServiceBusReceiverClient receiver) {
        List<ServiceBusReceivedMessage> all = new ArrayList<>();
        receiver.peekMessages(50, 1L).forEach(all::add);
        return bodies(all);
    }

    private static List<String> bodies(List<ServiceBusReceivedMessage> messages) {
        return messages.stream().map(each -> each.getBody().toString()).toList();
    }

    private static void say(String fact) {
        System.out.println(fact);
        System.out.flush();
    }
}
